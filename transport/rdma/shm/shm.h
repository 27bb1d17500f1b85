#pragma once
#include <memory>

#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// For a client on the broker's host: the broker hands read-only descriptors of its memfds over a UNIX socket, the
/// client maps each once and reads in place. The broker's listener is one thread that never waits for a peer.
///
/// Kept by the kernel: nobody writes. Kept by the client's endpoint against mistakes: keys and bounds. Not kept: a
/// mapping stays after a revocation, and a hostile client reads all of a partition that it was granted a part of; both
/// are declared in the caps and are the reader's checks' business (design, section 4). docs/protocol.md has the
/// handshake byte by byte.
[[nodiscard]] std::shared_ptr<Provider> make_shm_provider(const Clock& clock);

}  // namespace ciuic::rdma
