// Numbers found on disk that no broker writes: refused where they would wrap, overlap or name nothing. What each
// decoder does with arbitrary bytes is tests/fuzz's.
#include <gtest/gtest.h>

#include <limits>

#include "broker/log/journal.h"
#include "broker/log/journal_format.h"
#include "broker/log/segment.h"
#include "broker/log/segment_scan.h"
#include "broker/log/stored_batch.h"
#include "tests/unit/log/support/log_world.h"
#include "transport/base/crc32c.h"

namespace ciuic::broker {
namespace {

using kafka::Offset;
using testing::make_batch;
constexpr auto int64_max = std::numeric_limits<std::int64_t>::max();

struct Entry {
  std::int64_t id = 7;
  std::int32_t last_sequence = 9;
  std::int64_t last_offset = 99;
  std::int32_t offset_delta = 9;
  std::int64_t transaction_first = -1;
};
Buffer snapshot_of(const std::vector<Entry>& entries) {
  Buffer bytes;
  kafka::WireWriter out(bytes);
  out.number(std::int16_t{1});
  out.number(std::uint32_t{0});
  out.number(static_cast<std::int32_t>(entries.size()));
  for (const auto& entry : entries) {
    out.number(entry.id);
    out.number(std::int16_t{0});
    out.number(entry.last_sequence);
    out.number(entry.last_offset);
    out.number(entry.offset_delta);
    out.number(std::int64_t{1'700'000'000'000});
    out.number(std::int32_t{0});
    out.number(entry.transaction_first);
  }
  kafka::store_be(bytes.data() + 2, crc32c(Bytes(bytes).subspan(6)));
  return bytes;
}

TEST(FoundOnDisk, ABatchWhoseOffsetsWrapIsNone) {
  auto batch = make_batch({.records = 3});
  EXPECT_TRUE(stored_batch_size(batch));
  for (const auto base : {int64_max, int64_max - 1, int64_max - 2, std::int64_t{-1}}) {
    kafka::store_be(batch.data(), base);
    EXPECT_FALSE(stored_batch_size(batch)) << base;
  }
  kafka::store_be(batch.data(), int64_max - 3);
  EXPECT_TRUE(stored_batch_size(batch));
  kafka::store_be(batch.data() + kafka::batch_at::last_offset_delta, std::int32_t{-1});
  EXPECT_FALSE(stored_batch_size(batch));
}

TEST(FoundOnDisk, AFileThatEndsInItsFirstHeaderOpensWhereverItIsCut) {
  auto batch = make_batch({.records = 1});
  kafka::store_be(batch.data(), int64_max - 5);
  for (std::size_t size = 0; size <= batch.size(); ++size) {
    testing::SimulatedFiles files;
    ASSERT_TRUE(files.make_directories("/logs"));
    ASSERT_TRUE(write_file(files, segment_file("/logs", Offset(0), log_suffix), Bytes(batch).first(size)));
    Segment segment(files, "/logs", Offset(0));
    const auto opened = open_active(segment);
    ASSERT_TRUE(opened) << size;
    EXPECT_EQ(opened->good_bytes, size == batch.size() ? size : 0) << size;
    EXPECT_EQ(segment.first_timestamp, size < kafka::batch_header_bytes ? -1 : 1'700'000'000'000) << size;
  }
}

TEST(FoundOnDisk, ASegmentsNameIsTwentyDigitsWithRoomForItsOffsets) {
  EXPECT_EQ(segment_base_of("00000000000000000042.log", log_suffix), Offset(42));
  for (const auto* name : {"-0000000000000000000.log", "-0000000000000000042.log", "+0000000000000000042.log",
                           "09223372036854775807.log", "99999999999999999999.log", "0000000000000000042.log"})
    EXPECT_FALSE(segment_base_of(name, log_suffix)) << name;
}

TEST(FoundOnDisk, ASnapshotOfProducersThatCannotBeIsRefusedAndLeavesNothing) {
  ProducerState state;
  EXPECT_TRUE(state.load_snapshot(snapshot_of({{}, {.id = 8, .transaction_first = 90}})));
  EXPECT_EQ(state.earliest_open_transaction(), Offset(90));
  const std::vector<std::vector<Entry>> wrong{
      {{.offset_delta = -1}},
      {{.offset_delta = std::numeric_limits<std::int32_t>::min()}},
      {{.last_offset = std::numeric_limits<std::int64_t>::min()}},
      {{.last_offset = 8}},                                                 // its first would be -1
      {{.transaction_first = 90}, {.transaction_first = 80}},               // a producer twice
      {{.transaction_first = 90}, {.id = 8, .transaction_first = 90}},      // an offset is in one transaction
      {{.id = 6, .transaction_first = 5}, {.id = 7, .offset_delta = -1}}};  // after one that is right
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_FALSE(state.load_snapshot(snapshot_of(wrong[i]))) << i;
    EXPECT_TRUE(state.empty() && !state.earliest_open_transaction()) << i;
  }
}

TEST(FoundOnDisk, RecentBatchesThatCannotBeAreIgnored) {
  for (const auto* line : {"7 0 9 99 -2147483648 1", "7 0 -5 99 9 1", "7 0 9 -9223372036854775808 9 1"}) {
    ProducerState state;
    ASSERT_TRUE(state.load_snapshot(snapshot_of({{}})));
    state.load_recent_batches("0\n" + std::string(line) + "\n7 0 9 99 9 1\n");
    const auto& batches = state.producers().at(kafka::ProducerId(7)).batches;
    ASSERT_EQ(batches.size(), 1U) << line;
    EXPECT_EQ(batches[0].first_offset(), Offset(90)) << line;
  }
}

TEST(FoundOnDisk, ProducersExpireWhateverTheirTimestampsSay) {
  for (const auto& [timestamp, stays] : {std::pair{std::numeric_limits<std::int64_t>::min(), false},
                                         std::pair{std::int64_t{-1}, false}, std::pair{int64_max, true}}) {
    ProducerState state;
    BatchInfo info;
    info.base_offset = info.last_offset = Offset(0);
    info.producer_id = kafka::ProducerId(7);
    info.producer_epoch = kafka::ProducerEpoch(0);
    info.base_sequence = info.last_sequence = 0;
    info.max_timestamp = timestamp;
    (void)state.appended(info);
    state.expire(1'700'000'000'000, 86'400'000);
    EXPECT_EQ(!state.empty(), stays) << timestamp;
  }
}

TEST(FoundOnDisk, AJournalsRecordThatReachesBackOverTheTailIsNone) {
  journal::FileHead head;
  head.ring_bytes = journal::page;
  head.tail = 1024;
  head.secret = 5;
  Buffer file(journal::ring_begin + journal::page);
  std::memcpy(file.data(), &head, sizeof head);
  const auto put = [&](std::uint64_t at, std::uint32_t bytes) {
    journal::RecordHead record;
    record.at = at;
    record.bytes = bytes;
    record.secret = 5;
    const auto place = MutableBytes(file).subspan(journal::ring_begin + at % journal::page);
    record.crc = journal::crc_of(record, place.subspan(sizeof record, bytes), head.secret);
    std::memcpy(place.data(), &record, sizeof record);
  };
  for (const auto& [second, whole] : {std::pair{968U, true}, std::pair{969U, false}}) {
    put(1024, 3000);
    put(4096, second);  // from the ring's beginning; 1024 bytes are left of it
    testing::SimulatedFiles files;
    ASSERT_TRUE(files.make_directories("/logs"));
    ASSERT_TRUE(write_file(files, "/logs/journal", file));
    const auto replayed = replay_journal(files, "/logs/journal", [](const kafka::PartitionId&) { return ReplayTo{}; });
    ASSERT_TRUE(replayed);
    EXPECT_EQ(replayed->gone, whole ? 3000 + second : 3000U);
  }
}

TEST(FoundOnDisk, ADamagedSnapshotIsRebuiltFromTheLogAfterACleanStopToo) {
  testing::LogWorld world;
  world.start();
  ASSERT_TRUE(world.append(*world.create("t"), make_batch({.producer_id = kafka::ProducerId(7),
                                                           .producer_epoch = kafka::ProducerEpoch(0),
                                                           .base_sequence = 0,
                                                           .transactional = true})));
  world.directory->close(7, [](const ResultOf<void, kafka::Error>& done) { ASSERT_TRUE(done); });
  world.settle();
  world.directory.reset();
  int damaged = 0;
  for (const auto& entry : *world.disk.list("/logs/t-0")) {
    if (!entry.name.ends_with(snapshot_suffix)) continue;
    const std::byte wrong[] = {std::byte{0x5a}};
    world.disk.damage("/logs/t-0/" + entry.name, entry.bytes - 1, wrong);
    ++damaged;
  }
  ASSERT_EQ(damaged, 1);
  world.start();
  EXPECT_EQ(world.find("t")->last_stable_offset(), Offset(0)) << "the transaction is still open";
}

}  // namespace
}  // namespace ciuic::broker
