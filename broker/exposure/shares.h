#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/clock.h"

namespace ciuic::broker {

/// Who has how much memory pinned for devices, and who gives way when there is no room for more. What a host and its
/// devices take is not known before they refuse: what was pinned then is divided equally among the principals that pin
/// or want to. Any thread.
class PinnedShares {
 public:
  /// What ran out: locked memory, or a device's registrations.
  enum class Of : std::uint8_t { bytes, regions };
  struct Excess {
    std::string principal;
    Of of;
    std::int64_t amount;  ///< above its share
  };

  /// Room is short for `patience` after the last refusal.
  PinnedShares(const Clock& clock, Clock::Duration patience) : clock_(clock), patience_(patience) {}

  void add(std::string_view principal, std::uint64_t bytes);
  void remove(std::string_view principal, std::uint64_t bytes);
  /// The device refused to pin more for `principal`.
  void refused(std::string_view principal, Of what);
  struct Allowance {
    Of of;
    std::int64_t amount;
  };
  /// How much more `principal` may pin: up to its share while somebody else was refused who has less. Nothing: any.
  [[nodiscard]] std::optional<Allowance> allowance(std::string_view principal) const;
  /// Who has most of what is short; nobody: it is not short, or nobody has any.
  [[nodiscard]] std::optional<std::string> largest() const;
  /// Who has most, if that is clearly more than its share while `for_whom` has less than that.
  [[nodiscard]] std::optional<Excess> excess(std::string_view for_whom) const;
  [[nodiscard]] std::int64_t bytes_of(std::string_view principal) const;

 private:
  struct Holding {
    std::int64_t bytes = 0, regions = 0;
    std::optional<Clock::TimePoint> refused_at{};
    [[nodiscard]] std::int64_t of(Of what) const { return what == Of::bytes ? bytes : regions; }
  };
  using Holdings = std::map<std::string, Holding, std::less<>>;
  // Behind mutex_.
  [[nodiscard]] bool is_short() const;
  [[nodiscard]] bool in_want(const Holding& holding) const;
  [[nodiscard]] std::int64_t share() const;
  [[nodiscard]] Holdings::const_iterator most() const;
  void forget_idle();

  const Clock& clock_;
  const Clock::Duration patience_;
  mutable std::mutex mutex_;
  Holdings holdings_;
  Holding all_;
  Of short_of_ = Of::bytes;
  std::int64_t room_ = 0;  // of what is short, as far as known
  std::optional<Clock::TimePoint> short_until_;
};

}  // namespace ciuic::broker
