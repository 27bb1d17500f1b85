#pragma once
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// One of the connections that a striped endpoint reads by.
struct Lane {
  std::unique_ptr<Endpoint> endpoint;
  std::function<bool(const RemoteSpan&)> opens;  ///< whether a READ of it works by this one
};

/// READs shorter than this are not cut.
inline constexpr std::uint32_t stripe_bytes_min = 128U << 10;

/// Connections of one session as one endpoint: long READs are cut, a part for each lane, short ones go by the lane with
/// the fewest bytes under way. A lane that fails ends the endpoint with its fault, for whoever connects again gets what
/// is left. REQUIRES: two lanes, of the same provider; their endpoints know `register_landing`.
[[nodiscard]] std::unique_ptr<Endpoint> stripe(std::array<Lane, 2> lanes);

}  // namespace ciuic::rdma
