#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "transport/base/clock.h"
#include "transport/rdma/fault.h"
#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// How a provider is made. New ones get one row in providers.cpp; nothing else names them.
struct ProviderFactory {
  std::string_view name;
  std::string_view summary;  ///< for `ciuic doctor` and docs
  Result<std::shared_ptr<Provider>> (*make)(const Clock& clock);
  /// `make` takes a fraction of a second: not on an event loop, and not before it is known that the other side has it.
  bool loads_slowly = false;
};

/// All of this build, best for a client on another host first.
[[nodiscard]] std::span<const ProviderFactory> provider_factories();
/// Errors: unknown_provider, or why it cannot work on this host.
[[nodiscard]] Result<std::shared_ptr<Provider>> make_provider(std::string_view name, const Clock& clock);

/// `<boot id>/<user id>` of this machine and process. Equal boot ids: same host.
[[nodiscard]] std::string host_id();

}  // namespace ciuic::rdma
