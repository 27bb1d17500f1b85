#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/base/clock.h"

namespace ciuic::client::core {

/// Memory for answers, used again. A large block that the allocator gives back to the kernel costs a page fault for
/// each of its pages when the next one is filled: more than the copy out of the socket. `take` on one thread, the end
/// of what it gave on any.
class FrameMemory : public std::enable_shared_from_this<FrameMemory> {
 public:
  /// REQUIRES: held by a shared_ptr. What it gave keeps it.
  FrameMemory() = default;
  FrameMemory(const FrameMemory&) = delete;
  FrameMemory& operator=(const FrameMemory&) = delete;
  ~FrameMemory();

  /// `bytes` that hold anything. Blocks that nobody wanted for ten seconds go. Throws std::bad_alloc.
  [[nodiscard]] std::shared_ptr<std::byte[]> take(std::size_t bytes, Clock::TimePoint now);
  /// Bytes that wait to be used again, at most 128 MiB.
  [[nodiscard]] std::size_t kept() const;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size;
    Clock::TimePoint free_since;
  };
  void give_back(std::byte* memory, std::size_t size) noexcept;
  void drop(std::vector<Block>::iterator block);  // lock held

  mutable std::mutex mutex_;
  std::vector<Block> free_;
  std::size_t kept_ = 0;
  Clock::TimePoint now_{};
};

}  // namespace ciuic::client::core
