#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/group/support/group_world.h"

namespace ciuic::broker::testing {
namespace {

using std::chrono::seconds;

TEST(Join, FromVersion4AMemberIsHandedItsIdFirst) {
  GroupWorld world;
  const auto first = world.join({});
  ASSERT_TRUE(first.answered());
  EXPECT_EQ(first->error_code, ErrorCode::member_id_required);
  EXPECT_THAT(first->member_id, ::testing::MatchesRegex("c-[0-9a-f-]{36}"));
  JoinOf old;
  old.version = 3;
  EXPECT_FALSE(world.join(old).answered());
}

TEST(Join, AnIdThatIsNeverUsedHoldsNobodyUp) {
  GroupWorld world;
  const auto abandoned = world.join({});
  ASSERT_TRUE(abandoned.answered());
  const auto member = world.join_new();
  world.pass(seconds(5));
  EXPECT_TRUE(member.answered());  // the first rebalance goes by its own clock
  const auto again = world.join({member->member_id, std::nullopt, {"range"}, {"other"}});
  world.pass(seconds(2));
  EXPECT_FALSE(again.answered());
  world.pass(seconds(4));  // ten seconds after it was handed out
  EXPECT_TRUE(again.answered());
}

TEST(Join, AnUnknownMemberIsToldSo) {
  GroupWorld world;
  JoinOf stranger;
  stranger.member = "stranger";
  EXPECT_EQ(world.join(stranger)->error_code, ErrorCode::unknown_member_id);
  world.stable(1);
  EXPECT_EQ(world.join(stranger)->error_code, ErrorCode::unknown_member_id);
}

TEST(Join, SessionTimeoutsOutsideTheRangeAreRefused) {
  GroupWorld world;
  JoinOf how;
  how.session_ms = 5999;
  EXPECT_EQ(world.join(how)->error_code, ErrorCode::invalid_session_timeout);
  how.session_ms = 1'800'001;
  EXPECT_EQ(world.join(how)->error_code, ErrorCode::invalid_session_timeout);
}

TEST(Join, TheFirstRebalanceWaitsForOthersOfTheSameStart) {
  GroupWorld world;
  const auto first = world.join_new();
  world.pass(Milliseconds(2500));
  const auto second = world.join_new();
  world.pass(Milliseconds(2500));
  EXPECT_FALSE(first.answered());  // three seconds more, as somebody came
  world.pass(Milliseconds(1200));
  ASSERT_TRUE(first.answered());
  ASSERT_TRUE(second.answered());
  EXPECT_EQ(first->generation_id, 1);
  EXPECT_EQ(second->generation_id, 1);
}

TEST(Join, TheInitialWaitEndsWithTheRebalanceTimeout) {
  GroupWorld world;
  JoinOf how;
  how.rebalance_ms = 6000;
  const auto first = world.join_new(how);
  for (int i = 0; i < 5; ++i) {
    world.pass(seconds(1));
    (void)world.join_new(how);
  }
  EXPECT_FALSE(first.answered());
  world.pass(Milliseconds(1200));
  EXPECT_TRUE(first.answered());
}

TEST(Join, TheLeaderIsToldAllMembersAndTheOthersNone) {
  GroupWorld world;
  const auto first = world.join_new();
  const auto second = world.join_new();
  world.pass(seconds(7));
  EXPECT_EQ(first->leader, first->member_id);
  EXPECT_EQ(second->leader, first->member_id);
  ASSERT_EQ(first->members.size(), 2U);
  EXPECT_EQ(first->members[1].member_id, second->member_id);
  EXPECT_EQ(first->members[1].metadata, subscription({"t"}));
  EXPECT_TRUE(second->members.empty());
  EXPECT_EQ(first->protocol_type, "consumer");
  EXPECT_EQ(first->protocol_name, "range");
}

TEST(Join, TheProtocolThatMostWantAmongThoseAllSpeakIsChosen) {
  GroupWorld world;
  JoinOf how;
  how.protocols = {"range", "sticky", "own"};
  const auto first = world.join_new(how);
  how.protocols = {"new", "sticky", "range"};
  (void)world.join_new(how);
  how.protocols = {"sticky", "range"};
  (void)world.join_new(how);
  world.pass(seconds(7));
  ASSERT_TRUE(first.answered());
  EXPECT_EQ(first->protocol_name, "sticky");
}

TEST(Join, AMemberWithoutACommonProtocolOrOfAnotherTypeIsRefused) {
  GroupWorld world;
  world.stable(1);
  JoinOf how;
  how.protocols = {"other"};
  EXPECT_EQ(world.join(how)->error_code, ErrorCode::inconsistent_group_protocol);
  how = {};
  how.type = "connect";
  EXPECT_EQ(world.join(how)->error_code, ErrorCode::inconsistent_group_protocol);
  GroupWorld empty;
  how.protocols.clear();
  EXPECT_EQ(empty.join(how)->error_code, ErrorCode::inconsistent_group_protocol);
}

TEST(Join, ANewMemberStartsARebalanceThatEndsWhenAllAreBack) {
  GroupWorld world;
  const auto members = world.stable(2);
  const auto third = world.join_new();
  EXPECT_FALSE(third.answered());
  EXPECT_EQ(world.heartbeat(members[0].id, 1), ErrorCode::rebalance_in_progress);
  JoinOf back;
  back.member = members[0].id;
  const auto first = world.join(back);
  back.member = members[1].id;
  EXPECT_FALSE(first.answered());
  const auto second = world.join(back);
  ASSERT_TRUE(first.answered());
  ASSERT_TRUE(second.answered());
  ASSERT_TRUE(third.answered());
  EXPECT_EQ(third->generation_id, 2);
}

TEST(Join, WhoDoesNotComeBackInTimeIsLeftOut) {
  GroupWorld world;
  JoinOf how;
  how.session_ms = 60'000;
  how.rebalance_ms = 5'000;
  const auto members = world.stable(2, how);
  const auto third = world.join_new(how);
  how.member = members[1].id;
  const auto second = world.join(how);
  world.pass(Milliseconds(5200));
  ASSERT_TRUE(third.answered());
  EXPECT_EQ(third->error_code, ErrorCode::none);
  EXPECT_EQ(third->leader, members[1].id);  // the leader was the one left out
  EXPECT_EQ(world.heartbeat(members[0].id, 1), ErrorCode::unknown_member_id);
}

TEST(Join, AFollowerThatJoinsAgainUnchangedKeepsTheGeneration) {
  GroupWorld world;
  const auto members = world.stable(2);
  JoinOf again;
  again.member = members[1].id;
  const auto follower = world.join(again);
  ASSERT_TRUE(follower.answered());
  EXPECT_EQ(follower->generation_id, 1);
  again.member = members[0].id;
  EXPECT_FALSE(world.join(again).answered());  // the leader asks for a new assignment
}

TEST(Join, ARepeatedRequestEndsTheEarlierOne) {
  GroupWorld world;
  const auto id = world.join({})->member_id;
  JoinOf how;
  how.member = id;
  const auto first = world.join(how);
  const auto second = world.join(how);
  ASSERT_TRUE(first.answered());
  EXPECT_EQ(first->error_code, ErrorCode::rebalance_in_progress);
  world.pass(seconds(7));
  ASSERT_TRUE(second.answered());
  EXPECT_EQ(second->error_code, ErrorCode::none);
  EXPECT_EQ(first.answers->size(), 1U);
}

TEST(Join, AFullGroupTakesNobodyMore) {
  GroupSettings settings;
  settings.size_max = 2;
  GroupWorld world(settings);
  const auto members = world.stable(2);
  EXPECT_EQ(world.join({})->error_code, ErrorCode::group_max_size_reached);
  EXPECT_EQ(world.heartbeat(members[0].id, 1), ErrorCode::none);
}

TEST(Join, StopAnswersWhoWaits) {
  GroupWorld world;
  const auto waiting = world.join_new();
  world.shard->unload();
  ASSERT_TRUE(waiting.answered());
  EXPECT_EQ(waiting->error_code, ErrorCode::not_coordinator);
  EXPECT_EQ(world.shard->unavailable(), ErrorCode::not_coordinator);
}

TEST(Static, AReturningMemberKeepsItsAssignmentWithoutARebalance) {
  GroupWorld world;
  JoinOf how;
  how.instance = "i1";
  const auto leader = world.join(how);
  how.instance = "i2";
  const auto follower = world.join(how);
  world.pass(seconds(7));
  ASSERT_TRUE(follower.answered());
  (void)world.sync(follower->member_id, 1);
  (void)world.sync(leader->member_id, 1, {{leader->member_id, "a1"}, {follower->member_id, "a2"}});
  world.logs.settle();

  const auto back = world.join(how);
  EXPECT_FALSE(back.answered());  // its new id is not in the log yet
  world.logs.settle();
  ASSERT_TRUE(back.answered());
  EXPECT_EQ(back->error_code, ErrorCode::none);
  EXPECT_EQ(back->generation_id, 1);
  EXPECT_NE(back->member_id, follower->member_id);
  EXPECT_FALSE(back->skip_assignment);
  EXPECT_EQ(world.heartbeat(leader->member_id, 1), ErrorCode::none);
  EXPECT_EQ(as_text(world.sync(back->member_id, 1)->assignment), "a2");

  // The former holder of the instance is fenced, wherever it speaks.
  EXPECT_EQ(world.heartbeat(follower->member_id, 1, "i2"), ErrorCode::fenced_instance_id);
  EXPECT_EQ(world.sync(follower->member_id, 1, {}, "i2")->error_code, ErrorCode::fenced_instance_id);
  EXPECT_EQ(world.leave(follower->member_id, "i2"), ErrorCode::fenced_instance_id);
  JoinOf fenced = how;
  fenced.member = follower->member_id;
  EXPECT_EQ(world.join(fenced)->error_code, ErrorCode::fenced_instance_id);
  world.crash();
  EXPECT_EQ(world.heartbeat(back->member_id, 1, "i2"), ErrorCode::none);
}

TEST(Static, AReturningLeaderSkipsAssignmentFromVersion9) {
  GroupWorld world;
  JoinOf how;
  how.instance = "i1";
  const auto leader = world.stable(1, how).at(0);
  const auto back = world.join(how);
  world.logs.settle();
  EXPECT_TRUE(back->skip_assignment);
  EXPECT_EQ(back->leader, back->member_id);
  EXPECT_EQ(back->members.size(), 1U);
  how.version = 8;
  const auto older = world.join(how);
  world.logs.settle();
  EXPECT_FALSE(older->skip_assignment);
  EXPECT_EQ(older->leader, back->member_id);  // not itself: it would assign
  EXPECT_NE(older->member_id, leader.id);
}

TEST(Static, ARebalanceDoesNotLeaveOutAStaticMember) {
  GroupWorld world;
  JoinOf how;
  how.rebalance_ms = 5'000;
  how.session_ms = 60'000;
  how.instance = "i1";
  const auto member = world.stable(1, how).at(0);
  how.instance.reset();
  const auto dynamic = world.join_new(how);
  world.pass(Milliseconds(5200));
  ASSERT_TRUE(dynamic.answered());
  EXPECT_EQ(dynamic->leader, dynamic->member_id);
  EXPECT_EQ(dynamic->members.size(), 2U);
  EXPECT_EQ(world.heartbeat(member.id, 2, "i1"), ErrorCode::none);
}

TEST(Join, AThousandMembersCostAThousandTimesOne) {
  GroupSettings settings;
  GroupWorld world(settings);
  const auto began = std::chrono::steady_clock::now();  // NOLINT: measuring
  const auto members = world.stable(1000);
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(world.describe().members.size(), 1000U);
  EXPECT_EQ(world.describe().group_state, "Stable");
  for (const auto& member : members) ASSERT_EQ(world.heartbeat(member.id, member.generation), ErrorCode::none);
  EXPECT_LT(took, seconds(5));
  RecordProperty("milliseconds", static_cast<int>(std::chrono::duration_cast<Milliseconds>(took).count()));
}

}  // namespace
}  // namespace ciuic::broker::testing
