#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/base/bytes.h"
#include "transport/rdma/address.h"
#include "transport/rdma/provider.h"
#include "transport/rdma/verbs/library.h"

/// rdma_cm's and verbs' objects as owned values, events as plain ones.
namespace ciuic::rdma::verbs {

/// Ends whatever it is given. A queue pair goes with its id.
struct Closer {
  const Library* library = nullptr;
  void operator()(rdma_event_channel* channel) const { library->rdma_destroy_event_channel(channel); }
  void operator()(rdma_cm_id* id) const {
    if (id->qp) library->rdma_destroy_qp(id);
    (void)library->rdma_destroy_id(id);
  }
  void operator()(ibv_pd* pd) const { (void)library->ibv_dealloc_pd(pd); }
  void operator()(ibv_cq* cq) const { (void)library->ibv_destroy_cq(cq); }
  void operator()(ibv_comp_channel* channel) const { (void)library->ibv_destroy_comp_channel(channel); }
  void operator()(ibv_mr* mr) const { (void)library->ibv_dereg_mr(mr); }
};
template <class T>
using Owned = std::unique_ptr<T, Closer>;

struct Event {
  rdma_cm_event_type type{};
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listening = nullptr;
  int status = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::array<std::byte, 256> data{};
  std::size_t data_bytes = 0;
};

/// A channel whose events are taken without waiting.
[[nodiscard]] Result<Owned<rdma_event_channel>> make_channel(const Library& library);
/// The next event, copied and acknowledged; nothing if there is none now.
[[nodiscard]] std::optional<Event> next_event(const Library& library, rdma_event_channel& channel);
[[nodiscard]] Result<Owned<rdma_cm_id>> make_id(const Library& library, rdma_event_channel& channel);
/// An id with a channel of its own, bound to the address: its device's context lives as long. Errors: no_device, and
/// what `fault_of` says.
[[nodiscard]] Result<Owned<rdma_cm_id>> keep_device(const Library& library, Address address);

/// What a failed call's errno means.
[[nodiscard]] Fault fault_of(int error);
/// Registers; 0 in `access` is local reading only. Errors: memlock_limit, not_registrable, device_lost,
/// resources_exhausted.
[[nodiscard]] Result<Owned<ibv_mr>> register_memory(const Library& library, ibv_pd& pd, const std::byte* at,
                                                    std::size_t bytes, unsigned access);
/// The same for memory of a device: by its dma-buf, else as the device's own kernel module offers it (nvidia_peermem).
[[nodiscard]] Result<Owned<ibv_mr>> register_device_memory(const Library& library, ibv_pd& pd,
                                                           const LandingMemory& memory, unsigned access);

}  // namespace ciuic::rdma::verbs
