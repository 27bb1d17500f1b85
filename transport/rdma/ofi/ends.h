#pragma once
#include <memory>
#include <string>

#include "transport/base/clock.h"
#include "transport/rdma/ofi/domain.h"

/// The two ends: listener.cpp and rdm_listener.cpp are the broker's, with and without connections, endpoint.cpp the
/// client's.
namespace ciuic::rdma::ofi {

[[nodiscard]] Result<std::unique_ptr<Listener>> listen(const Library& library, const Kind& kind,
                                                       const ListenOptions& options, std::shared_ptr<Seat> seat,
                                                       const Clock& clock);
[[nodiscard]] Result<std::unique_ptr<Listener>> listen_connectionless(const Library& library, const Kind& kind,
                                                                      const ListenOptions& options,
                                                                      std::shared_ptr<Seat> seat, const Clock& clock);
[[nodiscard]] Result<std::unique_ptr<Endpoint>> connect(const Library& library, const std::string& address,
                                                        const Token& token, const ConnectOptions& options,
                                                        const Clock& clock);

}  // namespace ciuic::rdma::ofi
