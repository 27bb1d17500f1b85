// A client's endpoint without connections (FI_EP_RDM). Beside it a socket to the broker shows the token, learns the
// broker's endpoint, and says by its end that the broker serves us no more: the endpoint itself would never tell.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/log.h"
#include "transport/rdma/ofi/line.h"
#include "transport/rdma/ofi/protocol.h"
#include "transport/rdma/ofi/side_channel.h"

namespace ciuic::rdma::ofi {

namespace {

class RdmLine final : public Line {
 public:
  using Line::Line;
  Result<void> dial(const Dial& dial);

  std::optional<Fault> over() override;
  void cut() override {
    socket_ = UniqueFd();
    end();
  }
  void end() override { reach_.endpoint.reset(); }
  int arm() override;
  void leave_to_parent() override {
    (void)reach_.endpoint.release();
    (void)reach_.completions.release();
    (void)reach_.peers.release();
    leave_base();
  }
  fid_cq& completions() const override { return *reach_.completions; }
  fid_ep* endpoint() const override { return reach_.endpoint.get(); }

 private:
  [[nodiscard]] Result<void> reach_broker(const Dial& dial);
  [[nodiscard]] Result<RdmWelcome> introduce(const Dial& dial);
  [[nodiscard]] Result<void> read_sample(const Dial& dial, const RdmWelcome& welcome);

  UniqueFd socket_;
  Reach reach_;
};

int milliseconds_until(const Clock& clock, Clock::TimePoint deadline) {
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline - clock.now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

Result<void> RdmLine::reach_broker(const Dial& dial) {
  auto to = dial.address;
  const auto size = [](const Address& one) {
    return static_cast<socklen_t>(one.storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  };
  socket_ = UniqueFd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) return Fault::resources_exhausted;
  if (dial.source) {
    auto from = *dial.source;
    from.set_port(0);
    if (::bind(socket_.get(), from.get(), size(from)) != 0) return Fault::address_unreachable;
  }
  if (::connect(socket_.get(), to.get(), size(to)) != 0 && errno != EINPROGRESS) return Fault::address_unreachable;
  pollfd ready{socket_.get(), POLLOUT, 0};
  int error = 0;
  socklen_t length = sizeof error;
  if (::poll(&ready, 1, milliseconds_until(dial.clock, dial.deadline)) != 1 ||
      ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0)
    return Fault::address_unreachable;
  notice_silence(socket_.get());
  return {};
}

Result<RdmWelcome> RdmLine::introduce(const Dial& dial) {
  RdmHello hello{htobe64(rdm_magic), htobe32(version), htobe32(static_cast<std::uint32_t>(reach_.name.size())), {}, {}};
  std::memcpy(hello.token, dial.token.bytes.data(), sizeof hello.token);
  std::memcpy(hello.name, reach_.name.data(), reach_.name.size());
  // A new socket has room for it.
  if (::send(socket_.get(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello))
    return Fault::peer_gone;
  std::array<std::byte, sizeof(RdmWelcome)> heard{};
  std::size_t have = 0;
  while (have < heard.size()) {
    pollfd ready{socket_.get(), POLLIN, 0};
    if (::poll(&ready, 1, milliseconds_until(dial.clock, dial.deadline)) == 0) return Fault::address_unreachable;
    const auto got = ::recv(socket_.get(), heard.data() + have, heard.size() - have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return Fault::peer_gone;
    have += static_cast<std::size_t>(got);
  }
  const auto welcome = *parse<RdmWelcome>(heard);
  if (be64toh(welcome.magic_number) != rdm_magic || be32toh(welcome.version_number) != version)
    return Fault::incompatible;
  if (const auto status = static_cast<Status>(be32toh(welcome.status)); status != Status::ok) return fault_of(status);
  return welcome;
}

/// The first READ makes what lies under the endpoint connect, and shows that the fabric leads to the broker at all.
Result<void> RdmLine::read_sample(const Dial& dial, const RdmWelcome& welcome) {
  alignas(4096) std::array<std::byte, 4096> landing{};
  Owned<fid_mr> region;
  if ((device_->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    auto registered = register_memory(*device_, *domain_, reach_.endpoint.get(), landing, Use::landing);
    if (!registered) return registered.error();
    region = std::move(*registered);
  }
  fi_context2 context{};
  bool posted = false;
  // What is under way must not land in a frame that is gone.
  const auto give_up = [&](Fault fault) {
    if (posted) end();
    return fault;
  };
  while (dial.clock.now() < dial.deadline) {
    if (!posted) {
      const auto error = fi_read(reach_.endpoint.get(), landing.data(), sizeof welcome.sample,
                                 region ? fi_mr_desc(region.get()) : nullptr, peer_, be64toh(welcome.sample_address),
                                 be64toh(welcome.sample_key), &context);
      if (error != 0 && error != -FI_EAGAIN) {
        log::debug("rdma", "ofi: a READ cannot be posted: {}", dial.library.fi_strerror(static_cast<int>(-error)));
        return Fault::address_unreachable;
      }
      posted = error == 0;
    }
    fi_cq_entry done{};
    const auto got = fi_cq_read(reach_.completions.get(), &done, 1);
    if (got == 1) {
      if (std::memcmp(landing.data(), welcome.sample, sizeof welcome.sample) == 0) return {};
      log::debug("rdma", "ofi: the first READ brought other bytes than the broker said");
      return Fault::incompatible;
    }
    if (got == -FI_EAVAIL) {
      fi_cq_err_entry failure{};
      (void)fi_cq_readerr(reach_.completions.get(), &failure, 0);
      log::debug("rdma", "ofi: the first READ failed: {}", dial.library.fi_strerror(failure.err));
      return give_up(Fault::address_unreachable);
    }
    if (over()) return give_up(Fault::peer_gone);
    // While it connects below, a queue's descriptor need not say so.
    pollfd ready{arm(), POLLIN, 0};
    (void)::poll(&ready, ready.fd < 0 ? 0 : 1, posted ? 10 : 1);
  }
  log::debug("rdma", "ofi: the first READ did not complete in time");
  return give_up(Fault::address_unreachable);
}

Result<void> RdmLine::dial(const Dial& dial) {
  if (const auto done = reach_broker(dial); !done) return done.error();
  auto reach = Reach::open(*device_, *domain_, completions_for(caps_of(*device_).reads_outstanding_max));
  if (!reach) return reach.error();
  reach_ = std::move(*reach);
  const int descriptor = descriptor_of(reach_.completions->fid);
  if (device_->kind.wakes && descriptor >= 0)
    if (const auto done = watch({descriptor, socket_.get()}); !done) return done.error();
  const auto welcome = introduce(dial);
  if (!welcome) return welcome.error();
  const auto name = name_in(*welcome);
  if (!name) return Fault::incompatible;
  const auto peer = reach_.meet(*name);
  if (!peer) return peer.error();
  peer_ = *peer;
  return read_sample(dial, *welcome);
}

std::optional<Fault> RdmLine::over() {
  if (!socket_) return Fault::peer_gone;
  std::byte said{};
  const auto got = ::recv(socket_.get(), &said, 1, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  return Fault::peer_gone;  // gone, or it says what it never should
}

int RdmLine::arm() {
  if (!news_) return -1;
  fid_t queue = &reach_.completions->fid;
  return fi_trywait(device_->fabric.get(), &queue, 1) == 0 ? news_.get() : -1;
}

}  // namespace

Result<std::unique_ptr<Line>> dial_connectionless(const Dial& dial) {
  auto device = open_device(dial.library, dial.kind, Side::connecting, dial.address, dial.source);
  if (!device) return device.error();
  auto domain = open_domain(**device);
  if (!domain) return domain.error();
  auto line = std::make_unique<RdmLine>(std::move(*device), std::move(*domain));
  if (const auto done = line->dial(dial); !done) return done.error();
  return std::unique_ptr<Line>(std::move(line));
}

}  // namespace ciuic::rdma::ofi
