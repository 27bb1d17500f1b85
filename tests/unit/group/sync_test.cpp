#include <gtest/gtest.h>

#include "tests/unit/group/support/group_world.h"

namespace ciuic::broker::testing {
namespace {

using std::chrono::seconds;

/// Two members that have joined and not yet synced; the first leads.
struct TwoJoined {
  GroupWorld world;
  std::string leader, follower;
  TwoJoined() {
    const auto first = world.join_new();
    const auto second = world.join_new();
    world.pass(seconds(7));
    leader = first->member_id;
    follower = second->member_id;
  }
};

TEST(Sync, FollowersWaitForTheLeaderAndTheLog) {
  TwoJoined two;
  const auto follower = two.world.sync(two.follower, 1);
  two.world.logs.settle();
  EXPECT_FALSE(follower.answered());
  const auto leader = two.world.sync(two.leader, 1, {{two.leader, "x"}, {two.follower, "y"}});
  EXPECT_FALSE(leader.answered());  // not before the assignment is in the log
  two.world.logs.settle();
  EXPECT_EQ(as_text(leader->assignment), "x");
  EXPECT_EQ(as_text(follower->assignment), "y");
  EXPECT_EQ(leader->protocol_name, "range");
  EXPECT_EQ(two.world.describe().group_state, "Stable");
  EXPECT_EQ(as_text(two.world.sync(two.follower, 1)->assignment), "y");  // a retry
}

TEST(Sync, WrongMemberGenerationOrProtocolIsRefused) {
  TwoJoined two;
  EXPECT_EQ(two.world.sync("stranger", 1)->error_code, ErrorCode::unknown_member_id);
  EXPECT_EQ(two.world.sync(two.leader, 2)->error_code, ErrorCode::illegal_generation);
  kafka::SyncGroupRequest request;
  request.group_id = "g";
  request.member_id = two.leader;
  request.generation_id = 1;
  request.protocol_name = "sticky";
  Later<kafka::SyncGroupResponse> answer;
  two.world.shard->sync(request, answer.callback());
  EXPECT_EQ(answer->error_code, ErrorCode::inconsistent_group_protocol);
}

TEST(Sync, ALeaderThatDiesSendsTheOthersBackToJoin) {
  TwoJoined two;
  const auto follower = two.world.sync(two.follower, 1);
  EXPECT_EQ(two.world.leave(two.leader), ErrorCode::none);
  ASSERT_TRUE(follower.answered());
  EXPECT_EQ(follower->error_code, ErrorCode::rebalance_in_progress);
}

TEST(Sync, WhoNeverSyncsIsRemoved) {
  TwoJoined two;
  const auto leader = two.world.sync(two.leader, 1, {{two.leader, "x"}});
  two.world.logs.settle();
  EXPECT_TRUE(leader.answered());
  for (int i = 0; i < 61; ++i) {  // both are alive
    two.world.heartbeat(two.leader, 1);
    two.world.heartbeat(two.follower, 1);
    two.world.pass(seconds(1));
  }
  EXPECT_EQ(two.world.heartbeat(two.follower, 1), ErrorCode::unknown_member_id);
  EXPECT_EQ(two.world.heartbeat(two.leader, 1), ErrorCode::rebalance_in_progress);
}

TEST(Sync, AnAssignmentOfAnEndedGenerationIsNotTaken) {
  TwoJoined two;
  const auto leader = two.world.sync(two.leader, 1, {{two.leader, "x"}});
  const auto third = two.world.join_new();  // before the log has answered
  ASSERT_TRUE(leader.answered());
  EXPECT_EQ(leader->error_code, ErrorCode::rebalance_in_progress);
  two.world.logs.settle();
  EXPECT_EQ(two.world.describe().group_state, "PreparingRebalance");
  EXPECT_FALSE(third.answered());
}

TEST(Sync, ADiskThatFailsIsNoAssignment) {
  TwoJoined two;
  two.world.logs.disk.fail_write(0);
  const auto leader = two.world.sync(two.leader, 1, {{two.leader, "x"}});
  two.world.logs.settle();
  ASSERT_TRUE(leader.answered());
  EXPECT_EQ(leader->error_code, ErrorCode::not_coordinator);
}

TEST(Heartbeat, ASessionEndsOnlyWithoutHeartbeats) {
  GroupWorld world;
  const auto members = world.stable(2);
  for (int i = 0; i < 5; ++i) {
    world.pass(seconds(3));
    ASSERT_EQ(world.heartbeat(members[0].id, 1), i < 3 ? ErrorCode::none : ErrorCode::rebalance_in_progress) << i;
  }
  EXPECT_EQ(world.heartbeat(members[1].id, 1), ErrorCode::unknown_member_id);
  EXPECT_EQ(world.heartbeat(members[0].id, 0), ErrorCode::illegal_generation);
  EXPECT_EQ(world.describe().members.size(), 1U);
}

TEST(Leave, TheLastMemberLeavesAnEmptyGroup) {
  GroupWorld world;
  const auto members = world.stable(1);
  EXPECT_EQ(world.leave(members[0].id), ErrorCode::none);
  world.logs.settle();
  EXPECT_EQ(world.describe().group_state, "Empty");
  EXPECT_EQ(world.describe().protocol_type, "consumer");
  EXPECT_EQ(world.leave(members[0].id), ErrorCode::unknown_member_id);
  world.crash();
  EXPECT_EQ(world.describe().group_state, "Empty");
}

TEST(Leave, AnAdministratorRemovesStaticMembersByInstance) {
  GroupWorld world;
  JoinOf how;
  how.instance = "i1";
  world.stable(1, how);
  EXPECT_EQ(world.leave("", "i2"), ErrorCode::unknown_member_id);
  EXPECT_EQ(world.leave("", "i1"), ErrorCode::none);
  world.logs.settle();
  EXPECT_EQ(world.describe().group_state, "Empty");
}

TEST(Describe, AnUnknownGroupIsDeadAndFromVersion6NotFound) {
  GroupWorld world;
  EXPECT_EQ(world.describe(5).group_state, "Dead");
  EXPECT_EQ(world.describe(5).error_code, ErrorCode::none);
  EXPECT_EQ(world.describe(6).error_code, ErrorCode::group_id_not_found);
  EXPECT_EQ(world.describe(6).error_message, "Group g not found.");
}

TEST(Describe, AStableGroupShowsSubscriptionsAndAssignments) {
  GroupWorld world;
  const auto members = world.stable(2);
  const auto stable = world.describe();
  EXPECT_EQ(stable.protocol_data, "range");
  EXPECT_EQ(stable.members[1].member_id, members[1].id);
  EXPECT_EQ(stable.members[1].client_host, "/10.0.0.1");
  EXPECT_EQ(stable.members[1].member_metadata, subscription({"t"}));
  EXPECT_EQ(as_text(stable.members[1].member_assignment), "a1");
  (void)world.join_new();
  EXPECT_EQ(world.describe().group_state, "PreparingRebalance");
  EXPECT_TRUE(world.describe().members[1].member_assignment.empty());
}

TEST(List, FiltersByStateAndTypeWithoutRegardToCase) {
  GroupWorld world;
  world.stable(1);
  const auto count = [&](std::vector<std::string> states, std::vector<std::string> types) {
    std::vector<kafka::ListGroupsResponse::ListedGroup> groups;
    kafka::ListGroupsRequest request;
    request.states_filter = std::move(states);
    request.types_filter = std::move(types);
    world.shard->list(request, groups);
    return groups.size();
  };
  EXPECT_EQ(count({}, {}), 1U);
  EXPECT_EQ(count({"stable"}, {"Classic"}), 1U);
  EXPECT_EQ(count({"Empty"}, {}), 0U);
  EXPECT_EQ(count({}, {"consumer"}), 0U);
}

}  // namespace
}  // namespace ciuic::broker::testing
