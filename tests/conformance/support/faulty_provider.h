#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "transport/rdma/provider.h"

namespace ciuic::testing {

using namespace ciuic::rdma;  // NOLINT: a test support header

/// Chances of each fault per READ, in thousandths. All zero: the decorator is transparent.
struct FaultPlan {
  int delay = 0;             ///< completes some polls later
  int torn = 0;              ///< bytes of two moments: a part is fetched now, the rest when polled
  int short_success = 0;     ///< "success", the tail of the destination untouched
  int garbage = 0;           ///< "success", one word of the bytes is anything
  int error = 0;             ///< access_error: endpoint broken
  int disconnect = 0;        ///< peer_gone
  int lost = 0;              ///< never completes (until close)
  int revoke_in_flight = 0;  ///< `on_revoke` is called some polls before the READ is executed; it may only post
  int delay_polls_max = 5;
};

/// What a test wants of the n-th READ (counted from 1 over all endpoints of the provider).
class Script {
 public:
  struct Step {
    std::optional<Fault> complete_with{};
    std::optional<std::uint32_t> deliver_only{};  ///< "success" with this many bytes
    std::optional<std::uint32_t> tear_after{};    ///< this many bytes now, the rest when polled
    std::function<void()> before{};               ///< runs before the READ is executed
  };
  Step& on_read(std::uint64_t n) { return steps_[n]; }
  [[nodiscard]] std::optional<Step> take() {
    const auto found = steps_.find(++count_);
    if (found == steps_.end()) return std::nullopt;
    return found->second;
  }
  [[nodiscard]] std::uint64_t reads() const { return count_; }

 private:
  std::map<std::uint64_t, Step> steps_;
  std::uint64_t count_ = 0;
};

/// Shared by a provider and its endpoints.
struct FaultState {
  FaultPlan plan{};
  Script script{};
  std::mt19937_64 dice{1};
  std::function<void()> on_revoke{};
  bool enabled = true;
  std::map<std::string, std::uint64_t> injected{};

  bool hits(int thousandths, const char* what) {
    if (!enabled || thousandths <= 0 || static_cast<int>(dice() % 1000) >= thousandths) return false;
    ++injected[what];
    return true;
  }
};

/// Wraps any provider's client side; the broker's side passes through. Completions of one endpoint stay in order, as
/// the contract says; "reordering" is of execution: a READ posted earlier may fetch its bytes later than one behind it.
[[nodiscard]] std::shared_ptr<Provider> make_faulty(std::shared_ptr<Provider> inner,
                                                    std::shared_ptr<FaultState> faults);

}  // namespace ciuic::testing
