// The table of what was seen. A row is changed together with what tests/conformance shows over that provider.
#include "transport/rdma/ofi/kinds.h"

#include <algorithm>
#include <array>

#include "transport/base/log.h"

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
    // Of its two ways the one that leaves every READ to the card: the other lets the broker's CPU serve some, from
    // memory that may be gone by then.
    Kind{"efa", limits, true,
         "the card serves READs; what it enforces was not tried, so it is for readers that are trusted",
         Manner::connectionless, "efa-direct", false},
    Kind{"cxi", limits, true,
         "the card serves READs; what it enforces was not tried, so it is for readers that are trusted",
         Manner::connectionless, "", false, false},
    // The layer above verbs takes messages that nobody asked it to, from whoever reaches it.
    Kind{"verbs;ofi_rxm", enforced(true, false, true), true,
         "the card enforces keys, bounds, reading only and revocation; but whoever reaches an endpoint and knows a key "
         "reads, and malformed messages can harm the broker: for readers that are trusted",
         Manner::connectionless, "", true, true,
         // 1.17 now and then follows a connection that is gone when the broker's endpoint closes.
         Release{1, 18}},
    // It takes a peer's messages at their word: a malformed one ends the process, or worse. And what it has begun to
    // send of a region it goes on sending after the region's end.
    Kind{"tcp", enforced(true, false, false), false,
         "software, served by the broker's CPU, for readers that are trusted: keys, bounds and reading only are "
         "enforced "
         "against honest libfabric clients; malformed messages can harm the broker, and a READ under way may carry "
         "bytes "
         "written after its revocation"},
    Kind{
        "tcp;ofi_rxm", enforced(true, false, false), false,
        "as tcp, and whoever reaches an endpoint and knows a key reads: for readers that are trusted",
        Manner::connectionless, "", true, true,
        // 1.17 gives back twice what a READ was arriving in when its connection ended, and the layer above reads there.
        Release{1, 18}},
};

}  // namespace

std::span<const Kind> all_kinds() { return kinds; }

const Kind* find_kind(std::string_view name) {
  const auto* const found =
      std::find_if(kinds.begin(), kinds.end(), [name](const Kind& one) { return one.name == name; });
  return found == kinds.end() ? nullptr : found;
}

bool is_recent_enough(const Library& library, const Kind& kind, log::Level level) {
  const auto version = library.fi_version();
  const Release found{FI_MAJOR(version), FI_MINOR(version)};
  if (found >= kind.since) return true;
  log::bounded(level, "rdma",
               "ofi: libfabric {}.{} of this host has a fault in {} that ends a reader's process; {}.{} is needed",
               found.major, found.minor, kind.name, kind.since.major, kind.since.minor);
  return false;
}

}  // namespace ciuic::rdma::ofi
