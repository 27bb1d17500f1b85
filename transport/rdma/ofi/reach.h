#pragma once
#include "transport/rdma/ofi/objects.h"

namespace ciuic::rdma::ofi {

/// An endpoint without connections, for either side: whoever knows its name and a key reads by it.
struct Reach {
  // The endpoint ends before what it is bound to.
  Owned<fid_av> peers;
  Owned<fid_cq> completions;
  Owned<fid_ep> endpoint;
  Buffer name;  ///< libfabric's, for peers to know it by

  [[nodiscard]] static Result<Reach> open(const Device& device, fid_domain& domain, std::size_t completions_max);
  /// Knows a peer by its name from now on. Error: incompatible (none that the provider could have).
  [[nodiscard]] Result<fi_addr_t> meet(Bytes peer_name);
  /// Forgets it; providers that keep a connection underneath end it.
  void forget(fi_addr_t peer);
};

}  // namespace ciuic::rdma::ofi
