// One table of all faults: name, meaning, remedy. Ranges and outcomes are fault.h's.
#include "transport/rdma/fault.h"

#include <array>
#include <stdexcept>
#include <string>

namespace ciuic::rdma {

namespace {

struct Row {
  Fault fault;
  std::string_view name, text, remedy;
};

constexpr std::array rows{
    Row{Fault::would_block, "would_block", "nothing there yet, or the queue is full", ""},
    Row{Fault::torn_slot, "torn_slot", "the slot was read while it was being written", ""},
    Row{Fault::batch_check_failed, "batch_check_failed", "bytes that arrived are not the batches committed there", ""},
    Row{Fault::landing_full, "landing_full", "all memory for READs to land in is in use",
        "let go of batches, or land in more memory"},
    Row{Fault::lease_expired, "lease_expired", "the lease was not renewed in time",
        "the process was stopped or starved for longer than onesided.lease.ms, or the broker did not answer"},
    Row{Fault::chunk_revoked, "chunk_revoked", "bytes stayed wrong over all retries: the chunk was taken back", ""},
    Row{Fault::layout_changed, "layout_changed", "the log goes on in chunks that this grant does not name", ""},
    Row{Fault::position_not_covered, "position_not_covered", "no chunk of the grant holds this offset", ""},
    Row{Fault::aborted_list_stale, "aborted_list_stale", "transactions were aborted since the grant", ""},
    Row{Fault::access_error, "access_error", "the broker's side refused a READ: wrong key, out of bounds or revoked",
        ""},
    Row{Fault::qp_in_error, "qp_in_error", "the connection had failed before", ""},
    Row{Fault::peer_gone, "peer_gone", "the broker closed the connection, or is gone",
        "look whether the broker runs, and in its log why it cut this session"},
    Row{Fault::read_timed_out, "read_timed_out", "a READ did not complete before its deadline",
        "look for packet loss on the fabric (port counters), and for a broker host that stands still"},
    Row{Fault::device_lost, "device_lost", "the device went away",
        "look at the port's state (ibstat, rdma link) and the kernel log"},
    Row{Fault::address_unreachable, "address_unreachable", "nobody listens at the provider's address",
        "check onesided.runtime.dir (shm: same host, same mount namespace) or the fabric's routing"},
    Row{Fault::no_device, "no_device", "this host has no device for this provider",
        "install or enable one, or leave the provider out of onesided.providers; `ciuic doctor` lists what is here"},
    Row{Fault::memlock_limit, "memlock_limit", "the locked-memory limit is too low",
        "raise `ulimit -l` (LimitMEMLOCK=infinity in the systemd unit)"},
    Row{Fault::not_registrable, "not_registrable", "this memory cannot be exposed by this provider",
        "only anonymous or memfd memory can; shm needs a memfd and a /proc that is mounted"},
    Row{Fault::refused, "refused",
        "the broker refused the connection: token unknown, used or expired, or too many connections",
        "connect again; if it goes on, raise onesided.sessions.per.principal.max or look for clients that leak "
        "consumers"},
    Row{Fault::unknown_provider, "unknown_provider", "no provider of this name in this build",
        "`ciuic doctor` lists them"},
    Row{Fault::incompatible, "incompatible", "the other side speaks another version of this provider",
        "use client and broker of the same release"},
    Row{Fault::forked_child, "forked_child", "this process was forked from the one that connected",
        "make the consumer after fork(), or use spawn"},
    Row{Fault::resources_exhausted, "resources_exhausted", "no memory, file descriptors or address space left",
        "raise `ulimit -n`, `ulimit -v` or vm.max_map_count"},
    Row{Fault::landing_failed, "landing_failed", "the device whose memory READs land in failed",
        "look at the client's log for the driver's words, and at `ciuic doctor`"},
};

constexpr auto faults = [] {
  std::array<Fault, rows.size()> all{};
  for (std::size_t i = 0; i < rows.size(); ++i) all[i] = rows[i].fault;
  return all;
}();

const Row* find(Fault fault) {
  for (const auto& row : rows)
    if (row.fault == fault) return &row;
  return nullptr;
}

}  // namespace

std::string_view name(Fault fault) {
  const auto* row = find(fault);
  return row ? row->name : "unknown_fault";
}
std::string_view text(Fault fault) {
  const auto* row = find(fault);
  return row ? row->text : "";
}
std::string_view remedy(Fault fault) {
  const auto* row = find(fault);
  return row ? row->remedy : "";
}
std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::retry_here:
      return "retry_here";
    case Outcome::new_grant:
      return "new_grant";
    case Outcome::reconnect:
      return "reconnect";
    case Outcome::fall_back:
      return "fall_back";
  }
  return "unknown_outcome";
}
void throw_exception_from_error(Fault fault, const boost::source_location&) {
  throw std::logic_error("unexpected fault: " + std::string(name(fault)));
}
std::span<const Fault> all_faults() { return faults; }

}  // namespace ciuic::rdma
