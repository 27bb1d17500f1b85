// Memory: the chunk's state table, size classes, reuse inside a partition, zeroed pages, the read-only descriptor, and
// what an observer hears.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using testing::LogWorld;
using testing::make_batch;

TEST(ChunkTable, EveryPairOfStateAndEventIsDecided) {
  const std::set<std::tuple<ChunkState, ChunkEvent, ChunkState>> allowed = {
      {ChunkState::open, ChunkEvent::full, ChunkState::sealed},
      {ChunkState::sealed, ChunkEvent::want_back, ChunkState::draining},
      {ChunkState::draining, ChunkEvent::leases_over, ChunkState::revoked},
      {ChunkState::revoked, ChunkEvent::unpinned, ChunkState::free}};
  std::size_t found = 0;
  for (const auto state :
       {ChunkState::open, ChunkState::sealed, ChunkState::draining, ChunkState::revoked, ChunkState::free})
    for (const auto event : {ChunkEvent::full, ChunkEvent::want_back, ChunkEvent::leases_over, ChunkEvent::unpinned})
      if (const auto to = next(state, event)) {
        EXPECT_TRUE(allowed.contains({state, event, *to}));
        ++found;
      }
  EXPECT_EQ(found, allowed.size());
}

TEST(Memory, ClassesArePowersOfTwo) {
  const auto arena = Arena::make({});
  EXPECT_EQ(arena->class_for(1), 64U << 10);
  EXPECT_EQ(arena->class_for((64U << 10) + 1), 128U << 10);
  EXPECT_EQ(arena->class_for(64U << 20), 64U << 20);
  EXPECT_EQ(arena->class_for(65U << 20), 128U << 20);
  EXPECT_FALSE(arena->class_for((1ULL << 30) + 1));
}

TEST(Memory, IsReusedInsideThePartitionAndPunchedUnderPressure) {
  auto config = LogWorld::small_arena();
  config.budget_bytes = 64U << 10;
  const auto arena = Arena::make(config);
  const auto memory = arena->make_memory();
  const auto first = memory->allocate(4096, MemoryFor::append);
  ASSERT_TRUE(first);
  first->bytes[7] = std::byte{42};
  memory->release(*first);
  EXPECT_EQ(arena->kept_free_bytes(), 4096U);
  const auto again = memory->allocate(4096, MemoryFor::append);
  EXPECT_EQ(again->bytes.data(), first->bytes.data());
  EXPECT_EQ(arena->used_bytes(), 4096U);
  EXPECT_EQ(arena->in_use_bytes(), 4096U);
  memory->release(*again);
  // Another's chunks and this one's kept range pass the budget: its pages go to the kernel, and come again as zeros.
  const auto other = arena->make_memory();
  std::vector<ChunkRange> taken;
  for (int i = 0; i < 16; ++i) taken.push_back(*other->allocate(4096, MemoryFor::append));
  EXPECT_EQ(arena->kept_free_bytes(), 0U);
  EXPECT_EQ(arena->used_bytes(), 16U * 4096U);
  EXPECT_EQ(memory->allocate(4096, MemoryFor::append)->bytes[7], std::byte{0});
}

TEST(Memory, AFullArenaGivesABusyPartitionItsOwnPagesBackAndAQuietOneNone) {
  auto config = LogWorld::small_arena();
  config.budget_bytes = 256U << 10;  // 64 chunks of a page
  const auto arena = Arena::make(config);
  const auto busy = arena->make_memory();
  const auto quiet = arena->make_memory();
  std::deque<std::shared_ptr<Chunk>> chunks;
  std::vector<std::shared_ptr<Chunk>> asked;
  std::uint64_t sequence = 0;
  std::uint64_t fresh = 0;
  const Buffer header(4096);
  const auto take = [&](const std::shared_ptr<PartitionMemory>& memory) {
    const auto range = memory->allocate(4096, MemoryFor::append);
    ASSERT_TRUE(range);
    fresh += range->paged == 0 ? 1 : 0;
    chunks.push_back(std::make_shared<Chunk>(memory, *range, ++sequence, kafka::Offset(0), 0, kafka::Offset(0)));
    [[maybe_unused]] const auto bytes = chunks.back()->append(header, {});
    chunks.back()->grown(4096, kafka::Offset(0), kafka::Offset(1));
    chunks.back()->touch(sequence);
    arena->watch(chunks.back(), [&asked](const std::shared_ptr<Chunk>& cold) { asked.push_back(cold); });
    for (const auto& one : std::exchange(asked, {})) std::erase(chunks, one);
    ASSERT_LE(arena->used_bytes(), config.budget_bytes + 4096);
  };
  for (int i = 0; i < 20; ++i) take(quiet);
  for (int i = 0; i < 200; ++i) take(busy);
  const auto before = std::exchange(fresh, 0);
  EXPECT_LT(before, 100U);
  for (int i = 0; i < 1000; ++i) take(busy);
  EXPECT_LT(fresh, 100U) << "of 1000";
  EXPECT_LE(arena->kept_free_bytes(), config.budget_bytes / 4);
  for (int i = 0; i < 20; ++i) take(quiet);
  EXPECT_GE(fresh, 20U) << "what a partition does not use is not kept for it";
}

TEST(Chunk, HoldsWhatWasAppendedWhetherItsPagesExistOrNot) {
  // Fresh pages are written by the memfd's descriptor, pages that exist through the mapping: both ways must give the
  // same bytes to the mapping and to a reader's descriptor, batches that end inside a page included.
  const auto arena = Arena::make({});
  const auto memory = arena->make_memory();
  std::mt19937_64 dice(4);
  std::uint64_t sequence = 0;
  for (const std::uint32_t paged : {0U, 256U << 10, 32U << 10, 0U}) {
    auto range = memory->allocate(256U << 10, MemoryFor::append);
    ASSERT_TRUE(range);
    range->paged = paged;
    Chunk chunk(memory, *range, ++sequence, kafka::Offset(0), 0, kafka::Offset(0));
    Buffer expected;
    kafka::Offset next{0};
    while (true) {
      const auto small = dice() % 2 == 0;
      Buffer batch(61 + dice() % (small ? 200 : 30'000));
      for (auto& byte : batch) byte = static_cast<std::byte>(dice());
      if (batch.size() > chunk.room()) break;
      const auto at = Bytes(batch);
      const auto copy = chunk.append(at.first(61), at.subspan(61));
      copy[60] = batch[60] = std::byte{9};  // the owner may still change it
      chunk.grown(static_cast<std::uint32_t>(batch.size()), next, next + 1);
      next = next + 1;
      expected.insert(expected.end(), batch.begin(), batch.end());
      ASSERT_TRUE(std::ranges::equal(chunk.bytes(), expected)) << "after " << next.value << " batches";
    }
    const auto descriptor = memory->read_only_descriptor();
    Buffer seen(expected.size());
    ASSERT_EQ(::pread(descriptor.get(), seen.data(), seen.size(), static_cast<off_t>(range->memfd_offset)),
              static_cast<ssize_t>(seen.size()));
    EXPECT_EQ(seen, expected);
  }
}

TEST(Memory, BudgetIsForExposureFirst) {
  auto config = LogWorld::small_arena();
  config.budget_bytes = 64U << 10;
  const auto arena = Arena::make(config);
  const auto memory = arena->make_memory();
  for (int i = 0; i < 14; ++i) ASSERT_TRUE(memory->allocate(4096, MemoryFor::exposure)) << i;
  EXPECT_FALSE(memory->allocate(4096, MemoryFor::exposure));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(memory->allocate(4096, MemoryFor::fetch)) << i;
  EXPECT_FALSE(memory->allocate(4096, MemoryFor::fetch));
  EXPECT_TRUE(memory->allocate(4096, MemoryFor::append));
}

TEST(Memory, RoomIsMadeForWhatIsComingNotOnlyAboveTheLimit) {
  // Just below the limit nothing seems to press; who is refused there must find room when it comes again.
  auto config = LogWorld::small_arena();
  config.budget_bytes = 64U << 10;
  const auto arena = Arena::make(config);
  const auto memory = arena->make_memory();
  std::vector<std::shared_ptr<Chunk>> chunks, asked;
  for (std::uint64_t i = 0; i < 13; ++i) {
    const auto range = memory->allocate(4096, MemoryFor::append);
    chunks.push_back(std::make_shared<Chunk>(memory, *range, i, kafka::Offset(0), 0, kafka::Offset(0)));
    // As owners do: the word is only noted, the chunk goes later.
    arena->watch(chunks.back(), [&asked](const std::shared_ptr<Chunk>& cold) { asked.push_back(cold); });
  }
  EXPECT_TRUE(asked.empty());
  EXPECT_FALSE(memory->allocate(8192, MemoryFor::exposure));
  ASSERT_FALSE(asked.empty());
  for (const auto& one : asked) std::erase(chunks, one);
  asked.clear();
  EXPECT_TRUE(memory->allocate(8192, MemoryFor::exposure));
}

TEST(Memory, TheHandedOutDescriptorOnlyReads) {
  const auto arena = Arena::make(LogWorld::small_arena());
  const auto memory = arena->make_memory();
  EXPECT_FALSE(memory->read_only_descriptor());
  const auto range = memory->allocate(8192, MemoryFor::append);
  range->bytes[100] = std::byte{9};
  const auto fd = memory->read_only_descriptor();
  ASSERT_TRUE(fd);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), static_cast<off_t>(range->memfd_offset)),
      MAP_FAILED);
  void* seen = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, fd.get(), static_cast<off_t>(range->memfd_offset));
  ASSERT_NE(seen, MAP_FAILED);
  EXPECT_EQ(static_cast<std::byte*>(seen)[100], std::byte{9});
  EXPECT_NE(::mprotect(seen, 8192, PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
  ::munmap(seen, 8192);
}

TEST(Memory, AQuietPartitionCostsNothingAndABusyOneGrows) {
  LogWorld world;
  world.start();
  for (int i = 0; i < 50; ++i) world.create("quiet", i);
  EXPECT_EQ(world.arena->used_bytes(), 0U);
  const auto busy = world.create("busy");
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(world.append(*busy, make_batch({.value_bytes = 3000})));
  EXPECT_EQ(busy->chunks_from(kafka::Offset(0), 1).front()->memory().size(), world.arena_config.chunk_bytes_min);
  EXPECT_EQ(busy->chunks_from(kafka::Offset(299), 1).front()->memory().size(), world.arena_config.chunk_bytes_max);
  ASSERT_TRUE(world.append(*world.find("quiet", 3), make_batch({})));
  EXPECT_EQ(world.find("quiet", 3)->chunks_from(kafka::Offset(0), 1).front()->memory().size(),
            world.arena_config.chunk_bytes_min);
}

struct Listener final : LogObserver {
  void chunk_opened(Partition&, const std::shared_ptr<Chunk>& chunk) override { opened.push_back(chunk); }
  void chunk_sealed(Partition&, const std::shared_ptr<Chunk>& chunk) override {
    EXPECT_EQ(chunk->state(), ChunkState::sealed);
    ++sealed;
  }
  void chunk_wanted_back(Partition&, const std::shared_ptr<Chunk>& chunk, Task done) override {
    EXPECT_EQ(chunk->state(), ChunkState::draining);
    wanted.push_back(std::move(done));
  }
  void committed(Partition&, const Committed& position) override { positions.push_back(position); }
  void layout_changed(Partition&, LayoutChange change) override { changes.push_back(change); }
  std::vector<std::weak_ptr<Chunk>> opened;
  int sealed = 0;
  std::vector<Task> wanted;
  std::vector<Committed> positions;
  std::vector<LayoutChange> changes;
};

TEST(Observer, HearsPositionsInOrderAndBytesTheyName) {
  Listener listener;
  LogWorld world(testing::seed_from_env(11), LogWorld::small_arena(), &listener);
  world.start();
  const auto partition = world.create("t");
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(world.append(*partition, make_batch({.value_bytes = 500})));
  ASSERT_FALSE(listener.positions.empty());
  auto before = listener.positions.front();
  for (const auto& position : listener.positions) {
    EXPECT_GE(std::pair(position.chunk_sequence, position.chunk_length),
              std::pair(before.chunk_sequence, before.chunk_length));
    EXPECT_GE(position.high_watermark, before.high_watermark);
    before = position;
  }
  EXPECT_EQ(before.high_watermark, kafka::Offset(30));
  const auto last = partition->chunks_from(kafka::Offset(29), 1).front();
  EXPECT_EQ(before.chunk_sequence, last->sequence());
  EXPECT_EQ(before.chunk_length, last->length());
  EXPECT_GT(listener.sealed, 0);
}

TEST(Observer, KeepsAChunkUntilItsLeasesAreOver) {
  Listener listener;
  auto config = LogWorld::small_arena();
  config.budget_bytes = 128U << 10;
  config.chunk_bytes_max = 4096;
  LogWorld world(testing::seed_from_env(12), config, &listener);
  world.start();
  const auto partition = world.create("t");
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(world.append(*partition, make_batch({.value_bytes = 500})));
  ASSERT_FALSE(listener.wanted.empty());
  const auto first = listener.opened.front().lock();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->state(), ChunkState::draining);
  EXPECT_EQ(partition->resident(kafka::Offset(0)), first);
  const auto content = to_buffer(first->bytes());
  for (auto& done : std::exchange(listener.wanted, {})) done();
  EXPECT_EQ(to_buffer(first->bytes()), content);
  world.settle();
  EXPECT_EQ(first->state(), ChunkState::revoked);
  EXPECT_EQ(partition->resident(kafka::Offset(0)), nullptr);
  EXPECT_EQ(to_buffer(first->bytes()), content);  // pinned here
  for (auto& done : std::exchange(listener.wanted, {})) done();
}

}  // namespace
}  // namespace ciuic::broker
