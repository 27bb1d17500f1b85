#pragma once
#include <chrono>
#include <cstdint>

namespace ciuic {

using Milliseconds = std::chrono::milliseconds;

/// The only source of time outside tests' own measuring: a simulation owns it (`ManualClock`).
class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  struct Tag {};
  using TimePoint = std::chrono::time_point<Tag, Duration>;

  virtual ~Clock() = default;
  /// Never goes back; its zero means nothing. For deadlines and leases.
  [[nodiscard]] virtual TimePoint now() const = 0;
  /// Milliseconds since 1970 UTC, as Kafka's timestamps. May jump.
  [[nodiscard]] virtual std::int64_t wall_ms() const = 0;
};

/// The machine's clocks. One object for the process; any thread.
[[nodiscard]] const Clock& system_clock();

/// Moves only when told to. Not thread safe: for simulations, which run on one thread.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(std::int64_t wall_ms = 1'700'000'000'000) : wall_start_ms_(wall_ms) {}
  [[nodiscard]] TimePoint now() const override { return now_; }
  [[nodiscard]] std::int64_t wall_ms() const override {
    return wall_start_ms_ + std::chrono::duration_cast<Milliseconds>(now_.time_since_epoch()).count();
  }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
  std::int64_t wall_start_ms_;
};

}  // namespace ciuic
