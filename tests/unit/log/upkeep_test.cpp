// Retention, DeleteRecords, truncation, time search, eviction, faults.
#include <gtest/gtest.h>

#include "broker/log/checkpoints.h"
#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using kafka::ErrorCode;
using testing::BatchOf;
using testing::LogWorld;
using testing::make_batch;

constexpr std::int64_t t0 = 1'700'000'000'000;

class Upkeep : public ::testing::Test {
 protected:
  void SetUp() override { world.start(); }
  void fill(Partition& partition, int batches, std::int64_t from = t0) {
    for (int i = 0; i < batches; ++i)
      ASSERT_TRUE(world.append(partition, make_batch({.records = 2, .timestamp = from + 10 * i, .value_bytes = 300})));
  }
  LogConfig rolling() {
    LogConfig config;
    config.segment_bytes = 3000;
    return config;
  }
  void maintain(Partition& partition) {
    partition.maintain();
    world.settle();
  }
  LogWorld world{testing::seed_from_env(7)};
};

TEST_F(Upkeep, RetentionBySizeDeletesWholeSegmentsAndOffsetsStay) {
  auto config = rolling();
  config.retention_bytes = 9000;
  const auto partition = world.create("t", 0, config);
  fill(*partition, 40);
  maintain(*partition);
  EXPECT_GT(partition->log_start_offset(), kafka::Offset(0));
  EXPECT_LT(partition->bytes_on_disk(), 12000U);
  EXPECT_GE(partition->bytes_on_disk(), 9000U);
  EXPECT_EQ(partition->read({.offset = kafka::Offset(0)}).error().code, ErrorCode::offset_out_of_range);
  EXPECT_EQ(world.offsets(*partition, partition->log_start_offset()).front(), partition->log_start_offset().value);
  const auto start = partition->log_start_offset();
  world.advance(std::chrono::seconds(61));
  for (const auto& entry : *world.disk.list("/logs/t-0")) EXPECT_FALSE(entry.name.ends_with(".deleted")) << entry.name;
  world.crash();
  EXPECT_EQ(world.find("t")->log_start_offset(), start);
}

/// Readers of old data on disk, time searches and retention at once, and the process dies anywhere in between: nothing
/// that was acknowledged and not deleted is missing afterwards, and no file of a deleted segment comes back.
TEST(UpkeepRandom, DeletingUnderReadersLosesNothingOverAKill) {
  const auto first = testing::seed_from_env(1);
  const auto last = std::getenv("CIUIC_SEED") != nullptr ? first : first + 299;
  for (auto seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("CIUIC_SEED=" + std::to_string(seed));
    LogWorld world(seed);
    world.config.segment_bytes = 3000;
    world.config.retention_bytes = 9000;
    world.start();
    ASSERT_TRUE(world.create("t", 0, world.config));
    for (int i = 0; i < 40; ++i) {
      ASSERT_TRUE(
          world.append(*world.find("t"), make_batch({.records = 2, .timestamp = t0 + 10 * i, .value_bytes = 300})));
    }
    world.restart();  // nothing is in memory now
    const auto partition = world.find("t");
    for (int act = 0; act < 12; ++act) {
      const auto offset = kafka::Offset(static_cast<std::int64_t>(world.random() % 80));
      switch (world.random() % 4) {
        case 0:
          partition->maintain();
          break;
        case 1:
          partition->offset_for_time(t0 + 10 * (offset.value / 2), Isolation::read_uncommitted, [](const auto&) {});
          break;
        case 2:
          partition->delete_records(std::min(offset, kafka::Offset(40)), [](const auto&) {});
          break;
        default:
          partition->bring_in(offset, 4096, MemoryFor::fetch, [](const auto&) {});
          break;
      }
      for (auto steps = world.random() % 6; steps > 0; --steps) world.step();
      if (world.random() % 4 == 0) world.clock.advance(std::chrono::seconds(61));
    }
    ASSERT_TRUE(world.offline_reasons.empty()) << world.offline_reasons.front();
    world.crash();
    const auto after = world.find("t");
    ASSERT_TRUE(after);
    EXPECT_EQ(after->log_end_offset(), kafka::Offset(80));
    const auto seen = world.offsets(*after, after->log_start_offset());
    ASSERT_EQ(static_cast<std::int64_t>(seen.size()), 80 - after->log_start_offset().value);
    for (const auto& entry : *world.disk.list("/logs/t-0")) {
      if (entry.name.ends_with(".log")) {
        EXPECT_GT(entry.bytes, 0U) << entry.name;
      }
    }
  }
}

TEST_F(Upkeep, RetentionByTimeMayEmptyTheLog) {
  auto config = rolling();
  config.retention_ms = 60'000;
  const auto partition = world.create("t", 0, config);
  fill(*partition, 40);
  maintain(*partition);
  EXPECT_EQ(partition->log_start_offset(), kafka::Offset(0));
  world.clock.advance(std::chrono::minutes(5));
  maintain(*partition);
  EXPECT_EQ(partition->log_start_offset(), kafka::Offset(80));
  EXPECT_EQ(partition->bytes_on_disk(), 0U);
  ASSERT_EQ(world.append(*partition, make_batch({}))->base_offset, kafka::Offset(80));
}

TEST_F(Upkeep, RetentionByTimeWorksOnSegmentsFoundAtStart) {
  auto config = rolling();
  config.retention_ms = 60'000;
  fill(*world.create("t", 0, config), 40);
  world.restart();
  world.clock.advance(std::chrono::minutes(5));
  maintain(*world.find("t"));
  EXPECT_EQ(world.find("t")->log_start_offset(), kafka::Offset(80));
}

TEST_F(Upkeep, DeleteRecordsMovesTheStart) {
  const auto partition = world.create("t", 0, rolling());
  fill(*partition, 40);
  const auto ask = [&](std::int64_t before) {
    std::optional<ResultOf<kafka::Offset, kafka::Error>> answer;
    partition->delete_records(kafka::Offset(before), [&](const auto& done) { answer = done; });
    world.settle();
    return *answer;
  };
  EXPECT_EQ(*ask(31), kafka::Offset(31));
  EXPECT_EQ(*ask(5), kafka::Offset(31));
  EXPECT_EQ(ask(81).error().code, ErrorCode::offset_out_of_range);
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(31)).front(), 31);
  EXPECT_FALSE(partition->read({.offset = kafka::Offset(30)}));
  EXPECT_EQ(*ask(-1), kafka::Offset(80));
  world.restart();
  EXPECT_EQ(world.find("t")->log_start_offset(), kafka::Offset(80));
}

TEST_F(Upkeep, ACutInsideABatchLeavesNoRecoveryPointAboveTheLogEnd) {
  const auto partition = world.create("t");
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(world.append(*partition, make_batch({.records = 10})));
  partition->flush([](const auto&) {});
  world.settle();
  partition->truncate(kafka::Offset(35), [](const auto&) {});
  world.settle();
  ASSERT_EQ(partition->log_end_offset(), kafka::Offset(30));
  const auto points = read_checkpoint(world.disk, "/logs/" + std::string(recovery_point_file));
  ASSERT_TRUE(points);
  EXPECT_LE(points->at(partition->name()), kafka::Offset(30));
}

TEST_F(Upkeep, TruncationCutsWholeBatchesAndTheLogGoesOn) {
  const auto partition = world.create("t", 0, rolling());
  fill(*partition, 40);
  std::optional<kafka::Offset> end;
  partition->truncate(kafka::Offset(33), [&](const auto& done) { end = *done; });
  world.settle();
  EXPECT_EQ(end, kafka::Offset(32));
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(0)).size(), 32U);
  EXPECT_EQ(world.append(*partition, make_batch({}))->base_offset, kafka::Offset(32));
  world.restart();
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(33));
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(), 33U);
}

TEST_F(Upkeep, TimesAreFound) {
  const auto partition = world.create("t", 0, rolling());
  fill(*partition, 40);
  for (int round = 0; round < 2; ++round) {
    auto& t = *world.find("t");
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(world.find_time(t, t0 + 10 * i)->offset, kafka::Offset(2 * i)) << i;
      EXPECT_EQ(world.find_time(t, t0 + 10 * i + 1)->offset, kafka::Offset(2 * i + 1)) << i;
      if (i > 0) {
        EXPECT_EQ(world.find_time(t, t0 + 10 * i - 5)->offset, kafka::Offset(2 * i));
      }
    }
    EXPECT_EQ(world.find_time(t, 0)->offset, kafka::Offset(0));
    EXPECT_EQ(world.find_time(t, t0 + 1000)->offset, kafka::Offset(-1));
    EXPECT_EQ(world.find_time(t, t0 + 1000)->timestamp, -1);
    EXPECT_EQ(world.find_time(t, -1)->offset, kafka::Offset(80));
    EXPECT_EQ(world.find_time(t, -2)->offset, kafka::Offset(0));
    EXPECT_EQ(world.find_time(t, -3)->offset, kafka::Offset(79));
    EXPECT_EQ(world.find_time(t, -3)->timestamp, t0 + 391);
    EXPECT_EQ(world.find_time(t, -4)->offset, kafka::Offset(0));
    EXPECT_EQ(world.find_time(t, -5)->offset, kafka::Offset(-1));
    world.restart();
  }
}

TEST_F(Upkeep, ColdChunksAreEvictedUnderPressureAndReadAgain) {
  auto arena = LogWorld::small_arena();
  arena.budget_bytes = 256U << 10;
  arena.chunk_bytes_max = 8192;
  LogWorld tight(3, arena);
  tight.start();
  const auto partition = tight.create("t");
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(tight.append(*partition, make_batch({.value_bytes = 500})));
  EXPECT_LE(tight.arena->used_bytes(), arena.budget_bytes);
  EXPECT_GT(tight.arena->evictions(), 0U);
  EXPECT_EQ(partition->resident(kafka::Offset(0)), nullptr);
  EXPECT_EQ(tight.offsets(*partition, kafka::Offset(0)).size(), 2000U);
  EXPECT_LE(tight.arena->used_bytes(), arena.budget_bytes);
}

TEST_F(Upkeep, ADiskThatIsFullTakesTheDirectoryOfflineAndNothingAcknowledgedIsLost) {
  const auto partition = world.create("t", 0, rolling());
  world.create("other");
  fill(*partition, 10);
  world.disk.set_capacity(world.disk.content("/logs/t-0/00000000000000000000.log").size() + 7000);
  std::int64_t acknowledged = 20;
  for (int i = 0; i < 40; ++i) {
    const auto result = world.append(*partition, make_batch({.records = 2, .value_bytes = 300}));
    if (result) {
      acknowledged = result->last_offset.value + 1;
    } else {
      EXPECT_EQ(result.error().error.code, ErrorCode::kafka_storage_error);
    }
  }
  EXPECT_TRUE(world.directory->offline());
  ASSERT_EQ(world.offline_reasons.size(), 1U);
  EXPECT_NE(world.offline_reasons[0].find("No space left on device"), std::string::npos);
  EXPECT_EQ(partition->read({.offset = kafka::Offset(0)}).error().code, ErrorCode::kafka_storage_error);
  EXPECT_EQ(world.append(*world.find("other"), make_batch({})).error().error.code, ErrorCode::kafka_storage_error);
  world.disk.heal();
  world.crash();
  EXPECT_GE(world.find("t")->log_end_offset(), kafka::Offset(acknowledged));
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(),
            static_cast<std::size_t>(world.find("t")->log_end_offset().value));
}

TEST_F(Upkeep, AFailingWriteIsNeverAcknowledged) {
  const auto partition = world.create("t");
  fill(*partition, 3);
  world.disk.fail_write(0);
  EXPECT_EQ(world.append(*partition, make_batch({})).error().error.code, ErrorCode::kafka_storage_error);
  EXPECT_TRUE(world.directory->offline());
  world.disk.heal();
  world.crash();
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(), 6U);
}

TEST_F(Upkeep, UnwrittenBytesAreBounded) {
  const auto partition = world.create("t");
  ErrorCode last = ErrorCode::none;
  const auto batch = make_batch({.value_bytes = 1000000});
  for (int i = 0; i < 80; ++i)
    partition->append(batch, {}, [&](const auto& done) {
      if (!done) last = done.error().error.code;
    });
  EXPECT_LT(partition->unwritten_bytes(), 66U << 20);
  world.settle();
  EXPECT_EQ(last, ErrorCode::not_enough_replicas);
  EXPECT_EQ(partition->unwritten_bytes(), 0U);
  EXPECT_EQ(partition->log_end_offset(), partition->high_watermark());
}

}  // namespace
}  // namespace ciuic::broker
