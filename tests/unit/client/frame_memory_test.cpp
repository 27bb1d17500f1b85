#include "client/core/frame_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace ciuic::client::core {
namespace {
using namespace std::chrono_literals;

constexpr std::size_t mib = 1U << 20;

TEST(FrameMemory, ALargeBlockIsUsedAgainForAboutItsSize) {
  const auto memory = std::make_shared<FrameMemory>();
  Clock::TimePoint now{};
  const std::byte* at = nullptr;
  {
    const auto block = memory->take(10 * mib, now);
    at = block.get();
    EXPECT_EQ(memory->kept(), 0U);
  }
  EXPECT_GE(memory->kept(), 10 * mib);
  EXPECT_NE(memory->take(mib, now).get(), at) << "a small answer would hold a large block";
  {
    const auto again = memory->take(10 * mib - 5000, now);
    EXPECT_EQ(again.get(), at);
    EXPECT_NE(memory->take(10 * mib, now).get(), at) << "it is in use";
  }
}

TEST(FrameMemory, WhatNobodyWantedForAWhileGoesWhicheverSizeIsAskedFor) {
  for (const std::size_t asked : {std::size_t{100}, mib}) {
    const auto memory = std::make_shared<FrameMemory>();
    Clock::TimePoint now{};
    { const auto block = memory->take(20 * mib, now); }
    { const auto other = memory->take(asked, now + 9s); }
    EXPECT_GE(memory->kept(), 20 * mib);
    { const auto other = memory->take(asked, now + 11s); }
    EXPECT_LT(memory->kept(), 2 * mib);
  }
}

TEST(FrameMemory, KeepsNoMoreThanItsShare) {
  const auto memory = std::make_shared<FrameMemory>();
  {
    std::vector<std::shared_ptr<std::byte[]>> all;
    for (int i = 0; i < 20; ++i) all.push_back(memory->take(15 * mib, {}));
  }
  EXPECT_LE(memory->kept(), 128 * mib);
  EXPECT_GE(memory->kept(), 100 * mib);
}

TEST(FrameMemory, OutlivesItsOwnerAndIsGivenBackByOtherThreads) {
  std::vector<std::thread> threads;
  {
    const auto memory = std::make_shared<FrameMemory>();
    for (int i = 0; i < 400; ++i) {
      const auto size = static_cast<std::size_t>(i) * 104'729 % (2 * mib) + 1;
      auto block = memory->take(size, Clock::TimePoint{} + std::chrono::milliseconds(i));
      std::memset(block.get(), i, size);
      threads.emplace_back([block = std::move(block), size, i] {
        for (std::size_t at = 0; at < size; at += 4096)
          if (block[static_cast<std::ptrdiff_t>(at)] != static_cast<std::byte>(i))
            ADD_FAILURE() << "shared with another";
      });
      if (threads.size() == 8) {
        for (auto& one : threads) one.join();
        threads.clear();
      }
    }
  }
  for (auto& one : threads) one.join();
}

}  // namespace
}  // namespace ciuic::client::core
