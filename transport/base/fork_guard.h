#pragma once
#include <pthread.h>

#include <atomic>

namespace ciuic {

/// Tells a child forked after this was made: threads, connections, mappings and device files are the parent's there.
/// Any thread; costs one load.
class ForkGuard {
 public:
  ForkGuard() : made_at_(depth().load(std::memory_order_relaxed)) {}
  [[nodiscard]] bool in_child() const { return depth().load(std::memory_order_relaxed) != made_at_; }

 private:
  static std::atomic<unsigned>& depth() {
    static std::atomic<unsigned> forks{0};
    static const int registered =
        ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    (void)registered;
    return forks;
  }
  unsigned made_at_;
};

}  // namespace ciuic
