#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "transport/base/clock.h"

namespace ciuic::broker {

/// How long a grant may be read. Shared by the session that renews it and the chunks it covers; any thread.
/// Bit 0: frozen, it is renewed no more. The rest: its end on the broker's clock. A renewal and a freeze never cross:
/// who freezes learns the last end that a client was ever told.
class Lease {
 public:
  /// Of memory that must never be reused.
  static constexpr Clock::TimePoint for_ever{Clock::Duration(std::int64_t{1} << 61)};

  explicit Lease(Clock::TimePoint end) : state_(encode(end)) {}

  /// False once frozen or released.
  bool renew(Clock::TimePoint end) {
    auto state = state_.load(std::memory_order_acquire);
    do
      if ((state & 1) != 0) return false;
    while (!state_.compare_exchange_weak(state, std::max(state, encode(end)), std::memory_order_acq_rel));
    return true;
  }
  /// No more renewals; gives the end.
  Clock::TimePoint freeze() { return decode(state_.fetch_or(1, std::memory_order_acq_rel)); }
  /// The client said that it reads no more.
  void release() { state_.store(1, std::memory_order_release); }
  [[nodiscard]] bool frozen() const { return (state_.load(std::memory_order_acquire) & 1) != 0; }
  [[nodiscard]] Clock::TimePoint end() const { return decode(state_.load(std::memory_order_acquire)); }
  /// True when no READ under it can be on its way any more. A released one is over at once.
  [[nodiscard]] bool over(Clock::TimePoint now, Milliseconds longest_read) const {
    const auto state = state_.load(std::memory_order_acquire);
    return state == 1 || decode(state) + longest_read <= now;
  }

 private:
  static std::int64_t encode(Clock::TimePoint end) {
    return std::max<std::int64_t>(end.time_since_epoch().count(), 1) * 2;
  }
  static Clock::TimePoint decode(std::int64_t state) { return Clock::TimePoint(Clock::Duration(state / 2)); }
  std::atomic<std::int64_t> state_;
};

}  // namespace ciuic::broker
