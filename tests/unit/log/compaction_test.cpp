// Compaction: the last value of each key stays at its offset, whatever happens while it runs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using testing::LogWorld;
using testing::make_batch;
using testing::make_marker;

class Compaction : public ::testing::Test {
 protected:
  void SetUp() override {
    world.start();
    config.cleanup_compact = true;
    config.cleanup_delete = false;
    config.segment_bytes = 2000;
    world.create("t", 0, config);
  }
  Partition& t() { return *world.find("t"); }
  void put(int key, bool tombstone = false) {
    const auto result = world.append(t(), make_batch({.timestamp = world.clock.wall_ms(),
                                                      .value_bytes = 100,
                                                      .key = fmt::format("k{}", key),
                                                      .null_value = tombstone}));
    ASSERT_TRUE(result);
    if (tombstone) tombstones[key] = result->base_offset.value;
    last[key] = result->base_offset.value;
  }
  std::uint64_t clean() {
    std::uint64_t freed = 0;
    t().clean([&freed](const auto& done) {
      if (done) freed = *done;
    });
    world.settle();
    return freed;
  }
  /// All offsets in `last` are there; of those below the active segment, no others.
  void check() {
    const auto seen = world.offsets(t(), kafka::Offset(0));
    for (const auto& [key, offset] : last)
      EXPECT_TRUE(std::count(seen.begin(), seen.end(), offset) == 1) << key << "@" << offset;
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.empty() ? 0 : seen.back() + 1, t().high_watermark().value);
    // Every offset may be asked for, also one that is gone: the answer begins with the next that is left.
    for (std::int64_t at = 0; at < t().high_watermark().value; at += 7)
      EXPECT_EQ(world.offsets(t(), kafka::Offset(at)).front(), *std::lower_bound(seen.begin(), seen.end(), at));
  }
  LogWorld world{testing::seed_from_env(21)};
  LogConfig config;
  std::map<int, std::int64_t> last;
  std::map<int, std::int64_t> tombstones;
};

TEST_F(Compaction, KeepsTheLastValueOfEachKeyAtItsOffset) {
  for (int i = 0; i < 300; ++i) put(i % 10);
  const auto before = t().bytes_on_disk();
  EXPECT_GT(clean(), before / 2);
  check();
  EXPECT_LT(world.offsets(t(), kafka::Offset(0)).size(), 40U);
  world.restart();
  check();
  for (int i = 0; i < 100; ++i) put(i % 10);
  (void)clean();
  check();
  world.crash();
  check();
  EXPECT_EQ(world.append(t(), make_batch({}))->base_offset, kafka::Offset(400));
}

TEST_F(Compaction, TombstonesGoAfterTheirTime) {
  for (int i = 0; i < 30; ++i) put(i % 10);
  put(3, true);
  for (int i = 0; i < 60; ++i) put(10 + i % 5);
  (void)clean();
  check();
  world.clock.advance(std::chrono::hours(25));
  for (int i = 0; i < 100; ++i) put(10 + i % 5);
  (void)clean();
  last.erase(3);
  check();
  const auto seen = world.offsets(t(), kafka::Offset(0));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), tombstones[3]), 0);
}

TEST_F(Compaction, AbortedRecordsGoAndCommittedOnesStay) {
  constexpr kafka::ProducerId p{5};
  const auto send = [&](std::int32_t sequence, const std::string& key) {
    return world
        .append(t(), make_batch({.key = key,
                                 .producer_id = p,
                                 .producer_epoch = kafka::ProducerEpoch(0),
                                 .base_sequence = sequence,
                                 .transactional = true}))
        ->base_offset.value;
  };
  last[100] = send(0, "a");
  ASSERT_TRUE(world.append(t(), make_marker(p, kafka::ProducerEpoch(0), true, 0), {AppendOrigin::coordinator, {}}));
  const auto aborted = send(1, "a");
  ASSERT_TRUE(world.append(t(), make_marker(p, kafka::ProducerEpoch(0), false, 0), {AppendOrigin::coordinator, {}}));
  for (int i = 0; i < 60; ++i) put(i % 5);
  EXPECT_GT(clean(), 0U);
  check();
  auto seen = world.offsets(t(), kafka::Offset(0));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), aborted), 0);
  world.crash();
  EXPECT_EQ(t().last_stable_offset(), t().high_watermark());
  check();
}

TEST_F(Compaction, ACrashAtAnyStepLosesNothing) {
  for (int steps = 0; steps < 12; ++steps) {
    for (const bool machine : {false, true}) {
      for (int i = 0; i < 60; ++i) put(i % 10);
      std::optional<kafka::Offset> flushed;
      t().flush([&](const auto& done) { flushed = *done; });
      world.settle();
      t().clean([](const auto&) {});
      for (int i = 0; i < steps; ++i) world.step();
      world.crash(machine);
      check();
    }
  }
}

TEST_F(Compaction, ACrashBetweenTwoRenamesIsFinishedAtStart) {
  for (int i = 0; i < 60; ++i) put(i % 10);
  // As after the renames to .swap, before the old segments went: the copy of the first two segments is in place of
  // both.
  const auto bases = [&] {
    std::vector<std::string> names;
    for (const auto& entry : *world.disk.list("/logs/t-0"))
      if (entry.name.ends_with(".log")) names.push_back(entry.name);
    return names;
  };
  const auto before = bases();
  ASSERT_GT(before.size(), 3U);
  const auto first = world.disk.content("/logs/t-0/" + before[0]);
  const auto second = world.disk.content("/logs/t-0/" + before[1]);
  auto both = first;
  both.insert(both.end(), second.begin(), second.end());
  const auto seen = world.offsets(t(), kafka::Offset(0));
  ASSERT_TRUE(world.disk.open("/logs/t-0/" + before[0] + ".swap", OpenMode::create));
  world.disk.damage("/logs/t-0/" + before[0] + ".swap", 0, both);
  world.crash();
  EXPECT_EQ(bases().size(), before.size() - 1);
  EXPECT_EQ(world.offsets(t(), kafka::Offset(0)), seen);
}

}  // namespace
}  // namespace ciuic::broker
