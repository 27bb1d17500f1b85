#pragma once
#include <functional>

#include "transport/base/clock.h"
#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// Tries a new iWARP connection with READs of nothing until one is answered. A broker's soft-iWARP hands its socket to
/// the queue pair only after it has answered the connection request: what comes in between lies there until more comes.
/// `post` posts one; would_block: there is no room now. REQUIRES: nothing else is under way on `endpoint`. Errors:
/// address_unreachable (none was answered by `deadline`), and those of `post` and of the endpoint.
[[nodiscard]] Result<void> first_read(Endpoint& endpoint, const Clock& clock, Clock::TimePoint deadline,
                                      const std::function<Result<void>()>& post);

}  // namespace ciuic::rdma
