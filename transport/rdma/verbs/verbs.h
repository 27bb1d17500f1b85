#pragma once
#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// Production: READs of reliable-connected queue pairs over InfiniBand, RoCE and iWARP, connected by rdma_cm.
///
/// Addresses are `ip:port`, IPv6 in brackets, several with commas between: one a device ("rail"), at most two. The
/// route to the address chooses device, port and GID, as rdma_cm does it for every program of the host.
///
/// Kept by the device: keys, bounds, read-only (twice: the region's rights and, but for iWARP devices that do not know
/// them, the queue pair's). One protection domain for each principal and rail. Kept by order: after `Region::revoke`
/// the registration is gone, its result checked. A hostile peer can waste its own connection only: each is bounded,
/// authenticated by its one-time token in the connection request, and cut at the first thing it sends.
///
/// A listener whose device is removed listens again once a device has its address; addresses that were asked for are
/// waited for in the same way. Regions and connections are of the devices that were there: see `Domain::current`.
///
/// librdmacm and libibverbs are loaded at run time: programs work on hosts without them. Errors: no_device (no library,
/// or no device and not `device_may_come`).
[[nodiscard]] Result<std::shared_ptr<Provider>> make_verbs_provider(const Clock& clock, bool device_may_come = false);

struct VerbsAddress {
  std::string address;  ///< without a port
  std::string device;
};
/// Addresses of this host that belong to a device, IPv4 first. Errors: no_device, resources_exhausted.
[[nodiscard]] Result<std::vector<VerbsAddress>> verbs_addresses();

}  // namespace ciuic::rdma
