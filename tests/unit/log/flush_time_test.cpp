// flush.ms: when what was written is on the device. Seen at the seam to the disk: by syncs, and by what the machine's
// end leaves. Nobody calls `maintain` here.
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using testing::LogWorld;
using testing::make_batch;

LogConfig flushing_after(std::int64_t flush_ms) {
  LogConfig config;
  config.flush_ms = flush_ms;
  return config;
}

/// With and without a journal: what only the journal has is to be synced too.
class FlushTime : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override {
    world.limits.journal_bytes = GetParam();
    world.start();
  }
  void append(Partition& partition) { ASSERT_TRUE(world.append(partition, make_batch({}))); }
  /// Syncs of files while `by` passes.
  std::uint64_t syncs_in(Milliseconds by) {
    const auto before = world.disk.syncs();
    world.advance(by);
    return world.disk.syncs() - before;
  }
  LogWorld world{testing::seed_from_env(3)};
};
INSTANTIATE_TEST_SUITE_P(Journal, FlushTime, ::testing::Values(0, 64U << 10),
                         [](const auto& one) { return one.param == 0 ? "None" : "Used"; });

TEST_P(FlushTime, ARecordIsOnTheDeviceAfterItsTopicsTime) {
  const auto partition = world.create("t", 0, flushing_after(100));
  append(*partition);
  EXPECT_EQ(syncs_in(Milliseconds(99)), 0U);
  EXPECT_EQ(partition->recovery_point(), kafka::Offset(0));
  EXPECT_GT(syncs_in(Milliseconds(1)), 0U);
  EXPECT_EQ(partition->recovery_point(), kafka::Offset(1));
  world.crash(true);
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(1));
}

TEST_P(FlushTime, ItCountsFromTheFirstRecordThatIsNotOnTheDevice) {
  const auto partition = world.create("t", 0, flushing_after(100));
  world.advance(std::chrono::hours(1));  // idle: the last flush is long ago
  append(*partition);
  EXPECT_EQ(syncs_in(Milliseconds(60)), 0U);
  append(*partition);  // goes with the first
  EXPECT_GT(syncs_in(Milliseconds(40)), 0U);
  EXPECT_EQ(partition->recovery_point(), kafka::Offset(2));
  EXPECT_EQ(syncs_in(std::chrono::hours(1)), 0U) << "nothing was written since";
  append(*partition);
  EXPECT_GT(syncs_in(Milliseconds(100)), 0U);
}

TEST_P(FlushTime, AChangedTimeHoldsFromNowOn) {
  constexpr auto never = std::numeric_limits<std::int64_t>::max();
  const auto partition = world.create("t", 0, flushing_after(never));
  append(*partition);
  EXPECT_EQ(syncs_in(std::chrono::hours(1)), 0U);

  partition->set_config(flushing_after(50));  // for what was written before, too
  EXPECT_GT(syncs_in(Milliseconds(50)), 0U);
  EXPECT_EQ(partition->recovery_point(), kafka::Offset(1));

  partition->set_config(flushing_after(60'000));
  append(*partition);
  partition->set_config(flushing_after(200));  // sooner than the timer that runs
  EXPECT_EQ(syncs_in(Milliseconds(199)), 0U);
  EXPECT_GT(syncs_in(Milliseconds(1)), 0U);
  EXPECT_EQ(syncs_in(Milliseconds(60'000)), 0U) << "the timer of before does nothing";

  append(*partition);
  partition->set_config(flushing_after(never));
  EXPECT_EQ(syncs_in(std::chrono::hours(1)), 0U);
}

TEST_P(FlushTime, OnlyTopicsThatAskAreFlushed) {
  const auto asks = world.create("asks", 0, flushing_after(100));
  const auto does_not = world.create("does-not", 0);
  append(*asks);
  append(*does_not);
  world.advance(std::chrono::hours(1));
  EXPECT_EQ(asks->recovery_point(), kafka::Offset(1));
  EXPECT_EQ(does_not->recovery_point(), kafka::Offset(0));
}

TEST_P(FlushTime, ZeroFlushesAfterEveryWriteAndEndlessIsNoOverflow) {
  const auto zero = world.create("zero", 0, flushing_after(0));
  const auto endless = world.create("endless", 0, flushing_after(std::numeric_limits<std::int64_t>::max() - 1));
  append(*zero);
  append(*endless);
  world.advance(Milliseconds(1));
  EXPECT_EQ(zero->recovery_point(), kafka::Offset(1));
  world.advance(std::chrono::hours(24));
  EXPECT_EQ(endless->recovery_point(), kafka::Offset(0));
}

TEST_P(FlushTime, WhatAStartFindsUnsyncedIsFlushedToo) {
  const auto partition = world.create("t", 0, flushing_after(100));
  append(*partition);
  world.crash();
  ASSERT_EQ(world.find("t")->log_end_offset(), kafka::Offset(1));
  world.advance(Milliseconds(100));
  EXPECT_EQ(world.find("t")->recovery_point(), kafka::Offset(1));
}

TEST(FlushTimeCost, ASlowDiskHasOneFlushUnderWay) {
  LogWorld world(1);
  world.start();
  const auto partition = world.create("t", 0, flushing_after(10));
  ASSERT_TRUE(world.append(*partition, make_batch({})));
  const auto before = world.disk.syncs();
  for (int i = 0; i < 100; ++i) {  // the disk does nothing meanwhile
    world.clock.advance(Milliseconds(10));
    world.executor.run_ready();
  }
  world.settle();
  EXPECT_LE(world.disk.syncs() - before, 3U) << "the log, its epochs, its topic id: one flush";
}

TEST(FlushTimeCost, WithoutATimeNoTimerRuns) {
  LogWorld world(1);
  world.start();
  const auto partition = world.create("t", 0);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(world.append(*partition, make_batch({})));
  EXPECT_EQ(world.executor.timers(), 0U);
}

/// Rolls, truncations and compactions while it flushes: the recovery point is never above what the machine's end
/// leaves.
TEST(FlushTimeRandom, TheRecoveryPointStandsWhateverTheLogDoesMeanwhile) {
  const auto first = testing::seed_from_env(1);
  const auto last = std::getenv("CIUIC_SEED") != nullptr ? first : first + 299;
  for (auto seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("CIUIC_SEED=" + std::to_string(seed));
    LogWorld world(seed);
    world.limits.journal_bytes = seed % 2 == 0 ? 0 : 64U << 10;
    world.start();
    auto config = flushing_after(static_cast<std::int64_t>(seed % 40));
    config.segment_bytes = 3000;
    config.cleanup_compact = seed % 3 == 0;
    const auto partition = world.create("t", 0, config);
    for (int act = 0; act < 60; ++act) {
      switch (world.random() % 8) {
        case 0:
          partition->truncate(kafka::Offset(std::max<std::int64_t>(0, partition->log_end_offset().value - 3)),
                              [](const auto&) {});
          break;
        case 1:
          partition->clean([](const auto&) {});
          break;
        case 2:
          world.clock.advance(Milliseconds(world.random() % 60));
          break;
        case 3:
          world.directory->write_checkpoints([](const auto&) {});
          break;
        default:
          partition->append(make_batch({.records = 2, .value_bytes = world.random() % 600}), {}, [](const auto&) {});
          break;
      }
      for (auto steps = world.random() % 8; steps > 0; --steps) world.step();
    }
    ASSERT_TRUE(world.offline_reasons.empty()) << world.offline_reasons.front();
    const auto durable = partition->recovery_point();
    world.crash(true);
    ASSERT_TRUE(world.find("t"));
    EXPECT_GE(world.find("t")->log_end_offset(), durable);
    world.advance(Milliseconds(100));
    EXPECT_EQ(world.find("t")->recovery_point(), world.find("t")->log_end_offset());
  }
}

}  // namespace
}  // namespace ciuic::broker
