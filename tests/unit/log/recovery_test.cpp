// Crashes and clean stops: what is acknowledged stays, what is torn goes, what is rebuilt is the same.
#include <gtest/gtest.h>

#include "broker/log/checkpoints.h"
#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using testing::BatchOf;
using testing::LogWorld;
using testing::make_batch;

constexpr std::string_view first_log = "/logs/t-0/00000000000000000000.log";

class Recovery : public ::testing::Test {
 protected:
  void SetUp() override { world.start(); }
  void fill(Partition& partition, int batches) {
    for (int i = 0; i < batches; ++i)
      ASSERT_TRUE(world.append(
          partition, make_batch({.records = 2, .timestamp = 1'700'000'000'000 + 10 * i, .value_bytes = 300})));
  }
  LogWorld world{testing::seed_from_env(5)};
};

TEST_F(Recovery, WhatWasAcknowledgedSurvivesTheProcess) {
  fill(*world.create("t"), 50);
  world.crash();
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(100));
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(), 100U);
}

TEST_F(Recovery, ATornTailIsCutAndNeverServed) {
  fill(*world.create("t"), 10);
  const auto whole = world.disk.content(std::string(first_log)).size();
  const auto torn = make_batch({.records = 4});
  world.disk.damage(std::string(first_log), whole, Bytes(torn).first(torn.size() - 3));
  world.crash();
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(20));
  EXPECT_EQ(world.disk.content(std::string(first_log)).size(), whole);
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(), 20U);
}

TEST_F(Recovery, ADamagedBatchEndsTheLogThere) {
  LogConfig config;
  config.segment_bytes = 3000;
  fill(*world.create("t", 0, config), 30);
  ASSERT_GT(world.find("t")->segment_count(), 3U);
  const std::byte wrong[] = {std::byte{0x5a}, std::byte{0x5a}};
  world.disk.damage(std::string(first_log), 500, wrong);
  ASSERT_TRUE(world.disk.remove("/logs/recovery-point-offset-checkpoint"));
  world.crash();
  EXPECT_EQ(world.find("t")->segment_count(), 1U);
  const auto end = world.find("t")->log_end_offset();
  EXPECT_LT(end, kafka::Offset(4));
  EXPECT_EQ(world.append(*world.find("t"), make_batch({}))->base_offset, end);
}

TEST_F(Recovery, APartitionIsRefusedOnceItsDirectoryCloses) {
  world.create("t");
  bool closed = false;
  world.directory->close(7, [&closed](const ResultOf<void, kafka::Error>& done) { closed = done.has_value(); });
  const auto late =
      world.directory->create({"late", kafka::PartitionIndex(0)}, {kafka::Uuid::random(), {}, &world.executor});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, kafka::ErrorCode::kafka_storage_error);
  EXPECT_NE(late.error().text.find("being closed"), std::string::npos);
  EXPECT_EQ(world.find("late"), nullptr);
  world.settle();
  EXPECT_TRUE(closed);
}

TEST_F(Recovery, ACleanStartTrustsAndACrashRebuildsTheSameIndexes) {
  fill(*world.create("t"), 200);
  world.restart();
  const auto offsets = world.disk.content("/logs/t-0/00000000000000000000.index");
  const auto times = world.disk.content("/logs/t-0/00000000000000000000.timeindex");
  EXPECT_GT(offsets.size(), 8U);
  EXPECT_EQ(offsets.size() % 8, 0U);
  EXPECT_EQ(times.size() % 12, 0U);
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(400));
  const std::byte wrong[16] = {};
  world.disk.damage("/logs/t-0/00000000000000000000.index", 0, wrong);
  world.crash();
  EXPECT_EQ(world.disk.content("/logs/t-0/00000000000000000000.index"), offsets);
  world.restart();
  EXPECT_EQ(world.disk.content("/logs/t-0/00000000000000000000.timeindex"), times);
}

TEST_F(Recovery, WhatWasFlushedSurvivesTheMachine) {
  LogConfig config;
  config.flush_messages = 1;
  config.segment_bytes = 4000;
  fill(*world.create("t", 0, config), 40);
  EXPECT_EQ(world.find("t")->recovery_point(), kafka::Offset(80));
  world.crash(true);
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(80));
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(), 80U);
  EXPECT_TRUE(world.directory->found().front().topic_id.has_value());
}

TEST_F(Recovery, AnUnflushedLogLosesOnlyItsEnd) {
  fill(*world.create("t"), 40);
  std::optional<kafka::Offset> flushed;
  world.find("t")->flush([&](const auto& done) { flushed = *done; });
  world.settle();
  ASSERT_EQ(flushed, kafka::Offset(80));
  fill(*world.find("t"), 40);
  world.crash(true);
  const auto end = world.find("t")->log_end_offset();
  EXPECT_GE(end, kafka::Offset(80));
  EXPECT_LE(end, kafka::Offset(160));
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(), static_cast<std::size_t>(end.value));
}

TEST_F(Recovery, LeaderEpochsAreFoundAgain) {
  const auto partition = world.create("t");
  fill(*partition, 3);
  partition->become_leader(kafka::LeaderEpoch(4));
  ASSERT_TRUE(world.append(*partition, make_batch({}), {AppendOrigin::client, kafka::LeaderEpoch(4)}));
  partition->become_leader(kafka::LeaderEpoch(9));
  ASSERT_TRUE(world.append(*partition, make_batch({}), {AppendOrigin::client, kafka::LeaderEpoch(9)}));
  for (const bool crash : {false, true}) {
    crash ? world.crash() : world.restart();
    const auto again = world.find("t");
    EXPECT_EQ(again->latest_leader_epoch(), kafka::LeaderEpoch(9));
    EXPECT_EQ(again->end_offset_for_epoch(kafka::LeaderEpoch(4)).end_offset, kafka::Offset(7));
    EXPECT_EQ(again->end_offset_for_epoch(kafka::LeaderEpoch(6)).leader_epoch, kafka::LeaderEpoch(4));
    EXPECT_EQ(again->end_offset_for_epoch(kafka::LeaderEpoch(9)).end_offset, kafka::Offset(8));
    EXPECT_EQ(again->end_offset_for_epoch(kafka::LeaderEpoch(10)).end_offset, kafka::Offset(-1));
  }
  EXPECT_EQ(as_text(world.disk.content("/logs/t-0/leader-epoch-checkpoint")), "0\n3\n0 0\n4 6\n9 7\n");
}

/// A start begins an epoch in every partition, and most of them get no record before the next.
TEST_F(Recovery, AnEpochWithoutABatchIsNotWritten) {
  const std::string file = "/logs/t-0/leader-epoch-checkpoint";
  const auto batch_of = [&](int epoch) {
    ASSERT_TRUE(world.append(*world.find("t"), make_batch({}), {AppendOrigin::client, kafka::LeaderEpoch(epoch)}));
  };
  world.create("t")->become_leader(kafka::LeaderEpoch(3));
  batch_of(3);
  const auto first = std::string(as_text(world.disk.content(file)));
  EXPECT_EQ(first, "0\n1\n3 0\n");
  for (int epoch = 4; epoch < 8; ++epoch) {
    world.find("t")->become_leader(kafka::LeaderEpoch(epoch));
    EXPECT_EQ(world.find("t")->latest_leader_epoch(), kafka::LeaderEpoch(epoch));
    EXPECT_EQ(world.find("t")->end_offset_for_epoch(kafka::LeaderEpoch(epoch)).end_offset, kafka::Offset(1));
    epoch % 2 == 0 ? world.crash() : world.restart();
    EXPECT_EQ(as_text(world.disk.content(file)), first);
  }
  world.find("t")->become_leader(kafka::LeaderEpoch(8));
  batch_of(8);
  EXPECT_EQ(as_text(world.disk.content(file)), "0\n2\n3 0\n8 1\n");
  batch_of(8);
  world.restart();
  EXPECT_EQ(world.find("t")->end_offset_for_epoch(kafka::LeaderEpoch(3)).end_offset, kafka::Offset(1));
}

TEST_F(Recovery, CheckpointsAndMarkersAreApaches) {
  const auto id = world.create("my-topic", 3)->topic_id();
  fill(*world.find("my-topic", 3), 2);
  EXPECT_EQ(as_text(world.disk.content("/logs/my-topic-3/partition.metadata")),
            "version: 0\ntopic_id: " + id.to_string());
  world.find("my-topic", 3)->delete_records(kafka::Offset(2), [](const auto&) {});
  bool closed = false;
  world.directory->close(42, [&closed](const auto& done) { closed = done.has_value(); });
  world.settle();
  ASSERT_TRUE(closed);
  EXPECT_EQ(as_text(world.disk.content("/logs/.kafka_cleanshutdown")), R"({"version":0,"brokerEpoch":42})");
  EXPECT_EQ(as_text(world.disk.content("/logs/recovery-point-offset-checkpoint")), "0\n1\nmy-topic 3 4\n");
  EXPECT_EQ(as_text(world.disk.content("/logs/log-start-offset-checkpoint")), "0\n1\nmy-topic 3 2\n");
  EXPECT_EQ(as_text(world.disk.content("/logs/replication-offset-checkpoint")), "0\n1\nmy-topic 3 4\n");
  world.directory.reset();
  world.start();
  EXPECT_TRUE(world.directory->was_clean());
  EXPECT_EQ(world.find("my-topic", 3)->log_start_offset(), kafka::Offset(2));
  EXPECT_EQ(world.find("my-topic", 3)->topic_id(), id);
  EXPECT_FALSE(*world.disk.exists("/logs/.kafka_cleanshutdown"));
}

TEST_F(Recovery, ADeletedPartitionsNameIsFreeAndItsFilesGo) {
  fill(*world.create("t"), 2);
  bool done = false;
  world.directory->remove({"t", kafka::PartitionIndex(0)}, std::chrono::seconds(60),
                          [&done](const auto& ok) { done = ok.has_value(); });
  world.settle();
  EXPECT_TRUE(done);
  EXPECT_EQ(world.find("t"), nullptr);
  fill(*world.create("t"), 1);
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(2));
  EXPECT_EQ(world.disk.list("/logs")->size(), 2U);
  world.advance(std::chrono::seconds(61));
  EXPECT_EQ(world.disk.list("/logs")->size(), 1U);
}

}  // namespace
}  // namespace ciuic::broker
