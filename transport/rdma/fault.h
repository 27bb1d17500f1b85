#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "transport/base/result.h"

namespace ciuic::rdma {

/// What a caller does about a fault. Nobody switches over single faults.
enum class Outcome : std::int8_t {
  retry_here = 0,  ///< the same operation again, at once or after a poll
  new_grant = 1,   ///< ask the broker for a new grant at the same position
  reconnect = 2,   ///< close the endpoint, connect again with a new token, then a new grant
  fall_back = 3,   ///< this path cannot work here: Fetch over TCP, or an error in transport=rdma
};

/// Everything that can go wrong on the one-sided path, in ranges of 20 by its outcome.
enum class Fault : std::int16_t {
  would_block = 1,            ///< nothing there yet, or the queue is full: poll, then again
  torn_slot = 2,              ///< the slot was being written, or is older than one already seen
  batch_check_failed = 3,     ///< the bytes that arrived are not the batches that were committed
  landing_full = 4,           ///< all memory for READs to land in is in use: give some back, then again
  lease_expired = 20,         ///< the client's own deadline passed
  chunk_revoked = 21,         ///< bytes stay wrong after retries: the chunk is not what the grant said
  layout_changed = 22,        ///< the grant's chunks end here, or the partition was rolled, truncated or closed
  position_not_covered = 23,  ///< no chunk of the grant holds the position
  aborted_list_stale = 24,    ///< transactions were aborted since the grant: its list must be fetched anew
  access_error = 40,          ///< wrong key, out of bounds, or revoked: both queue pairs are in error
  qp_in_error = 41,           ///< flushed after an earlier error on the same endpoint
  peer_gone = 42,             ///< the other side closed, died or cut us off
  read_timed_out = 43,        ///< no completion before the READ's deadline; its destination is not safe until close
  device_lost = 44,           ///< the device went away
  address_unreachable = 45,   ///< nobody listens there
  no_device = 60,             ///< this host has nothing for this provider
  memlock_limit = 61,         ///< locked-memory limit too low
  not_registrable = 62,       ///< this memory cannot be registered (mapped log file, no descriptor)
  refused = 63,               ///< token unknown, used or expired, or too many connections of this principal
  unknown_provider = 64,      ///< no provider of this name here
  incompatible = 65,          ///< the other side speaks another version of this provider
  forked_child = 66,          ///< this process is a forked child of the one that connected
  resources_exhausted = 67,   ///< no memory, descriptors or address space
  landing_failed = 68,        ///< the device whose memory READs land in does not do what is asked of it
};

template <class T>
using Result = ResultOf<T, Fault>;

[[nodiscard]] constexpr Outcome outcome_of(Fault fault) { return static_cast<Outcome>(static_cast<int>(fault) / 20); }

/// "access_error"; "unknown_fault" for a number that is none.
[[nodiscard]] std::string_view name(Fault fault);
/// What it means, in a sentence for the log.
[[nodiscard]] std::string_view text(Fault fault);
/// What a person can do about it; empty where the program does it alone.
[[nodiscard]] std::string_view remedy(Fault fault);
[[nodiscard]] std::string_view name(Outcome outcome);
/// What `Result::value()` does with a fault nobody looked at: std::logic_error, a bug.
[[noreturn]] void throw_exception_from_error(Fault fault, const boost::source_location& where);
/// Every fault once, for tests and docs.
[[nodiscard]] std::span<const Fault> all_faults();

}  // namespace ciuic::rdma
