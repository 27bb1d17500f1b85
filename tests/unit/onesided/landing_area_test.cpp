// Pieces of a program's memory.
#include "transport/onesided/landing_area.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "transport/device/host.h"

namespace ciuic::onesided {
namespace {

std::shared_ptr<LandingArea> area_of(std::size_t bytes, std::uint64_t at = 1U << 20) {
  // Nothing here touches the memory.
  return std::make_shared<LandingArea>(device::make_host(), device::Span{at, bytes});
}

TEST(LandingArea, PiecesAreInsideAlignedAndApart) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 dice(seed);
  constexpr std::size_t bytes = 100'000;
  const auto area = area_of(bytes);
  const auto whole = area->memory();
  std::vector<std::unique_ptr<LandingArea::Piece>> held;
  for (int round = 0; round < 20'000; ++round) {
    if (!held.empty() && dice() % 2 == 0) {
      std::swap(held[dice() % held.size()], held.back());
      held.pop_back();
      continue;
    }
    const auto wanted = dice() % 5000;
    const bool room = area->has_room(wanted);
    auto piece = area->take(wanted);
    ASSERT_EQ(piece != nullptr, room);
    if (!piece) continue;
    const auto span = piece->span();
    ASSERT_EQ(span.bytes, wanted);
    ASSERT_EQ(piece->bytes().size(), wanted);
    ASSERT_GE(span.address, whole.address);
    ASSERT_EQ((span.address - whole.address) % LandingArea::alignment, 0U);
    ASSERT_LE(span.address + span.bytes, whole.address + whole.bytes);
    for (const auto& other : held) {
      const auto theirs = other->span();
      ASSERT_TRUE(span.address + std::max<std::size_t>(span.bytes, 1) <= theirs.address ||
                  theirs.address + std::max<std::size_t>(theirs.bytes, 1) <= span.address);
    }
    held.push_back(std::move(piece));
  }
  held.clear();
  EXPECT_TRUE(area->take(bytes / LandingArea::alignment * LandingArea::alignment));
}

TEST(LandingArea, WhatIsTooSmallOrTooLargeIsRefused) {
  EXPECT_FALSE(area_of(0)->take(1));
  EXPECT_FALSE(area_of(LandingArea::alignment - 1)->take(1));
  EXPECT_FALSE(area_of(1024)->take(1025));
  EXPECT_TRUE(area_of(1024)->take(1024));
}

TEST(LandingArea, PiecesComeBackFromAnyThreadAndOutliveWhoMadeThem) {
  auto area = area_of(1U << 20);
  std::vector<std::thread> others;
  for (int i = 0; i < 8; ++i) others.emplace_back([mine = area->take(100)]() mutable { mine.reset(); });
  auto last = area->take(100);
  for (auto& one : others) one.join();
  last.reset();
  EXPECT_TRUE(area->has_room(1U << 20));
  auto kept = area->take(5);
  area.reset();
  kept.reset();
}

}  // namespace
}  // namespace ciuic::onesided
