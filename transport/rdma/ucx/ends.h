#pragma once
#include <memory>
#include <string>

#include "transport/base/clock.h"
#include "transport/rdma/ucx/domain.h"

/// The two ends of a connection: listener.cpp is the broker's, endpoint.cpp the client's.
namespace ciuic::rdma::ucx {

/// Every READ of a provider has them.
inline constexpr Caps caps{.read_bytes_max = 1U << 20, .reads_outstanding_max = 128};

[[nodiscard]] Result<std::unique_ptr<Listener>> listen(const ListenOptions& options, std::shared_ptr<Seat> seat,
                                                       const Clock& clock);
[[nodiscard]] Result<std::unique_ptr<Endpoint>> connect(std::shared_ptr<const Context> context,
                                                        const std::string& address, const Token& token,
                                                        const ConnectOptions& options, const Clock& clock);

}  // namespace ciuic::rdma::ucx
