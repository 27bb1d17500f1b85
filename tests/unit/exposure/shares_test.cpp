// Who gives way when memory for registrations is short.
#include "broker/exposure/shares.h"

#include <gtest/gtest.h>

namespace ciuic::broker {
namespace {

class Shares : public ::testing::Test {
 protected:
  void hold(const char* who, std::int64_t regions, std::uint64_t bytes_each = 10) {
    for (std::int64_t i = 0; i < regions; ++i) shares_.add(who, bytes_each);
  }
  [[nodiscard]] bool may_grow(const char* who) const {
    const auto allowed = shares_.allowance(who);
    return !allowed || allowed->amount > 0;
  }
  ManualClock clock_;
  PinnedShares shares_{clock_, Milliseconds(1000)};
};

TEST_F(Shares, NobodyIsHeldBackWhileThereIsRoom) {
  hold("a", 100);
  hold("b", 1);
  EXPECT_TRUE(may_grow("a"));
  EXPECT_EQ(shares_.largest(), std::nullopt);
  EXPECT_FALSE(shares_.excess("b"));
}

TEST_F(Shares, WhoHasMostGivesWayToWhoHasLess) {
  hold("a", 80);
  hold("b", 20);
  shares_.refused("b", PinnedShares::Of::bytes);
  EXPECT_FALSE(may_grow("a"));
  EXPECT_TRUE(may_grow("b"));
  EXPECT_TRUE(may_grow("c")) << "who has none";
  EXPECT_EQ(shares_.largest(), "a");
  const auto excess = shares_.excess("b");
  ASSERT_TRUE(excess);
  EXPECT_EQ(excess->principal, "a");
  EXPECT_EQ(excess->amount, 300) << "of 1000 bytes 500 are its";
  EXPECT_FALSE(shares_.excess("a")) << "nobody gives way to itself";
}

TEST_F(Shares, WhoWantsSomeCountsBeforeItHasAny) {
  hold("a", 90);
  shares_.refused("b", PinnedShares::Of::bytes);
  shares_.refused("c", PinnedShares::Of::bytes);
  EXPECT_EQ(shares_.excess("b")->amount, 600) << "300 for each of three";
}

TEST_F(Shares, WhatIsGivenUpMakesNobodysShareSmaller) {
  hold("a", 100);
  shares_.refused("b", PinnedShares::Of::bytes);
  for (int i = 0; i < 60; ++i) shares_.remove("a", 10);
  shares_.refused("b", PinnedShares::Of::bytes);
  EXPECT_EQ(shares_.allowance("a")->amount, 100) << "it has 400 of its 500";
  EXPECT_FALSE(shares_.excess("b"));
}

TEST_F(Shares, EqualsTakeNothingFromEachOther) {
  hold("a", 55);
  hold("b", 45);
  shares_.refused("b", PinnedShares::Of::bytes);
  EXPECT_FALSE(shares_.excess("b"));
  EXPECT_FALSE(may_grow("a"));
}

TEST_F(Shares, WhoHasItsShareStandsInNobodysWay) {
  hold("a", 40);
  hold("b", 20);
  shares_.refused("a", PinnedShares::Of::bytes);
  EXPECT_TRUE(may_grow("b"));
  EXPECT_TRUE(may_grow("a"));
  EXPECT_TRUE(may_grow("c"));
}

TEST_F(Shares, WhoIsAloneIsHeldBackByTheDeviceOnly) {
  hold("a", 100);
  shares_.refused("a", PinnedShares::Of::bytes);
  EXPECT_TRUE(may_grow("a"));
  EXPECT_EQ(shares_.largest(), "a");
}

TEST_F(Shares, WhereRegistrationsRunOutTheyAreCountedNotTheirBytes) {
  hold("large", 10, 1'000'000);
  hold("many", 90, 10);
  shares_.refused("large", PinnedShares::Of::regions);
  EXPECT_FALSE(may_grow("many"));
  EXPECT_EQ(shares_.excess("large")->amount, 40);
  EXPECT_EQ(shares_.largest(), "many");
  shares_.refused("many", PinnedShares::Of::bytes);
  EXPECT_FALSE(may_grow("large"));
  EXPECT_EQ(shares_.largest(), "large");
}

TEST_F(Shares, ShortnessIsForgottenAWhileAfterTheLastRefusal) {
  hold("a", 100);
  shares_.refused("b", PinnedShares::Of::bytes);
  clock_.advance(Milliseconds(900));
  shares_.refused("b", PinnedShares::Of::bytes);
  clock_.advance(Milliseconds(900));
  EXPECT_FALSE(may_grow("a"));
  clock_.advance(Milliseconds(200));
  EXPECT_TRUE(may_grow("a"));
}

}  // namespace
}  // namespace ciuic::broker
