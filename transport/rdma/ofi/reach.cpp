// Endpoints without connections. Not here: who may know them, and for how long.
#include "transport/rdma/ofi/reach.h"

#include <algorithm>
#include <cstring>

#include "transport/rdma/ofi/protocol.h"

namespace ciuic::rdma::ofi {

Result<Reach> Reach::open(const Device& device, fid_domain& domain, std::size_t completions_max) {
  Reach reach;
  auto peers = open_peers(device, domain);
  if (!peers) return peers.error();
  reach.peers = std::move(*peers);
  auto completions = open_completions(domain, completions_max, device.kind.wakes ? Wait::by_descriptor : Wait::none);
  if (!completions) return completions.error();
  reach.completions = std::move(*completions);
  auto endpoint = open_endpoint(domain, *device.info, *reach.peers, *reach.completions);
  if (!endpoint) return endpoint.error();
  reach.endpoint = std::move(*endpoint);
  reach.name.resize(name_bytes_max);
  std::size_t length = reach.name.size();
  if (const int error = fi_getname(&reach.endpoint->fid, reach.name.data(), &length); error != 0)
    return error == -FI_ETOOSMALL ? Fault::incompatible : fault_of(error);
  reach.name.resize(length);
  if (device.kind.by_ip) {
    Address listening;
    std::memcpy(&listening.storage, reach.name.data(), std::min(length, sizeof listening.storage));
    limit_patience(listening);
  }
  return reach;
}

Result<fi_addr_t> Reach::meet(Bytes peer_name) {
  // Nobody can be spoken to by a name of another form. Libraries read as many bytes as they think a name has.
  if (peer_name.size() != name.size()) return Fault::incompatible;
  Buffer padded(peer_name.begin(), peer_name.end());
  padded.resize(name_bytes_max);
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  if (fi_av_insert(peers.get(), padded.data(), 1, &peer, 0, nullptr) != 1 || peer == FI_ADDR_NOTAVAIL)
    return Fault::incompatible;
  return peer;
}

void Reach::forget(fi_addr_t peer) { (void)fi_av_remove(peers.get(), &peer, 1, 0); }

}  // namespace ciuic::rdma::ofi
