#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

#include "transport/base/clock.h"

namespace ciuic::client::core {

/// The lease of one grant, as three threads see it: the loop renews it, the reader moves on under it, views hold what
/// they show. Any thread.
class Lease {
 public:
  Lease(std::int64_t grant_id, std::int64_t position, Clock::TimePoint deadline)
      : grant_id_(grant_id), position_(position) {
    extend(deadline);
  }

  [[nodiscard]] std::int64_t grant_id() const { return grant_id_; }
  [[nodiscard]] bool in_force(Clock::TimePoint now) const {
    return now.time_since_epoch().count() < deadline_.load(std::memory_order_acquire);
  }
  [[nodiscard]] Clock::TimePoint deadline() const {
    return Clock::TimePoint(Clock::Duration(deadline_.load(std::memory_order_acquire)));
  }
  void extend(Clock::TimePoint to) {
    auto now = deadline_.load(std::memory_order_relaxed);
    while (now < to.time_since_epoch().count() &&
           !deadline_.compare_exchange_weak(now, to.time_since_epoch().count(), std::memory_order_release)) {
    }
  }
  /// The reader's next offset.
  void moved_to(std::int64_t position) { position_.store(position, std::memory_order_relaxed); }
  /// The broker renews it no more: a new grant is wanted before it ends.
  void refuse() { refused_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool refused() const { return refused_.load(std::memory_order_relaxed); }
  /// The reader is done with the grant: only views keep it.
  void retire() { retired_.store(true, std::memory_order_release); }
  /// Nobody reads under it and no view is left.
  [[nodiscard]] bool idle() const {
    if (!retired_.load(std::memory_order_acquire)) return false;
    const std::scoped_lock lock(mutex_);
    return held_.empty();
  }
  /// Bytes below this offset are needed by nobody.
  [[nodiscard]] std::int64_t needed_from() const {
    const std::scoped_lock lock(mutex_);
    const auto position = position_.load(std::memory_order_relaxed);
    return held_.empty() ? position : std::min(position, *held_.begin());
  }
  void hold(std::int64_t first_offset) {
    const std::scoped_lock lock(mutex_);
    held_.insert(first_offset);
  }
  void let_go(std::int64_t first_offset) {
    const std::scoped_lock lock(mutex_);
    held_.erase(held_.find(first_offset));
  }

 private:
  const std::int64_t grant_id_;
  std::atomic<std::int64_t> deadline_{0};  // ns of the system clock
  std::atomic<std::int64_t> position_;
  std::atomic<bool> retired_{false}, refused_{false};
  mutable std::mutex mutex_;
  std::multiset<std::int64_t> held_;
};

}  // namespace ciuic::client::core
