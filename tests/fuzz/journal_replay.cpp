// The journal that a killed process left, put into segment files. The first byte: 1 leaves magic and length as they
// are, 2 the records; else they get the checksums and numbers that replaying asks for. Then the tail, the segment that
// is there already, and the ring.
#include "broker/log/journal.h"
#include "broker/log/journal_format.h"
#include "broker/log/segment.h"
#include "tests/fuzz/support/input.h"
#include "tests/unit/log/support/simulated_files.h"

using namespace ciuic;
using namespace ciuic::broker;
using fuzz::must;

namespace {

/// Gives each record the place, the secret and the checksum of a right one.
void mend(MutableBytes ring, const journal::FileHead& head) {
  auto at = head.tail;
  for (int i = 0; i < 256 && at - head.tail < ring.size(); ++i) {
    const auto here = ring.subspan(at % ring.size());
    journal::RecordHead record;
    if (here.size() < sizeof record) {
      at = journal::next_turn(at, ring.size());
      continue;
    }
    std::memcpy(&record, here.data(), sizeof record);
    record.at = at;
    record.secret = static_cast<std::uint32_t>(head.secret);
    record.bytes %= 512;
    record.turn &= 1;
    record.partition &= 3;
    record.topic = {};
    record.segment_base &= 0xFF;
    record.position &= 0x3FF;
    if (record.bytes > here.size() - sizeof record) record.bytes = 0;
    const auto bytes = here.subspan(sizeof record, record.bytes);
    record.crc = journal::crc_of(record, bytes, head.secret);
    std::memcpy(here.data(), &record, sizeof record);
    at = record.turn != 0 ? journal::next_turn(at, ring.size()) : at + journal::record_bytes(record.bytes);
  }
}

std::uint64_t bytes_in(broker::testing::SimulatedFiles& files) {
  std::uint64_t sum = 0;
  const auto entries = files.list("/logs/t-0");
  for (const auto& entry : *entries) sum += entry.bytes;
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto kind = input.number<std::uint8_t>();
  journal::FileHead head;
  head.tail = input.number<std::uint64_t>();
  head.secret = 0x1234;
  const auto base = input.number<std::uint8_t>();
  const auto there = input.piece();
  auto ring = to_buffer(input.rest());
  head.ring_bytes = ring.size();
  if ((kind & 1) != 0) head.magic ^= 1;
  if ((kind & 2) == 0 && !ring.empty()) mend(ring, head);

  Buffer file(journal::ring_begin);
  std::memcpy(file.data(), &head, sizeof head);
  file.insert(file.end(), ring.begin(), ring.end());
  broker::testing::SimulatedFiles files;
  must(files.make_directories("/logs/t-0").has_value() && write_file(files, "/logs/journal", file).has_value());
  must(write_file(files, segment_file("/logs/t-0", kafka::Offset(base), log_suffix), there).has_value());

  const auto where = [](const kafka::PartitionId& id) {
    using Kind = ReplayTo::Kind;
    if (id.partition.value == 0) return ReplayTo{Kind::directory, "/logs/t-0"};
    return ReplayTo{id.partition.value == 1 ? Kind::kept_back : Kind::gone, {}};
  };
  const auto before = bytes_in(files);
  const auto first = replay_journal(files, "/logs/journal", where);
  must(first && first->bytes + first->gone + first->left_out <= ring.size());
  must(bytes_in(files) == before + first->bytes);
  // May be repeated: then there is nothing to do.
  const auto second = replay_journal(files, "/logs/journal", where);
  must(second && second->bytes == 0 && second->gone == first->gone && bytes_in(files) == before + first->bytes);
  return 0;
}
