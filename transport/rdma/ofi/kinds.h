#pragma once
#include <span>
#include <string>
#include <string_view>

#include "transport/rdma/provider.h"

/// What libfabric's providers were seen to do (docs/fabric.md): it gives no promise of its own about hostile peers.
namespace ciuic::rdma::ofi {

struct Kind {
  std::string_view name;  ///< libfabric's
  Caps caps;              ///< what it enforces against a hostile peer
  bool pins_memory;
  std::string_view seen;  ///< in words, for people
};

/// Best first.
[[nodiscard]] std::span<const Kind> all_kinds();
[[nodiscard]] const Kind* find_kind(std::string_view name);

}  // namespace ciuic::rdma::ofi
