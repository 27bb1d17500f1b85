#pragma once
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "transport/rdma/fault.h"

namespace ciuic::rdma::verbs {

/// The functions of librdmacm and libibverbs that we call, found at run time. What posts and polls is inline in
/// verbs.h and goes through the device's own table.
struct Library {
  // clang-format off
#define CIUIC_VERBS_FUNCTIONS(F)                                                                                       \
  F(rdmacm, rdma_create_event_channel) F(rdmacm, rdma_destroy_event_channel) F(rdmacm, rdma_get_cm_event)              \
  F(rdmacm, rdma_ack_cm_event) F(rdmacm, rdma_event_str) F(rdmacm, rdma_create_id) F(rdmacm, rdma_destroy_id)          \
  F(rdmacm, rdma_bind_addr) F(rdmacm, rdma_resolve_addr) F(rdmacm, rdma_resolve_route) F(rdmacm, rdma_create_qp)       \
  F(rdmacm, rdma_destroy_qp) F(rdmacm, rdma_connect) F(rdmacm, rdma_listen) F(rdmacm, rdma_accept)                     \
  F(rdmacm, rdma_reject) F(rdmacm, rdma_disconnect) F(rdmacm, rdma_set_option) F(rdmacm, rdma_get_src_port)            \
  F(rdmacm, rdma_get_devices) F(rdmacm, rdma_free_devices)                                                             \
  F(ibverbs, ibv_fork_init) F(ibverbs, ibv_get_device_list) F(ibverbs, ibv_free_device_list)                           \
  F(ibverbs, ibv_query_device) F(ibverbs, ibv_get_device_name) F(ibverbs, ibv_alloc_pd)                                \
  F(ibverbs, ibv_dealloc_pd) F(ibverbs, ibv_reg_mr_iova2) F(ibverbs, ibv_dereg_mr)                                     \
  F(ibverbs, ibv_create_comp_channel) F(ibverbs, ibv_destroy_comp_channel) F(ibverbs, ibv_create_cq)                   \
  F(ibverbs, ibv_destroy_cq) F(ibverbs, ibv_get_cq_event) F(ibverbs, ibv_ack_cq_events) F(ibverbs, ibv_modify_qp)      \
  F(ibverbs, ibv_wc_status_str) F(ibverbs, ibv_get_async_event) F(ibverbs, ibv_ack_async_event)                       \
  F(ibverbs, ibv_event_type_str)
  // clang-format on
  // NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared
#define CIUIC_DECLARE(library, function) decltype(&::function) function = nullptr;
  CIUIC_VERBS_FUNCTIONS(CIUIC_DECLARE)
#undef CIUIC_DECLARE
  decltype(&::ibv_reg_dmabuf_mr) ibv_reg_dmabuf_mr = nullptr;  ///< null: rdma-core before version 34

  /// Loads both once for the process; any thread. Error: no_device (one is missing or too old; the log says which).
  [[nodiscard]] static Result<const Library*> load();

  /// Has libibverbs make its objects for devices that are new, always in one thread of the process's. Before a call of
  /// librdmacm that may look for devices: `make_channel` does it, and whoever binds anew by an old channel. It sorts
  /// those objects by the lower half of the distance between their addresses, before rdma-core 52: objects from several
  /// threads, whose memory is far apart, it takes for others, forgets a device that is there, and in the end waits for
  /// itself for ever.
  void meet_new_devices() const;

  /// librdmacm looks for devices that came or went only when it meets one that it does not know. After this it closes
  /// the context of a removed device, at once or when the last id on it ends, and does not take it for the one that
  /// follows. So whoever uses a context keeps an id on it until last. It opens every device there is, whether anybody
  /// uses it or not, so from then on it is told within a second of each that goes: a soft device waits with its removal
  /// for all who have it open. (rdma-core 30 and newer; older ones know no others than at first.)
  void notice_removed_devices() const;
};

}  // namespace ciuic::rdma::verbs
