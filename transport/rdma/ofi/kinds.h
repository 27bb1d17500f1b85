#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/log.h"
#include "transport/rdma/ofi/library.h"
#include "transport/rdma/provider.h"

/// What libfabric's providers were seen to do (docs/fabric.md): it gives no promise of its own about hostile peers.
namespace ciuic::rdma::ofi {

enum class Manner : std::uint8_t {
  connected,       ///< FI_EP_MSG: a token opens a connection, and a connection can be cut
  connectionless,  ///< FI_EP_RDM: whoever knows an endpoint's name and a key reads
};

struct Release {
  std::uint32_t major = 0, minor = 0;
  auto operator<=>(const Release&) const = default;
};

struct Kind {
  std::string_view name;  ///< libfabric's
  Caps caps;              ///< what it enforces against a hostile peer
  bool pins_memory;
  std::string_view seen;  ///< in words, for people
  Manner manner = Manner::connected;
  std::string_view fabric = {};  ///< of several that it has, this one
  bool by_ip = true;             ///< its endpoints are found by addresses of the internet's; else by its own
  bool wakes = true;             ///< who waits on a queue's descriptor misses nothing
  Release since{};               ///< of libfabric: older ones end a reader's process
};

/// Best first.
[[nodiscard]] std::span<const Kind> all_kinds();
[[nodiscard]] const Kind* find_kind(std::string_view name);
/// False, with words in the log at `level`: this host's libfabric is older than the kind needs.
[[nodiscard]] bool is_recent_enough(const Library& library, const Kind& kind, log::Level level);

}  // namespace ciuic::rdma::ofi
