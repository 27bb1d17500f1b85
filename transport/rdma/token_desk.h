#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/clock.h"
#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// The tokens that a listener waits for: each good once, until its time. Any thread.
class TokenDesk {
 public:
  struct Admission {
    std::shared_ptr<Domain> domain;
    SessionId session;
  };
  explicit TokenDesk(const Clock& clock) : clock_(clock) {}

  void admit(const Token& token, std::shared_ptr<Domain> domain, SessionId session, Clock::TimePoint until) {
    const std::scoped_lock lock(mutex_);
    const auto now = clock_.now();
    std::erase_if(waiting_, [now](const Waiting& one) { return one.until <= now; });
    waiting_.push_back({token, {std::move(domain), session}, until});
  }
  /// Takes the token out if it is one: a second show of it is refused.
  [[nodiscard]] std::optional<Admission> redeem(const Token& token) {
    const std::scoped_lock lock(mutex_);
    const auto now = clock_.now();
    std::optional<Admission> found;
    // Every token is compared whole: time tells nothing about how much of one was right.
    std::size_t at = waiting_.size();
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      std::uint8_t differs = 0;
      for (std::size_t b = 0; b < token.bytes.size(); ++b) differs |= token.bytes[b] ^ waiting_[i].token.bytes[b];
      if (differs == 0) at = i;
    }
    if (at == waiting_.size()) return std::nullopt;
    if (waiting_[at].until > now) found = std::move(waiting_[at].admission);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    return found;
  }
  void forget(SessionId session) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(waiting_, [session](const Waiting& one) { return one.admission.session == session; });
  }

 private:
  struct Waiting {
    Token token;
    Admission admission;
    Clock::TimePoint until;
  };
  const Clock& clock_;
  std::mutex mutex_;
  std::vector<Waiting> waiting_;
};

}  // namespace ciuic::rdma
