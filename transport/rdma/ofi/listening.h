#pragma once
#include <functional>

#include "transport/rdma/ofi/domain.h"

namespace ciuic::rdma::ofi {

/// Tries the addresses asked for, else every address of the host (an interface without a device refuses), until `at`
/// takes one. What is wrong with those asked for is logged. Errors: those of Provider::listen.
[[nodiscard]] Result<void> listen_somewhere(const Kind& kind, const ListenOptions& options,
                                            const std::function<Result<void>(const Address&)>& at);

}  // namespace ciuic::rdma::ofi
