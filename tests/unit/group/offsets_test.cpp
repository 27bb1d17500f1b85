#include <gtest/gtest.h>

#include "broker/group/group_records.h"
#include "tests/unit/group/support/group_world.h"

namespace ciuic::broker::testing {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

ErrorCode done(GroupWorld& world, const Later<kafka::OffsetCommitResponse>& commit) {
  world.logs.settle();
  return error_of(*commit);
}

TEST(Commit, WithoutAGroupIsTakenWhileNobodyIsInIt) {
  GroupWorld world;
  EXPECT_EQ(world.committed(), -1);
  EXPECT_EQ(done(world, world.commit(5)), ErrorCode::none);
  EXPECT_EQ(world.committed(), 5);
  EXPECT_EQ(world.describe().group_state, "Empty");
  EXPECT_EQ(world.describe().protocol_type, "");
  const auto members = world.stable(1);
  EXPECT_EQ(done(world, world.commit(6)), ErrorCode::unknown_member_id);
  EXPECT_EQ(world.leave(members[0].id), ErrorCode::none);
  EXPECT_EQ(done(world, world.commit(7)), ErrorCode::none);
  EXPECT_EQ(world.committed(), 7);
}

TEST(Commit, AGenerationNeedsItsGroupMemberAndNumber) {
  GroupWorld world;
  EXPECT_EQ(done(world, world.commit(1, "m", 1, "t", 0, 8)), ErrorCode::illegal_generation);
  EXPECT_EQ(done(world, world.commit(1, "m", 1, "t", 0, 9)), ErrorCode::group_id_not_found);
  const auto members = world.stable(1);
  EXPECT_EQ(done(world, world.commit(1, "m", 1)), ErrorCode::unknown_member_id);
  EXPECT_EQ(done(world, world.commit(1, members[0].id, 2)), ErrorCode::illegal_generation);
  EXPECT_EQ(done(world, world.commit(1, members[0].id, 1)), ErrorCode::none);
  const auto second = world.join_new();
  EXPECT_EQ(done(world, world.commit(2, members[0].id, 1)), ErrorCode::none);  // its last word before it joins again
  EXPECT_EQ(world.committed(), 2);
}

TEST(Commit, BeforeTheAssignmentIsToldToWait) {
  GroupWorld world;
  const auto member = world.join_new();
  world.pass(seconds(7));
  EXPECT_EQ(done(world, world.commit(1, member->member_id, 1)), ErrorCode::rebalance_in_progress);
}

TEST(Commit, KeepsTheSessionAlive) {
  GroupWorld world;
  const auto members = world.stable(1);
  for (int i = 0; i < 10; ++i) {
    world.pass(seconds(6));
    ASSERT_EQ(done(world, world.commit(i, members[0].id, 1)), ErrorCode::none);
  }
}

TEST(Commit, IsAcknowledgedAfterItsAppendAndSeenNoEarlier) {
  GroupWorld world;
  const auto commit = world.commit(5);
  EXPECT_FALSE(commit.answered());
  EXPECT_EQ(world.committed(), -1);
  world.logs.settle();
  EXPECT_TRUE(commit.answered());
  EXPECT_EQ(world.committed(), 5);
  const auto lost = world.commit(6);
  world.crash();
  EXPECT_FALSE(lost.answered());
  EXPECT_EQ(world.committed(), 5);
}

TEST(Commit, TheLastWriteWinsOverARestartToo) {
  GroupWorld world;
  for (int i = 0; i < 20; ++i) (void)world.commit(i);
  world.logs.settle();
  EXPECT_EQ(world.committed(), 19);
  world.crash();
  EXPECT_EQ(world.committed(), 19);
  world.restart();
  EXPECT_EQ(world.committed(), 19);
}

TEST(Commit, LongMetadataIsRefusedAloneAndTheRestIsKept) {
  GroupSettings settings;
  settings.offset_metadata_bytes_max = 3;
  GroupWorld world(settings);
  kafka::OffsetCommitRequest request;
  request.group_id = "g";
  auto& topic = request.topics.emplace_back();
  topic.name = "t";
  topic.partitions.resize(2);
  topic.partitions[0].committed_metadata = "four";
  topic.partitions[1].partition_index = 1;
  topic.partitions[1].committed_metadata = std::nullopt;
  topic.partitions[1].committed_offset = 9;
  Later<kafka::OffsetCommitResponse> answer;
  world.shard->commit({8, "c", "/h"}, request, answer.callback());
  world.logs.settle();
  EXPECT_EQ(answer->topics[0].partitions[0].error_code, ErrorCode::offset_metadata_too_large);
  EXPECT_EQ(answer->topics[0].partitions[1].error_code, ErrorCode::none);
  EXPECT_EQ(world.committed("t", 1), 9);
}

TEST(Commit, ADiskThatFailsIsToldAndNothingIsSeen) {
  GroupWorld world;
  world.logs.disk.fail_write(0);
  EXPECT_EQ(done(world, world.commit(5)), ErrorCode::not_coordinator);
  EXPECT_EQ(world.committed(), -1);
}

TEST(Commit, MoreThanABatchHoldsIsCutIntoSeveral) {
  GroupWorld world;
  kafka::OffsetCommitRequest request;
  request.group_id = "g";
  auto& topic = request.topics.emplace_back();
  topic.name = std::string(200, 't');
  for (int i = 0; i < 8000; ++i) {
    auto& partition = topic.partitions.emplace_back();
    partition.partition_index = i;
    partition.committed_offset = i;
    partition.committed_metadata = std::string(100, 'm');
  }
  Later<kafka::OffsetCommitResponse> answer;
  world.shard->commit({8, "c", "/h"}, request, answer.callback());
  world.logs.settle();
  EXPECT_EQ(error_of(*answer), ErrorCode::none);
  EXPECT_EQ(answer.answers->size(), 1U);
  world.crash();
  EXPECT_EQ(world.committed(topic.name, 7999), 7999);
}

TEST(Fetch, NullTopicsAreAllCommittedOnes) {
  GroupWorld world;
  (void)world.commit(1, "", -1, "a", 0);
  (void)world.commit(2, "", -1, "a", 7);
  (void)world.commit(3, "", -1, "b", 0);
  world.logs.settle();
  GroupShard::FetchGroup request;
  request.group_id = "g";
  request.topics.reset();
  const auto all = world.shard->fetch(request, false);
  ASSERT_EQ(all.topics.size(), 2U);
  ASSERT_EQ(all.topics[0].partitions.size(), 2U);
  EXPECT_EQ(all.topics[0].partitions[1].partition_index, 7);
  EXPECT_EQ(all.topics[0].partitions[1].committed_offset, 2);
  EXPECT_EQ(all.topics[0].partitions[1].committed_leader_epoch, 3);
  EXPECT_EQ(all.topics[0].partitions[1].metadata, "m");
  request.group_id = "unknown";
  EXPECT_TRUE(world.shard->fetch(request, false).topics.empty());
  EXPECT_EQ(world.shard->fetch(request, false).error_code, ErrorCode::none);
}

TEST(Survival, MembersGenerationAndAssignmentsOutliveAKill) {
  GroupWorld world;
  const auto members = world.stable(3);
  EXPECT_EQ(done(world, world.commit(11, members[1].id, 1)), ErrorCode::none);
  const auto before = world.describe();
  world.crash();
  const auto after = world.describe();
  EXPECT_EQ(after.group_state, "Stable");
  ASSERT_EQ(after.members.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(after.members[i], before.members[i]);
  for (const auto& member : members) EXPECT_EQ(world.heartbeat(member.id, 1), ErrorCode::none);
  EXPECT_EQ(as_text(world.sync(members[2].id, 1)->assignment), "a2");
  EXPECT_EQ(done(world, world.commit(12, members[1].id, 1)), ErrorCode::none);
  EXPECT_EQ(world.committed(), 12);
  world.pass(seconds(11));  // nobody speaks any more: their sessions run after a restart too
  EXPECT_EQ(world.heartbeat(members[0].id, 1), ErrorCode::unknown_member_id);
}

TEST(Survival, UntilTheLogIsReadNothingIsAnswered) {
  GroupWorld world;
  (void)world.commit(5);
  world.logs.settle();
  world.load();
  EXPECT_EQ(world.shard->unavailable(), ErrorCode::coordinator_load_in_progress);
  world.logs.settle();
  EXPECT_EQ(world.shard->unavailable(), ErrorCode::none);
  EXPECT_EQ(world.committed(), 5);
}

TEST(Survival, TransactionalOffsetsCountWhenTheirTransactionIsCommitted) {
  GroupWorld world;
  (void)world.commit(5);
  world.logs.settle();
  const auto write = [&](kafka::ProducerId producer, std::int64_t to) {
    CommittedOffset offset;
    offset.offset = kafka::Offset(to);
    const auto record = offset_record("g", {"t", kafka::PartitionIndex(0)}, offset);
    kafka::RecordBatchBuilder builder;
    kafka::RecordToWrite line;
    line.timestamp = world.logs.clock.wall_ms();
    line.key = Bytes(record.key);
    line.value = Bytes(*record.value);
    builder.add(line);
    kafka::BatchHeader header;
    header.producer_id = producer;
    header.producer_epoch = kafka::ProducerEpoch(0);
    header.base_sequence = 0;
    header.transactional = true;
    Buffer batch;
    ASSERT_TRUE(builder.finish(header, batch).has_value());
    ASSERT_TRUE(
        world.logs.append(*world.partition, batch, {AppendOrigin::coordinator, kafka::LeaderEpoch(0)}).has_value());
  };
  const auto end = [&](kafka::ProducerId producer, bool commit) {
    ASSERT_TRUE(world.logs
                    .append(*world.partition, make_marker(producer, kafka::ProducerEpoch(0), commit, 0),
                            {AppendOrigin::coordinator, kafka::LeaderEpoch(0)})
                    .has_value());
  };
  write(kafka::ProducerId(1), 100);
  world.load();
  world.logs.settle();
  EXPECT_EQ(world.committed(), 5);
  GroupShard::FetchGroup request;
  request.group_id = "g";
  auto& topic = request.topics.emplace().emplace_back();
  topic.name = "t";
  topic.partition_indexes = {0};
  EXPECT_EQ(world.shard->fetch(request, true).topics[0].partitions[0].error_code, ErrorCode::unstable_offset_commit);
  end(kafka::ProducerId(1), true);
  write(kafka::ProducerId(2), 200);
  end(kafka::ProducerId(2), false);
  world.load();
  world.logs.settle();
  EXPECT_EQ(world.committed(), 100);
  EXPECT_EQ(world.shard->fetch(request, true).topics[0].partitions[0].error_code, ErrorCode::none);
}

TEST(Retention, OffsetsOfASimpleGroupGoAfterTheirTime) {
  GroupSettings settings;
  settings.offsets_retention_ms = Milliseconds(hours(1)).count();
  GroupWorld world(settings);
  (void)world.commit(1, "", -1, "a");
  world.logs.advance(minutes(40));
  (void)world.commit(2, "", -1, "b");
  world.logs.advance(minutes(30));
  world.shard->expire_offsets();
  world.logs.settle();
  EXPECT_EQ(world.committed("a"), -1);
  EXPECT_EQ(world.committed("b"), 2);
  world.logs.advance(minutes(60));
  world.shard->expire_offsets();
  world.logs.settle();
  EXPECT_EQ(world.describe().group_state, "Dead");
  world.crash();
  EXPECT_EQ(world.describe().group_state, "Dead");
}

TEST(Retention, OfAGroupBeginsWhenItIsEmpty) {
  GroupSettings settings;
  settings.offsets_retention_ms = Milliseconds(hours(1)).count();
  GroupWorld world(settings);
  JoinOf how;
  how.session_ms = 1'800'000;
  const auto members = world.stable(1, how);
  (void)world.commit(1, members[0].id, 1, "t");
  (void)world.commit(1, members[0].id, 1, "no longer read");
  world.logs.settle();
  for (int i = 0; i < 8; ++i) {
    world.logs.advance(minutes(10));
    world.heartbeat(members[0].id, 1);
  }
  world.shard->expire_offsets();
  world.logs.settle();
  EXPECT_EQ(world.committed("t"), 1);
  EXPECT_EQ(world.committed("no longer read"), -1);
  world.leave(members[0].id);
  world.logs.settle();
  world.logs.advance(minutes(50));
  world.shard->expire_offsets();
  world.logs.settle();
  EXPECT_EQ(world.committed("t"), 1);
  world.logs.advance(minutes(15));
  world.shard->expire_offsets();
  world.logs.settle();
  EXPECT_EQ(world.committed("t"), -1);
}

ErrorCode remove(GroupWorld& world) {
  Later<ErrorCode> answer;
  world.shard->remove(world.group, answer.callback());
  world.logs.settle();
  return *answer;
}

TEST(Delete, OnlyAnEmptyGroupAndItsOffsetsWithIt) {
  GroupWorld world;
  EXPECT_EQ(remove(world), ErrorCode::group_id_not_found);
  const auto members = world.stable(1);
  (void)world.commit(1, members[0].id, 1);
  world.logs.settle();
  EXPECT_EQ(remove(world), ErrorCode::non_empty_group);
  world.leave(members[0].id);
  EXPECT_EQ(remove(world), ErrorCode::none);
  EXPECT_EQ(world.describe().group_state, "Dead");
  world.crash();
  EXPECT_EQ(world.describe().group_state, "Dead");
  EXPECT_EQ(world.committed(), -1);
}

TEST(Delete, TakesACommitThatIsOnItsWayAlong) {
  GroupWorld world;
  (void)world.commit(1, "", -1, "a");
  world.logs.settle();
  const auto on_its_way = world.commit(2, "", -1, "b");
  EXPECT_EQ(remove(world), ErrorCode::none);
  EXPECT_EQ(error_of(*on_its_way), ErrorCode::none);
  EXPECT_EQ(world.committed("b"), -1);
  world.crash();
  EXPECT_EQ(world.committed("b"), -1);
}

TEST(Delete, WhoJoinsMeanwhileKeepsTheGroup) {
  GroupWorld world;
  (void)world.commit(1);
  world.logs.settle();
  Later<ErrorCode> answer;
  world.shard->remove("g", answer.callback());
  JoinOf how;
  how.version = 3;
  const auto member = world.join(how);
  world.pass(seconds(7));
  EXPECT_EQ(*answer, ErrorCode::none);
  ASSERT_TRUE(member.answered());
  EXPECT_EQ(member->error_code, ErrorCode::none);
  EXPECT_EQ(world.committed(), -1);
}

TEST(OffsetDelete, SparesTopicsThatTheGroupReads) {
  GroupWorld world;
  (void)world.commit(1, "", -1, "t");
  (void)world.commit(2, "", -1, "other");
  world.logs.settle();
  world.stable(1);
  kafka::OffsetDeleteRequest request;
  request.group_id = "g";
  for (const auto* name : {"t", "other"}) {
    auto& topic = request.topics.emplace_back();
    topic.name = name;
    topic.partitions.emplace_back();
  }
  Later<kafka::OffsetDeleteResponse> answer;
  world.shard->remove_offsets(request, answer.callback());
  world.logs.settle();
  EXPECT_EQ(answer->error_code, ErrorCode::none);
  EXPECT_EQ(answer->topics[0].partitions[0].error_code, ErrorCode::group_subscribed_to_topic);
  EXPECT_EQ(answer->topics[1].partitions[0].error_code, ErrorCode::none);
  EXPECT_EQ(world.committed("t"), 1);
  EXPECT_EQ(world.committed("other"), -1);
  request.group_id = "unknown";
  Later<kafka::OffsetDeleteResponse> unknown;
  world.shard->remove_offsets(request, unknown.callback());
  EXPECT_EQ(unknown->error_code, ErrorCode::group_id_not_found);
}

TEST(Topics, ADeletedTopicTakesItsOffsetsAlong) {
  GroupWorld world;
  (void)world.commit(1, "", -1, "a");
  (void)world.commit(2, "", -1, "b");
  world.logs.settle();
  world.shard->forget_topics({"a"});
  world.logs.settle();
  EXPECT_EQ(world.committed("a"), -1);
  EXPECT_EQ(world.committed("b"), 2);
  world.crash();
  EXPECT_EQ(world.committed("a"), -1);
}

}  // namespace
}  // namespace ciuic::broker::testing
