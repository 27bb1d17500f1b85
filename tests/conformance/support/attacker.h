#pragma once
#include <endian.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>

#include "transport/base/clock.h"
#include "transport/rdma/provider.h"
#include "transport/rdma/verbs/objects.h"
#include "transport/rdma/verbs/protocol.h"

namespace ciuic::testing {

/// A peer that speaks verbs by itself and keeps no rule: any private data, any work request.
class Attacker {
 public:
  Attacker() : library_(rdma::verbs::Library::load().value()) {
    channel_ = rdma::verbs::make_channel(*library_).value();
  }
  ~Attacker() {
    id_.reset();
    completions_.reset();
    mr_.reset();
  }

  /// What a well-behaved client sends.
  static Buffer hello(const rdma::Token& token) {
    rdma::verbs::Hello hello{htobe64(rdma::verbs::magic), htobe32(rdma::verbs::version), 0, {}};
    std::memcpy(hello.token, token.bytes.data(), sizeof hello.token);
    return to_buffer(std::as_bytes(std::span(&hello, 1)));
  }
  /// Sends the connection request and does not wait for what comes of it.
  bool ask(const std::string& address, Bytes data, std::uint8_t depth = 1) {
    auto to = rdma::Address::parse(address);
    id_ = rdma::verbs::make_id(*library_, *channel_).value();
    if (library_->rdma_resolve_addr(id_.get(), nullptr, to->get(), 2000) != 0) return false;
    if (next() != RDMA_CM_EVENT_ADDR_RESOLVED) return false;
    if (library_->rdma_resolve_route(id_.get(), 2000) != 0) return false;
    if (next() != RDMA_CM_EVENT_ROUTE_RESOLVED) return false;
    const rdma::verbs::Closer closer{library_};
    if (!domain_) domain_ = rdma::verbs::Owned<ibv_pd>(library_->ibv_alloc_pd(id_->verbs), closer);
    completions_ = rdma::verbs::Owned<ibv_cq>(library_->ibv_create_cq(id_->verbs, 64, nullptr, nullptr, 0), closer);
    if (!mr_)
      mr_ = rdma::verbs::register_memory(*library_, *domain_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE)
                .value();
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = completions_.get();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {.max_send_wr = 32, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    if (library_->rdma_create_qp(id_.get(), domain_.get(), &wanted) != 0) return false;
    rdma_conn_param request{};
    request.private_data = data.data();
    request.private_data_len = static_cast<std::uint8_t>(data.size());
    request.initiator_depth = depth;
    request.retry_count = 2;
    request.rnr_retry_count = 1;
    return library_->rdma_connect(id_.get(), &request) == 0;
  }
  /// True: the broker took the connection.
  bool connect(const std::string& address, Bytes data, std::uint8_t depth = 1) {
    return ask(address, data, depth) && next() == RDMA_CM_EVENT_ESTABLISHED;
  }
  /// What the rejection says; nothing if there was none.
  [[nodiscard]] std::optional<rdma::verbs::Status> rejection() const {
    if (last_.type != RDMA_CM_EVENT_REJECTED) return std::nullopt;
    const auto answer = rdma::verbs::parse<rdma::verbs::Welcome>(last_.data.data(), last_.data_bytes);
    if (!answer) return std::nullopt;
    return static_cast<rdma::verbs::Status>(be32toh(answer->status));
  }
  /// Posts one request on 64 bytes of our memory, signalled; how it ended, or nothing within five seconds.
  std::optional<ibv_wc_status> run(ibv_wr_opcode what, std::uint64_t remote, std::uint32_t key,
                                   std::uint32_t bytes = 64) {
    memory_.fill(std::byte{0xEE});
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(memory_.data()), bytes, mr_->lkey};
    ibv_send_wr work{};
    work.sg_list = &piece;
    work.num_sge = bytes > 0 ? 1 : 0;
    work.opcode = what;
    work.send_flags = IBV_SEND_SIGNALED;
    if (what == IBV_WR_ATOMIC_CMP_AND_SWP || what == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      work.wr.atomic = {.remote_addr = remote, .compare_add = 1, .swap = 2, .rkey = key};
    } else if (what == IBV_WR_SEND_WITH_INV) {
      work.invalidate_rkey = key;
    } else {
      work.wr.rdma = {.remote_addr = remote, .rkey = key};
    }
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(id_->qp, &work, &bad) != 0) return IBV_WC_GENERAL_ERR;
    const auto until = system_clock().now() + std::chrono::seconds(5);
    while (system_clock().now() < until) {
      ibv_wc done{};
      if (ibv_poll_cq(completions_.get(), 1, &done) > 0) return done.status;
    }
    return std::nullopt;
  }
  /// Nothing has arrived in our memory.
  [[nodiscard]] bool empty_handed() const {
    return std::all_of(memory_.begin(), memory_.end(), [](std::byte b) { return b == std::byte{0xEE}; });
  }
  /// The broker cut us within five seconds: a disconnection, or a rejection where it had not heard yet that we are in.
  bool cut() { return next() != RDMA_CM_EVENT_ADDR_ERROR; }

 private:
  rdma_cm_event_type next() {
    const auto until = system_clock().now() + std::chrono::seconds(5);
    while (system_clock().now() < until) {
      if (const auto event = rdma::verbs::next_event(*library_, *channel_)) {
        last_ = *event;
        return event->type;
      }
      pollfd ready{channel_->fd, POLLIN, 0};
      (void)::poll(&ready, 1, 100);
    }
    return RDMA_CM_EVENT_ADDR_ERROR;
  }

  const rdma::verbs::Library* library_;
  rdma::verbs::Owned<rdma_event_channel> channel_;
  rdma::verbs::Owned<ibv_pd> domain_;
  alignas(4096) std::array<std::byte, 4096> memory_{};
  rdma::verbs::Owned<ibv_mr> mr_;
  rdma::verbs::Owned<ibv_cq> completions_;
  rdma::verbs::Owned<rdma_cm_id> id_;
  rdma::verbs::Event last_{};
};

}  // namespace ciuic::testing
