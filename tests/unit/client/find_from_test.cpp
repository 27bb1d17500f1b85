#include "client/core/find_from.h"

#include <gtest/gtest.h>

#include <vector>

namespace ciuic::client::core {
namespace {

TEST(FindFrom, FindsInWhateverOrderAndCountsWhatItLooksAt) {
  const std::vector<int> answers{10, 11, 12, 13};
  std::size_t from = 0;
  int looks = 0;
  const auto find = [&](int wanted) {
    looks = 0;
    return find_from(answers, from, [&](int one) {
      ++looks;
      return one == wanted;
    });
  };
  for (const int wanted : {10, 11, 12, 13}) {
    ASSERT_NE(find(wanted), nullptr);
    EXPECT_EQ(answers[from], wanted);
    EXPECT_LE(looks, 2) << "in the order asked";
  }
  for (const int wanted : {12, 10, 13, 11, 11}) {
    const auto* const found = find(wanted);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(*found, wanted);
  }
  EXPECT_EQ(find(14), nullptr);
  EXPECT_EQ(looks, 4) << "each once";
  EXPECT_EQ(answers[from], 11) << "stays where it was";
}

TEST(FindFrom, APlaceOfALongerListIsAPlaceOfAShorterOne) {
  std::vector<int> shorter{1, 2};
  std::size_t from = 7;
  ASSERT_EQ(find_from(shorter, from, [](int one) { return one == 1; }), &shorter[0]);
  std::vector<int> none;
  EXPECT_EQ(find_from(none, from, [](int) { return true; }), nullptr);
}

}  // namespace
}  // namespace ciuic::client::core
