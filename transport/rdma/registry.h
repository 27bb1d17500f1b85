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
  /// For a broker that names the addresses to listen at: succeeds without a device, which may come. Null: as `make`.
  Result<std::shared_ptr<Provider>> (*make_before_device)(const Clock& clock) = nullptr;
};

/// All of this build, best for a client on another host first.
[[nodiscard]] std::span<const ProviderFactory> provider_factories();
/// Errors: unknown_provider, or why it cannot work on this host (`device_may_come`: that it has no device is none).
[[nodiscard]] Result<std::shared_ptr<Provider>> make_provider(std::string_view name, const Clock& clock,
                                                              bool device_may_come = false);

/// `<boot id>/<user id>` of this machine and process. Equal boot ids: same host.
[[nodiscard]] std::string host_id();

}  // namespace ciuic::rdma
