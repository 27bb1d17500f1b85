#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// A network inside the process: what every `memory` provider made over it can reach. Any thread.
class MemoryFabric {
 public:
  MemoryFabric();
  ~MemoryFabric();
  struct State;
  [[nodiscard]] const std::shared_ptr<State>& state() const { return state_; }
  /// The one that the registry's provider uses.
  [[nodiscard]] static MemoryFabric& of_process();

 private:
  std::shared_ptr<State> state_;
};

/// The reference provider: broker and client in one process. It enforces everything the contract names: keys by domain,
/// bounds, read-only, revocation, one-time tokens; an access error breaks the endpoint and cuts the broker's side. A
/// READ happens when its completion is polled, so a revocation between post and poll is seen. Deterministic: no
/// threads.
struct MemoryOptions {
  bool pins_memory = false;                              ///< its domains say so, as those of real devices do
  std::function<std::optional<Fault>()> expose_fault{};  ///< asked at every `Domain::expose`; null: never
  std::function<std::uint64_t()> room{};                 ///< bytes exposed at a time, at most; null: any
  std::function<std::uint64_t()> devices{};              ///< another number: others than before; null: always the same
};
[[nodiscard]] std::shared_ptr<Provider> make_memory_provider(const MemoryFabric& fabric, const Clock& clock,
                                                             MemoryOptions options = {});

}  // namespace ciuic::rdma
