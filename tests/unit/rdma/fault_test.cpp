// Faults: every one has an outcome, words, and no twin.
#include <gtest/gtest.h>

#include <set>

#include "transport/rdma/provider.h"

namespace ciuic::rdma {
namespace {

TEST(Fault, EveryOneHasAnOutcomeANameAndWords) {
  std::set<std::string_view> names;
  for (const auto fault : all_faults()) {
    const auto outcome = static_cast<int>(outcome_of(fault));
    EXPECT_GE(outcome, 0);
    EXPECT_LE(outcome, 3);
    EXPECT_NE(name(outcome_of(fault)), "unknown_outcome");
    EXPECT_TRUE(names.insert(name(fault)).second) << name(fault);
    EXPECT_FALSE(text(fault).empty()) << name(fault);
    EXPECT_TRUE(outcome_of(fault) != Outcome::fall_back || !remedy(fault).empty())
        << name(fault) << ": a person must act";
  }
  EXPECT_EQ(name(static_cast<Fault>(999)), "unknown_fault");
}

TEST(RemoteSpan, ACutNeverLeavesItsParent) {
  const RemoteSpan span{1000, 100, 7};
  EXPECT_EQ(span.sub(0, 100), span);
  EXPECT_EQ(span.sub(100, 0), (RemoteSpan{1100, 0, 7}));
  EXPECT_EQ(span.sub(40, 60), (RemoteSpan{1040, 60, 7}));
  EXPECT_FALSE(span.sub(40, 61));
  EXPECT_FALSE(span.sub(101, 0));
  EXPECT_FALSE(span.sub(50, 0xFFFFFFFF));
  EXPECT_FALSE(span.sub(0xFFFFFFFF, 2));
}

TEST(Token, IsRandomAndOfOneLength) {
  EXPECT_NE(Token::random(), Token::random());
  EXPECT_FALSE(Token::from(Buffer(31)));
  EXPECT_FALSE(Token::from(Buffer(33)));
  EXPECT_TRUE(Token::from(Buffer(32)));
}

}  // namespace
}  // namespace ciuic::rdma
