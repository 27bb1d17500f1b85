#include "client/core/frame_memory.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#include <algorithm>
#include <bit>
#include <chrono>

namespace ciuic::client::core {

namespace {
/// Below, the allocator keeps memory itself (glibc's M_MMAP_THRESHOLD).
constexpr std::size_t large = 128U << 10;
constexpr std::size_t kept_max = 128U << 20;
constexpr std::chrono::seconds unwanted{10};

/// In steps of an eighth, so that answers of about one size share blocks.
std::size_t rounded(std::size_t bytes) {
  const auto step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}
}  // namespace

FrameMemory::~FrameMemory() {
  while (!free_.empty()) drop(std::prev(free_.end()));
}

std::shared_ptr<std::byte[]> FrameMemory::take(std::size_t bytes, Clock::TimePoint now) {
  std::unique_ptr<std::byte[]> memory;
  auto size = rounded(std::max(bytes, large));
  {
    const std::scoped_lock lock(mutex_);
    now_ = now;
    for (std::size_t i = free_.size(); i-- > 0;) {
      if (now - free_[i].free_since > unwanted) drop(free_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (bytes >= large) {
      auto best = free_.end();
      for (auto one = free_.begin(); one != free_.end(); ++one) {
        // A small answer that the program holds must not hold a large block.
        if (one->size < bytes || one->size / 2 > size) continue;
        if (best == free_.end() || one->size < best->size) best = one;
      }
      if (best != free_.end()) {
        memory = std::move(best->memory);
        size = best->size;
        kept_ -= size;
        free_.erase(best);
      }
    }
  }
  if (bytes < large) return std::make_shared_for_overwrite<std::byte[]>(bytes);
  if (memory)
    ASAN_UNPOISON_MEMORY_REGION(memory.get(), size);
  else
    memory = std::make_unique_for_overwrite<std::byte[]>(size);
  return {memory.release(), [self = shared_from_this(), size](std::byte* ended) { self->give_back(ended, size); }};
}

void FrameMemory::give_back(std::byte* memory, std::size_t size) noexcept {
  std::unique_ptr<std::byte[]> block(memory);
  const std::scoped_lock lock(mutex_);
  if (kept_ + size > kept_max) return;
  ASAN_POISON_MEMORY_REGION(memory, size);
  kept_ += size;
  free_.push_back({std::move(block), size, now_});
}

void FrameMemory::drop(std::vector<Block>::iterator block) {
  ASAN_UNPOISON_MEMORY_REGION(block->memory.get(), block->size);
  kept_ -= block->size;
  free_.erase(block);
}

std::size_t FrameMemory::kept() const {
  const std::scoped_lock lock(mutex_);
  return kept_;
}

}  // namespace ciuic::client::core
