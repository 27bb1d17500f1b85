#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "broker/group/coordinator.h"
#include "broker/group/group_records.h"
#include "broker/group/group_state.h"

namespace ciuic::broker {
namespace {

TEST(GroupState, EveryPairIsEitherListedOnceOrNoTransition) {
  std::set<std::pair<int, int>> listed;
  for (const auto& row : group_transitions) {
    EXPECT_TRUE(listed.emplace(static_cast<int>(row.from), static_cast<int>(row.event)).second);
  }
  for (int state = 0; state <= static_cast<int>(GroupState::dead); ++state) {
    for (int event = 0; event <= static_cast<int>(GroupEvent::removed); ++event) {
      const auto next = next_state(static_cast<GroupState>(state), static_cast<GroupEvent>(event));
      EXPECT_EQ(next.has_value(), listed.count({state, event}) == 1);
    }
  }
}

TEST(GroupState, NothingLeavesDeadAndEverythingElseCanDie) {
  for (const auto& row : group_transitions) EXPECT_NE(row.from, GroupState::dead);
  for (const auto state :
       {GroupState::empty, GroupState::preparing_rebalance, GroupState::completing_rebalance, GroupState::stable}) {
    EXPECT_EQ(next_state(state, GroupEvent::removed), GroupState::dead);
  }
}

TEST(GroupPartition, IsJavasHashOfTheNameModuloThePartitions) {
  EXPECT_EQ(GroupCoordinator::partition_for("gpu-cluster-1", 50).value, 27);
  EXPECT_EQ(GroupCoordinator::partition_for("", 50).value, 0);
  EXPECT_EQ(GroupCoordinator::partition_for("group", 50).value, 47);
  EXPECT_EQ(GroupCoordinator::partition_for("polygenelubricants", 50).value, 0);  // its hash is the smallest int
  EXPECT_EQ(GroupCoordinator::partition_for("Gr\xC3\xBCppe-\xF0\x9F\x9A\x80", 50).value, 32);
  EXPECT_EQ(GroupCoordinator::partition_for("\xF0\x9F", 50).value, 0);  // cut short: no read past the end
}

std::string hex(Bytes bytes) {
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

TEST(GroupRecords, AnOffsetIsWrittenAsApacheWritesIt) {
  CommittedOffset offset;
  offset.offset = kafka::Offset(42);
  offset.leader_epoch = kafka::LeaderEpoch(7);
  offset.metadata = "m";
  offset.commit_ms = 1'700'000'000'000;
  const auto record = offset_record("g", {"t", kafka::PartitionIndex(3)}, offset);
  EXPECT_EQ(hex(record.key),
            "0001"
            "000167"
            "000174"
            "00000003");
  EXPECT_EQ(hex(*record.value),
            "0003"
            "000000000000002a"
            "00000007"
            "00016d"
            "0000018bcfe56800");
  offset.expire_ms = 1'700'000'000'001;
  EXPECT_EQ(hex(*offset_record("g", {"t", kafka::PartitionIndex(3)}, offset).value),
            "0001"
            "000000000000002a"
            "00016d"
            "0000018bcfe56800"
            "0000018bcfe56801");
}

TEST(GroupRecords, AGroupIsWrittenAsApacheWritesIt) {
  kafka::GroupMetadataValue value;
  value.protocol_type = "consumer";
  value.generation = 1;
  value.protocol = std::nullopt;
  value.leader = std::nullopt;
  value.current_state_timestamp = 5;
  const auto record = group_record("g", value);
  EXPECT_EQ(hex(record.key),
            "0002"
            "000167");
  EXPECT_EQ(hex(*record.value),
            "0003"
            "0008636f6e73756d6572"
            "00000001"
            "ffff"
            "ffff"
            "0000000000000005"
            "00000000");
}

TEST(GroupRecords, WhatIsNoRecordOfOursIsSaidSo) {
  EXPECT_FALSE(read_record(Bytes{}, std::nullopt));
  EXPECT_FALSE(read_record(as_bytes(std::string_view("\0\1\0\x7f", 4)), std::nullopt));
  EXPECT_FALSE(read_record(as_bytes(std::string_view("\0\2\0\1g", 5)), as_bytes(std::string_view("\0\x63", 2))));
  const auto other = read_record(as_bytes(std::string_view("\0\3whatever", 10)), std::nullopt);
  ASSERT_TRUE(other);
  EXPECT_TRUE(std::holds_alternative<OtherRead>(*other));
}

}  // namespace
}  // namespace ciuic::broker
