// A segment's file with its indexes as found at start: scanned whole, and opened as one that is trusted. The first byte
// says whether batches get their checksums mended, the next eight are the segment's base, then the two indexes.
#include "broker/log/segment_scan.h"
#include "broker/log/stored_batch.h"
#include "tests/fuzz/support/batches.h"
#include "tests/fuzz/support/input.h"
#include "tests/unit/log/support/simulated_files.h"

using namespace ciuic;
using namespace ciuic::broker;
using fuzz::must;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const bool mend = (input.number<std::uint8_t>() & 1) == 0;
  const kafka::Offset base(input.number<std::int64_t>() & std::numeric_limits<std::int64_t>::max());
  if (segment_base_of(segment_file("", base, log_suffix).substr(1), log_suffix) != base) return 0;
  const auto offsets = input.piece();
  const auto times = input.piece();
  auto log = to_buffer(input.rest());
  if (mend) fuzz::mend_batches(log);
  broker::testing::SimulatedFiles files;
  must(files.make_directories("/logs").has_value() &&
       write_file(files, segment_file("/logs", base, log_suffix), log).has_value() &&
       write_file(files, segment_file("/logs", base, index_suffix), offsets).has_value() &&
       write_file(files, segment_file("/logs", base, time_index_suffix), times).has_value());

  Segment scanned(files, "/logs", base);
  auto next = base;
  std::uint64_t bytes = 0;
  ProducerState producers;
  const auto scan = scan_segment(scanned, 128, [&](const BatchInfo& info) {
    must(info.base_offset >= next && info.last_offset >= info.base_offset);
    next = info.last_offset + 1;
    bytes += info.bytes;
    (void)producers.appended(info);
  });
  must(scan && scan->next_offset == next && scan->good_bytes == bytes && scan->good_bytes <= scan->file_bytes);
  (void)producers.first_unstable(next);
  (void)producers.to_snapshot();

  Segment opened(files, "/logs", base);
  const auto open = open_active(opened);
  must(open && open->file_bytes == log.size() && open->good_bytes <= log.size());
  return 0;
}
