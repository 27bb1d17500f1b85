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
  F(ibverbs, ibv_fork_init) F(ibverbs, ibv_query_device) F(ibverbs, ibv_get_device_name) F(ibverbs, ibv_alloc_pd)      \
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

  /// Loads both once for the process; any thread. Error: no_device (one is missing or too old; the log says which).
  [[nodiscard]] static Result<const Library*> load();
};

}  // namespace ciuic::rdma::verbs
