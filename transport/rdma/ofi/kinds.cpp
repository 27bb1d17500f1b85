// The table of what was seen. A row is changed together with what tests/conformance shows over that provider.
#include "transport/rdma/ofi/kinds.h"

#include <algorithm>
#include <array>

namespace ciuic::rdma::ofi {

namespace {

/// Cards take 8 MiB and more; shorter READs make a retry after a lost packet cheap.
constexpr Caps limits{.read_bytes_max = 1U << 20, .reads_outstanding_max = 128};

constexpr Caps enforced(bool bounds, bool read_only, bool revocation) {
  auto caps = limits;
  caps.enforces_bounds = bounds;
  caps.enforces_read_only = read_only;
  caps.enforces_revocation = revocation;
  return caps;
}

constexpr std::array kinds{
    Kind{"verbs", enforced(true, true, true), true,
         "the card enforces keys, bounds, reading only and revocation, with libfabric's cache of registrations off"},
    // It takes a peer's messages at their word: a malformed one ends the process, or worse. And what it has begun to
    // send of a region it goes on sending after the region's end.
    Kind{"tcp", enforced(true, false, false), false,
         "software, served by the broker's CPU, for readers that are trusted: keys, bounds and reading only are "
         "enforced "
         "against honest libfabric clients; malformed messages can harm the broker, and a READ under way may carry "
         "bytes "
         "written after its revocation"},
};

}  // namespace

std::span<const Kind> all_kinds() { return kinds; }

const Kind* find_kind(std::string_view name) {
  const auto* const found =
      std::find_if(kinds.begin(), kinds.end(), [name](const Kind& one) { return one.name == name; });
  return found == kinds.end() ? nullptr : found;
}

}  // namespace ciuic::rdma::ofi
