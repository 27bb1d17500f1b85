// The broker's end of endpoints without connections: one thread takes readers' sockets, where each shows its token and
// learns the endpoint of its principal, and which say by their end that a reader is gone. For providers whose READs are
// served by the broker's CPU it does that work too, asleep while there is none. Not here: what a key opens.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/ofi/ends.h"
#include "transport/rdma/ofi/listening.h"
#include "transport/rdma/ofi/protocol.h"
#include "transport/rdma/ofi/side_channel.h"
#include "transport/rdma/token_desk.h"

namespace ciuic::rdma::ofi {

namespace {

constexpr Milliseconds greet_timeout{3000};
constexpr std::size_t strangers_max = 256;
/// How often providers are let work whose queues wake nobody, and all are looked at that do.
constexpr Milliseconds unwoken_interval{5};

/// A principal with readers.
struct Served {
  std::shared_ptr<OfiDomain> domain;
  OfiDomain::Door* door = nullptr;
  int descriptor = -1;
  std::size_t peers = 0;
};

struct Peer {
  UniqueFd socket;
  Clock::TimePoint since{};
  Served* served = nullptr;  // null: a stranger yet
  SessionId session = 0;
  fi_addr_t address = FI_ADDR_NOTAVAIL;
  std::array<std::byte, sizeof(RdmHello)> heard{};
  std::size_t heard_bytes = 0;
};

class RdmListener final : public Listener {
 public:
  RdmListener(const Library& library, const Kind& kind, const ListenOptions& options, std::shared_ptr<Seat> seat,
              const Clock& clock)
      : library_(library), kind_(kind), options_(options), seat_(std::move(seat)), clock_(clock), desk_(clock) {}
  ~RdmListener() override;
  Result<void> start();

  std::string address() const override { return address_; }
  void admit(const Token& token, std::shared_ptr<Domain> domain, SessionId session, Clock::TimePoint until) override {
    desk_.admit(token, std::move(domain), session, until);
  }
  void disconnect(SessionId session) override;
  std::size_t connections() const override { return connections_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] Result<void> listen_at(Address address);
  [[nodiscard]] bool watch(int fd);
  void unwatch(int fd) { (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }
  void wake();
  void work();
  [[nodiscard]] int patience();
  void take_sockets();
  void hear(int socket);
  void serve(Served& served);
  void take_cuts();
  void greet(int socket, Peer& peer);
  [[nodiscard]] Status judge(const RdmHello& hello, Peer& peer);
  [[nodiscard]] Result<Served*> served_for(const std::shared_ptr<OfiDomain>& domain);
  void drop(int socket, const char* why);
  void drop_if(const std::function<bool(const Peer&)>& which, const char* why);

  const Library& library_;
  const Kind& kind_;
  ListenOptions options_;
  std::shared_ptr<Seat> seat_;
  const Clock& clock_;
  TokenDesk desk_;
  UniqueFd epoll_, wake_, listening_;
  std::string address_;
  std::shared_ptr<const Device> device_;
  // The thread's from here on.
  bool accepting_ = true;
  std::vector<std::unique_ptr<Served>> served_;
  std::unordered_map<int, Peer> peers_;  // by their sockets
  std::size_t strangers_ = 0;
  std::atomic<std::size_t> connections_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<SessionId> to_cut_;
  std::thread thread_;
};

bool RdmListener::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return fd >= 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

Result<void> RdmListener::listen_at(Address address) {
  // Endpoints are found by ports of their own.
  auto fabric_address = address;
  fabric_address.set_port(0);
  auto device = open_device(library_, kind_, Side::listening, fabric_address, std::nullopt);
  if (!device) return device.error();
  const bool six = address.storage.ss_family == AF_INET6;
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Fault::resources_exhausted;
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t length = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::bind(socket.get(), address.get(), length) != 0 || ::listen(socket.get(), 256) != 0) return fault_of(errno);
  length = sizeof address.storage;
  if (::getsockname(socket.get(), address.get(), &length) != 0 || !watch(socket.get()))
    return Fault::resources_exhausted;
  if (!seat_->take(*device)) return Fault::no_device;
  device_ = std::move(*device);
  listening_ = std::move(socket);
  address_ = std::string(kind_.name) + "://" + address.text();
  log::info("rdma", "ofi: listening address={} interface={}", address_, device_->info->domain_attr->name);
  return {};
}

Result<void> RdmListener::start() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_ || !watch(wake_.get())) return Fault::resources_exhausted;
  const auto done = listen_somewhere(kind_, options_, [this](const Address& address) { return listen_at(address); });
  if (!done) return done.error();
  thread_ = std::thread([this] { work(); });
  return {};
}

RdmListener::~RdmListener() {
  stopping_.store(true);
  if (!thread_.joinable()) return;
  wake();
  thread_.join();
}

void RdmListener::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void RdmListener::disconnect(SessionId session) {
  desk_.forget(session);
  {
    const std::scoped_lock lock(mutex_);
    to_cut_.push_back(session);
  }
  wake();
}

/// How long to sleep, once libfabric has been told that we will.
int RdmListener::patience() {
  bool unwoken = false;
  std::vector<fid_t> queues;
  for (const auto& served : served_) {
    if (served->descriptor >= 0)
      queues.push_back(&served->door->reach.completions->fid);
    else
      unwoken = true;
  }
  if (!queues.empty() && fi_trywait(device_->fabric.get(), queues.data(), static_cast<int>(queues.size())) != 0)
    return 0;
  if (unwoken) return static_cast<int>(unwoken_interval.count());
  return strangers_ > 0 || !accepting_ ? 100 : -1;
}

void RdmListener::work() {
  while (!stopping_.load()) {
    std::array<epoll_event, 64> ready{};
    const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), patience());
    if (count < 0 && errno != EINTR) {
      log::error("rdma", "ofi: epoll_wait: {}", std::strerror(errno));
      return;
    }
    // All are asked, whichever was ready: some have something only once they are asked.
    for (const auto& served : served_) serve(*served);
    if (!accepting_) accepting_ = watch(listening_.get());
    for (int i = 0; i < count; ++i) {
      const int fd = ready[static_cast<std::size_t>(i)].data.fd;
      if (fd == listening_.get())
        take_sockets();
      else if (fd == wake_.get())
        take_cuts();
      else if (peers_.contains(fd))
        hear(fd);
    }
    if (strangers_ > 0) {
      const auto now = clock_.now();
      drop_if([now](const Peer& peer) { return peer.served == nullptr && now - peer.since > greet_timeout; },
              "peer showed no token in time");
    }
    std::erase_if(served_, [this](const auto& one) {
      if (one->peers == 0 && one->descriptor >= 0) unwatch(one->descriptor);
      return one->peers == 0;
    });
  }
  drop_if([](const Peer&) { return true; }, "the broker stops");
}

void RdmListener::serve(Served& served) {
  // No completion is ours: nothing was posted. What is read here is libfabric's work getting done.
  fi_cq_entry none{};
  for (int n = 0; n < 16; ++n) {
    const auto got = fi_cq_read(served.door->reach.completions.get(), &none, 1);
    if (got == -FI_EAVAIL) {
      fi_cq_err_entry failure{};
      if (fi_cq_readerr(served.door->reach.completions.get(), &failure, 0) <= 0) return;
    } else if (got <= 0) {
      return;
    }
  }
}

void RdmListener::take_cuts() {
  std::uint64_t value;
  (void)!::read(wake_.get(), &value, sizeof value);
  std::vector<SessionId> cut;
  {
    const std::scoped_lock lock(mutex_);
    cut.swap(to_cut_);
  }
  for (const auto session : cut)
    drop_if([session](const Peer& peer) { return peer.served != nullptr && peer.session == session; }, "session ended");
}

void RdmListener::take_sockets() {
  for (int i = 0; i < 16; ++i) {
    UniqueFd socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The peer stays in the backlog and would wake us for ever: look away for a moment.
        log::bounded(log::Level::warn, "rdma", "ofi: no descriptor for a connection ({}); raise `ulimit -n`",
                     std::strerror(errno));
        unwatch(listening_.get());
        accepting_ = false;
      }
      return;
    }
    // A storm of strangers costs the oldest stranger its place, never a reader his.
    if (strangers_ >= strangers_max) {
      const auto* oldest = static_cast<const Peer*>(nullptr);
      for (const auto& [fd, peer] : peers_)
        if (peer.served == nullptr && (oldest == nullptr || peer.since < oldest->since)) oldest = &peer;
      if (oldest != nullptr) drop(oldest->socket.get(), "too many connections without a token");
    }
    const int fd = socket.get();
    notice_silence(fd);
    if (!watch(fd)) continue;
    Peer peer;
    peer.socket = std::move(socket);
    peer.since = clock_.now();
    peers_.emplace(fd, std::move(peer));
    ++strangers_;
  }
}

void RdmListener::hear(int socket) {
  auto& peer = peers_.at(socket);
  // A reader has nothing to say once he is in; a byte of his is the end, as his end is.
  std::byte more{};
  const MutableBytes into =
      peer.served != nullptr ? MutableBytes(&more, 1) : MutableBytes(peer.heard).subspan(peer.heard_bytes);
  const auto got = ::recv(socket, into.data(), into.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return drop(socket, "peer disconnected");
  if (peer.served != nullptr) return drop(socket, "peer sent something");
  peer.heard_bytes += static_cast<std::size_t>(got);
  // Whoever is none of us is known by the first bytes: he need not say the rest.
  const auto begun = htobe64(rdm_magic);
  if (std::memcmp(peer.heard.data(), &begun, std::min(peer.heard_bytes, sizeof begun)) != 0)
    return drop(socket, "peer said what we do not understand");
  if (peer.heard_bytes == peer.heard.size()) greet(socket, peer);
}

Status RdmListener::judge(const RdmHello& hello, Peer& peer) {
  const auto name = name_in(hello);
  if (be32toh(hello.version_number) != version || !name) return Status::incompatible;
  if (connections_.load() >= options_.connections_max) return Status::no_room;
  const auto admission = desk_.redeem(*Token::from(std::as_bytes(std::span(hello.token))));
  const auto domain = admission ? std::dynamic_pointer_cast<OfiDomain>(admission->domain) : nullptr;
  if (!domain) return Status::refused;
  const auto of_principal = std::count_if(peers_.begin(), peers_.end(), [&](const auto& one) {
    return one.second.served != nullptr && one.second.served->domain->principal() == domain->principal();
  });
  if (static_cast<std::size_t>(of_principal) >= options_.connections_per_principal_max) return Status::refused;
  const auto served = served_for(domain);
  if (!served) {
    log::bounded(log::Level::warn, "rdma", "ofi: a reader cannot be taken: {}", text(served.error()));
    return Status::no_room;
  }
  const auto known = (*served)->door->reach.meet(*name);
  if (!known) return Status::incompatible;
  peer.address = *known;
  peer.served = *served;
  peer.session = admission->session;
  return Status::ok;
}

void RdmListener::greet(int socket, Peer& peer) {
  const auto status = judge(*parse<RdmHello>(peer.heard), peer);
  RdmWelcome welcome{};
  welcome.magic_number = htobe64(rdm_magic);
  welcome.version_number = htobe32(version);
  welcome.status = htobe32(static_cast<std::uint32_t>(status));
  if (status == Status::ok) {
    ++peer.served->peers;
    --strangers_;
    connections_.fetch_add(1);
    const auto& door = *peer.served->door;
    welcome.sample_address = htobe64(door.sample_span.address);
    welcome.sample_key = htobe64(door.sample_span.key);
    std::memcpy(welcome.sample, door.sample.data(), sizeof welcome.sample);
    welcome.name_bytes = htobe32(static_cast<std::uint32_t>(door.reach.name.size()));
    std::memcpy(welcome.name, door.reach.name.data(), door.reach.name.size());
  }
  // Nothing was sent before: there is room for it, or the peer is gone.
  const bool told =
      ::send(socket, &welcome, sizeof welcome, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof welcome);
  if (status != Status::ok) {
    log::bounded(log::Level::warn, "rdma", "ofi: connection refused status={}", static_cast<std::uint32_t>(status));
    return drop(socket, "refused");
  }
  log::info("rdma", "ofi: reader connected principal={} session={} by={}", peer.served->domain->principal(),
            peer.session, kind_.name);
  if (!told) drop(socket, "peer does not listen");
}

Result<Served*> RdmListener::served_for(const std::shared_ptr<OfiDomain>& domain) {
  for (const auto& one : served_)
    if (one->domain == domain) return one.get();
  const auto door = domain->door();
  if (!door) return door.error();
  auto served = std::make_unique<Served>();
  served->domain = domain;
  served->door = *door;
  served->descriptor = kind_.wakes ? descriptor_of((*door)->reach.completions->fid) : -1;
  if (served->descriptor >= 0 && !watch(served->descriptor)) return Fault::resources_exhausted;
  served_.push_back(std::move(served));
  return served_.back().get();
}

void RdmListener::drop(int socket, const char* why) {
  const auto found = peers_.find(socket);
  if (found == peers_.end()) return;
  auto& peer = found->second;
  if (peer.served != nullptr) {
    log::info("rdma", "ofi: reader gone principal={} session={} why=\"{}\"", peer.served->domain->principal(),
              peer.session, why);
    peer.served->door->reach.forget(peer.address);
    --peer.served->peers;
    connections_.fetch_sub(1);
  } else {
    --strangers_;
  }
  peers_.erase(found);  // its socket ends, and with it its place in epoll_
}

void RdmListener::drop_if(const std::function<bool(const Peer&)>& which, const char* why) {
  std::vector<int> all;
  for (const auto& [socket, peer] : peers_)
    if (which(peer)) all.push_back(socket);
  for (const auto socket : all) drop(socket, why);
}

}  // namespace

Result<std::unique_ptr<Listener>> listen_connectionless(const Library& library, const Kind& kind,
                                                        const ListenOptions& options, std::shared_ptr<Seat> seat,
                                                        const Clock& clock) {
  auto listener = std::make_unique<RdmListener>(library, kind, options, std::move(seat), clock);
  if (const auto started = listener->start(); !started) return started.error();
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace ciuic::rdma::ofi
