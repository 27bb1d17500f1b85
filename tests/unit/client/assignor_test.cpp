// How partitions are shared out: Java's examples, and that nothing is lost or doubled.
#include "client/core/assignor.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace ciuic::client::core {
namespace {

std::vector<std::int32_t> of(const Assignment& assignment, const std::string& member, const std::string& topic) {
  std::vector<std::int32_t> out;
  for (const auto& at : assignment.at(member)) {
    if (at.topic == topic) out.push_back(at.partition);
  }
  return out;
}
using Indexes = std::vector<std::int32_t>;

TEST(Assignor, RangeGivesRunsAndTheFirstMembersOneMore) {
  const auto got = assign_range({{"c1", "", {"t0", "t1"}}, {"c0", "", {"t0", "t1"}}}, {{"t0", 3}, {"t1", 3}});
  EXPECT_EQ(of(got, "c0", "t0"), (Indexes{0, 1}));
  EXPECT_EQ(of(got, "c0", "t1"), (Indexes{0, 1}));
  EXPECT_EQ(of(got, "c1", "t0"), (Indexes{2}));
  EXPECT_EQ(of(got, "c1", "t1"), (Indexes{2}));
}

TEST(Assignor, RoundRobinDealsAllPartitionsInTurn) {
  const auto got = assign_round_robin({{"c0", "", {"t0", "t1"}}, {"c1", "", {"t0", "t1"}}}, {{"t0", 3}, {"t1", 3}});
  EXPECT_EQ(of(got, "c0", "t0"), (Indexes{0, 2}));
  EXPECT_EQ(of(got, "c0", "t1"), (Indexes{1}));
  EXPECT_EQ(of(got, "c1", "t0"), (Indexes{1}));
  EXPECT_EQ(of(got, "c1", "t1"), (Indexes{0, 2}));
}

TEST(Assignor, RoundRobinSkipsMembersThatDoNotWantTheTopic) {
  // The example of RoundRobinAssignor's documentation.
  const auto got = assign_round_robin({{"c0", "", {"t0"}}, {"c1", "", {"t0", "t1"}}, {"c2", "", {"t0", "t1", "t2"}}},
                                      {{"t0", 1}, {"t1", 2}, {"t2", 3}});
  EXPECT_EQ(of(got, "c0", "t0"), (Indexes{0}));
  EXPECT_EQ(of(got, "c1", "t1"), (Indexes{0}));
  EXPECT_EQ(of(got, "c2", "t1"), (Indexes{1}));
  EXPECT_EQ(of(got, "c2", "t2"), (Indexes{0, 1, 2}));
}

TEST(Assignor, StaticMembersComeFirstByInstance) {
  const auto got = assign_range({{"a", "", {"t"}}, {"z", "i1", {"t"}}}, {{"t", 3}});
  EXPECT_EQ(of(got, "z", "t"), (Indexes{0, 1}));
}

TEST(Assignor, EveryWantedPartitionGoesToExactlyOneMemberThatWantsIt) {
  std::mt19937 dice(7);
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, std::int32_t> partitions;
    for (int t = 0; t < 5; ++t) partitions["t" + std::to_string(t)] = static_cast<std::int32_t>(dice() % 9);
    std::vector<Member> members;
    std::set<std::string> wanted;
    for (unsigned m = 0; m <= dice() % 6; ++m) {
      Member member{"m" + std::to_string(dice()), "", {}};
      for (const auto& [topic, count] : partitions) {
        if (dice() % 2 == 0) {
          member.topics.push_back(topic);
          wanted.insert(topic);
        }
      }
      members.push_back(std::move(member));
    }
    for (const char* strategy : {"range", "roundrobin"}) {
      std::set<TopicPartition> seen;
      for (const auto& [id, list] : assign_by(strategy, members, partitions)) {
        const auto member =
            std::find_if(members.begin(), members.end(), [&id = id](const Member& one) { return one.id == id; });
        ASSERT_NE(member, members.end());
        for (const auto& at : list) {
          EXPECT_TRUE(seen.insert(at).second) << "round " << round;
          EXPECT_NE(std::find(member->topics.begin(), member->topics.end(), at.topic), member->topics.end());
        }
      }
      std::size_t expected = 0;
      for (const auto& topic : wanted) expected += static_cast<std::size_t>(partitions[topic]);
      EXPECT_EQ(seen.size(), expected) << strategy << " round " << round;
    }
  }
}

}  // namespace
}  // namespace ciuic::client::core
