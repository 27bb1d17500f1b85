// Offset, time and transaction index files as a crash, a bad disk or another broker leaves them: entries in memory and
// by search in the file. The first two bytes are what is looked for.
#include "broker/log/index.h"
#include "broker/log/segment.h"
#include "tests/fuzz/support/input.h"
#include "tests/unit/log/support/simulated_files.h"

using namespace ciuic;
using namespace ciuic::broker;
using fuzz::must;

namespace {

template <class Entry>
void must_be_prefix(const std::vector<Entry>& entries, Bytes bytes) {
  const auto again = encode(std::span<const Entry>(entries));
  must(again.size() <= bytes.size() && std::equal(again.begin(), again.end(), bytes.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto wanted = input.number<std::uint16_t>();
  const auto bytes = input.rest();
  const auto offsets = decode_offset_entries(bytes);
  const auto times = decode_time_entries(bytes);
  must_be_prefix(offsets, bytes);
  must_be_prefix(times, bytes);
  const auto offset = floor_entry(offsets, wanted);
  const auto time = floor_entry(times, wanted);
  must(offset.relative_offset <= wanted && time.timestamp <= wanted);
  if (const auto aborted = decode_aborted(bytes)) {
    must(std::ranges::equal(encode(std::span<const AbortedRange>(*aborted)), bytes));
  }

  broker::testing::SimulatedFiles files;
  must(files.make_directories("/logs").has_value() && write_file(files, "/logs/index", bytes).has_value());
  const auto offset_found = floor_in_file(files, "/logs/index", std::uint32_t{wanted});
  const auto time_found = floor_in_file(files, "/logs/index", std::int64_t{wanted});
  const auto last = last_time_entry(files, "/logs/index");
  must(offset_found && time_found && last);
  must(offset_found->relative_offset <= wanted && time_found->timestamp <= wanted);
  // Where the file is in order both ways find the same.
  if (offsets.size() == bytes.size() / OffsetEntry::bytes_on_disk) must(*offset_found == offset);
  return 0;
}
