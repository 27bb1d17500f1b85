#pragma once
#include <memory>
#include <string>

#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// READs through UCX (libucp), by whatever UCX_TLS and UCX_NET_DEVICES choose: for readers that are trusted. UCX keeps
/// nobody to anything: whoever reaches the port may read and write the broker's memory, with or without a token
/// (docs/fabric.md). What honest readers need is here: bounds are checked by the endpoint, keys are told to connections
/// of their principal, and a region that ends is read by nobody before its memory is given back.
///
/// UCX is loaded at run time: programs work on hosts without it. Errors: no_device (no library). Whether its transports
/// work is found out by `open_domain` and `listen`, and by `connect`. `transports`: instead of UCX_TLS.
[[nodiscard]] Result<std::shared_ptr<Provider>> make_ucx_provider(const Clock& clock, std::string transports = {});

/// The version of UCX on this host. Errors: no_device (no library).
[[nodiscard]] Result<std::string> look_at_ucx();

}  // namespace ciuic::rdma
