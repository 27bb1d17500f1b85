#pragma once
#include <atomic>
#include <memory>
#include <mutex>

namespace ciuic::broker {

/// A value that one place replaces and every thread reads: readers take a lock only in the first read after a change.
/// At most one per T and process reads fast; more are correct, but share the thread's cached copy and refill it in
/// turn.
template <class T>
class Published {
 public:
  using Pointer = std::shared_ptr<const T>;

  explicit Published(Pointer first) : current_(std::move(first)), version_(next_version()) {}

  [[nodiscard]] Pointer get() const {
    thread_local Cached cached;
    const auto version = version_.load(std::memory_order_acquire);
    if (cached.version != version) {
      const std::lock_guard lock(mutex_);
      cached.value = current_;
      cached.version = version_.load(std::memory_order_relaxed);
    }
    return cached.value;
  }
  void set(Pointer next) {
    const std::lock_guard lock(mutex_);
    current_ = std::move(next);
    version_.store(next_version(), std::memory_order_release);
  }

 private:
  struct Cached {
    std::uint64_t version = 0;
    Pointer value;
  };
  /// Unique over all objects, so that a cached copy can never be taken for another object's.
  static std::uint64_t next_version() {
    static std::atomic<std::uint64_t> counter{0};
    return counter.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  mutable std::mutex mutex_;
  Pointer current_;
  std::atomic<std::uint64_t> version_;
};

}  // namespace ciuic::broker
