#pragma once
#include <memory>

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
[[nodiscard]] std::shared_ptr<Provider> make_memory_provider(const MemoryFabric& fabric, const Clock& clock);

}  // namespace ciuic::rdma
