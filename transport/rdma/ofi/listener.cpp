// The broker's end: one thread takes connection events, and for providers whose READs are served by the broker's CPU
// does that work, asleep while there is none. A reader is never sent anything; the one receive that each endpoint has
// posted is there to fail with it, and a peer that sends into it is cut. Not here: what a key opens.
#include <endian.h>
#include <rdma/fi_errno.h>
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
#include "transport/rdma/token_desk.h"

namespace ciuic::rdma::ofi {

namespace {

constexpr Milliseconds establish_timeout{3000};

/// The completions of one principal's connections, which libfabric ties to a domain.
struct Served {
  std::shared_ptr<OfiDomain> domain;
  Owned<fid_cq> completions;
  int descriptor = -1;
  std::size_t peers = 0;
};

struct Peer {
  Served* served = nullptr;
  Owned<fid_ep> endpoint;
  SessionId session = 0;
  Clock::TimePoint since{};
  bool established = false;
};

class OfiListener final : public Listener {
 public:
  OfiListener(const Library& library, const Kind& kind, const ListenOptions& options, std::shared_ptr<Seat> seat,
              const Clock& clock)
      : library_(library), kind_(kind), options_(options), seat_(std::move(seat)), clock_(clock), desk_(clock) {}
  ~OfiListener() override;
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
  void wake();
  void work();
  [[nodiscard]] int patience();
  void handle(Event event);
  void greet(Event event);
  [[nodiscard]] Status judge(const Event& event, std::optional<TokenDesk::Admission>& admission);
  [[nodiscard]] Result<void> accept(const TokenDesk::Admission& admission, fi_info& info, Peer& peer,
                                    std::uint64_t serial);
  [[nodiscard]] Result<Served*> served_for(const std::shared_ptr<OfiDomain>& domain);
  void leave(Served& served);
  void established(std::uint64_t serial);
  void take_completions(Served& served);
  void count_refusal(Status status, std::string_view principal);
  void drop(std::uint64_t serial, const char* why);
  void drop_if(const std::function<bool(const Peer&)>& which, const char* why);

  const Library& library_;
  const Kind& kind_;
  ListenOptions options_;
  std::shared_ptr<Seat> seat_;
  const Clock& clock_;
  TokenDesk desk_;
  UniqueFd epoll_, wake_;
  std::string address_;
  // Endpoints end before the queues they report to, those before the device.
  std::shared_ptr<const Device> device_;
  Owned<fid_eq> events_;
  Owned<fid_pep> listening_;
  // The thread's from here on.
  std::vector<std::unique_ptr<Served>> served_;
  std::unordered_map<std::uint64_t, Peer> peers_;
  std::unordered_map<fid_t, std::uint64_t> serials_;
  std::uint64_t next_serial_ = 1;
  std::size_t unestablished_ = 0;
  std::uint64_t refusals_untold_ = 0;
  std::optional<Clock::TimePoint> refusal_told_at_{};
  std::atomic<std::size_t> connections_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<SessionId> to_cut_;
  std::thread thread_;
};

bool OfiListener::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return fd >= 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

Result<void> OfiListener::listen_at(Address address) {
  auto device = open_device(library_, kind_, Side::listening, address, std::nullopt);
  if (!device) return device.error();
  auto events = open_event_queue(**device);
  if (!events) return events.error();
  fid_pep* raw = nullptr;
  if (const int error = fi_passive_ep((*device)->fabric.get(), (*device)->info.get(), &raw, nullptr); error != 0)
    return fault_of(error);
  Owned<fid_pep> listening(raw);
  if (const int error = fi_pep_bind(raw, &(*events)->fid, 0); error != 0) return fault_of(error);
  if (const int error = fi_listen(raw); error != 0) return fault_of(error);
  std::size_t length = sizeof address.storage;
  if (const int error = fi_getname(&raw->fid, &address.storage, &length); error != 0) return fault_of(error);
  if (!seat_->take(*device)) return Fault::no_device;
  limit_patience(address);
  if (!watch(descriptor_of((*events)->fid))) return Fault::resources_exhausted;
  device_ = std::move(*device);
  events_ = std::move(*events);
  listening_ = std::move(listening);
  address_ = std::string(kind_.name) + "://" + address.text();
  log::info("rdma", "ofi: listening address={} interface={}", address_, device_->info->domain_attr->name);
  return {};
}

Result<void> OfiListener::start() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_ || !watch(wake_.get())) return Fault::resources_exhausted;
  const auto done = listen_somewhere(kind_, options_, [this](const Address& address) { return listen_at(address); });
  if (!done) return done.error();
  thread_ = std::thread([this] { work(); });
  return {};
}

OfiListener::~OfiListener() {
  stopping_.store(true);
  if (!thread_.joinable()) return;
  wake();
  thread_.join();
}

void OfiListener::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void OfiListener::disconnect(SessionId session) {
  desk_.forget(session);
  {
    const std::scoped_lock lock(mutex_);
    to_cut_.push_back(session);
  }
  wake();
}

/// How long to sleep, once libfabric has been told that we will.
int OfiListener::patience() {
  std::vector<fid_t> queues{&events_->fid};
  for (const auto& served : served_) queues.push_back(&served->completions->fid);
  if (fi_trywait(device_->fabric.get(), queues.data(), static_cast<int>(queues.size())) != 0) return 0;
  return unestablished_ > 0 ? 500 : -1;
}

void OfiListener::work() {
  while (!stopping_.load()) {
    std::array<epoll_event, 16> ready{};
    const int count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), patience());
    if (count < 0 && errno != EINTR) {
      log::error("rdma", "ofi: epoll_wait: {}", std::strerror(errno));
      return;
    }
    std::uint64_t value;
    (void)!::read(wake_.get(), &value, sizeof value);
    // All are asked, whichever was ready: some have something only once they are asked.
    for (std::size_t i = 0; i < served_.size(); ++i) take_completions(*served_[i]);
    // Few at a time: completions and cuts do not wait for a flood of strangers.
    for (int n = 0; n < 16; ++n) {
      auto event = next_event(library_, *events_);
      if (!event) break;
      handle(std::move(*event));
    }
    std::vector<SessionId> cut;
    {
      const std::scoped_lock lock(mutex_);
      cut.swap(to_cut_);
    }
    for (const auto session : cut)
      drop_if([session](const Peer& peer) { return peer.session == session; }, "session ended");
    if (unestablished_ > 0) {
      const auto now = clock_.now();
      drop_if([now](const Peer& peer) { return !peer.established && now - peer.since > establish_timeout; },
              "connection was not completed in time");
    }
    // Not before here: completions of others name their place among them.
    std::erase_if(served_, [this](const auto& one) {
      if (one->peers == 0) leave(*one);
      return one->peers == 0;
    });
  }
  drop_if([](const Peer&) { return true; }, "the broker stops");
}

void OfiListener::handle(Event event) {
  if (event.type == FI_CONNREQ) return greet(std::move(event));
  const auto found = serials_.find(event.object);
  if (found == serials_.end()) return;
  if (event.type == FI_CONNECTED) return established(found->second);
  drop(found->second, event.type == FI_SHUTDOWN ? "peer disconnected" : "connection failed");
}

Status OfiListener::judge(const Event& event, std::optional<TokenDesk::Admission>& admission) {
  const auto hello = parse<Hello>(event.data);
  if (!hello || be64toh(hello->magic_number) != magic || be32toh(hello->version_number) != version)
    return Status::incompatible;
  if (peers_.size() >= options_.connections_max) return Status::no_room;
  admission = desk_.redeem(*Token::from(std::as_bytes(std::span(hello->token))));
  if (!admission) return Status::refused;
  const auto of_principal = std::count_if(peers_.begin(), peers_.end(), [&](const auto& one) {
    return one.second.served->domain->principal() == admission->domain->principal();
  });
  return static_cast<std::size_t>(of_principal) < options_.connections_per_principal_max ? Status::ok : Status::refused;
}

void OfiListener::greet(Event event) {
  std::optional<TokenDesk::Admission> admission;
  auto status = judge(event, admission);
  Peer peer;
  if (status == Status::ok) {
    const auto serial = next_serial_++;
    const auto accepted = accept(*admission, *event.info, peer, serial);
    if (accepted) {
      ++peer.served->peers;
      ++unestablished_;
      connections_.fetch_add(1);
      serials_[&peer.endpoint->fid] = serial;
      peers_.emplace(serial, std::move(peer));
      return;
    }
    log::warn("rdma", "ofi: a connection cannot be taken: {}", text(accepted.error()));
    status = Status::no_room;
  }
  count_refusal(status, admission ? admission->domain->principal() : "unknown");
  // Also where an endpoint was made for it: the request's memory is given back here.
  const Welcome answer{htobe64(magic), htobe32(version), htobe32(static_cast<std::uint32_t>(status))};
  (void)fi_reject(listening_.get(), event.info->handle, &answer, sizeof answer);
}

/// Anybody who reaches the port may ask as often as he likes: the log hears of it once a second.
void OfiListener::count_refusal(Status status, std::string_view principal) {
  ++refusals_untold_;
  const auto now = clock_.now();
  if (refusal_told_at_ && now - *refusal_told_at_ < std::chrono::seconds(1)) return;
  log::warn("rdma", "ofi: connection refused status={} principal={} since_last={}", static_cast<std::uint32_t>(status),
            principal, refusals_untold_);
  refusal_told_at_ = now;
  refusals_untold_ = 0;
}

Result<Served*> OfiListener::served_for(const std::shared_ptr<OfiDomain>& domain) {
  for (const auto& one : served_)
    if (one->domain == domain) return one.get();
  const auto opened = domain->opened();
  if (!opened) return opened.error();
  // One completion a peer, that of its receive, and those of peers that have just gone.
  auto completions = open_completions(**opened, 2 * std::size_t{options_.connections_per_principal_max} + 64);
  if (!completions) return completions.error();
  auto served = std::make_unique<Served>();
  served->domain = domain;
  served->completions = std::move(*completions);
  served->descriptor = descriptor_of(served->completions->fid);
  if (!watch(served->descriptor)) return Fault::resources_exhausted;
  served_.push_back(std::move(served));
  return served_.back().get();
}

void OfiListener::leave(Served& served) { (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, served.descriptor, nullptr); }

Result<void> OfiListener::accept(const TokenDesk::Admission& admission, fi_info& info, Peer& peer,
                                 std::uint64_t serial) {
  const auto domain = std::dynamic_pointer_cast<OfiDomain>(admission.domain);
  if (!domain) return Fault::refused;
  const auto served = served_for(domain);
  if (!served) return served.error();
  peer.served = *served;
  peer.session = admission.session;
  peer.since = clock_.now();
  auto endpoint = open_endpoint(*domain->opened().value(), info, *events_, *(*served)->completions);
  if (!endpoint) return endpoint.error();
  peer.endpoint = std::move(*endpoint);
  // There only to fail with the connection; it takes no byte.
  if (const auto error = fi_recv(peer.endpoint.get(), nullptr, 0, nullptr, 0, mark_of(serial)); error != 0)
    return fault_of(static_cast<int>(error));
  const Welcome welcome{htobe64(magic), htobe32(version), 0};
  if (const int error = fi_accept(peer.endpoint.get(), &welcome, sizeof welcome); error != 0) return fault_of(error);
  return {};
}

void OfiListener::established(std::uint64_t serial) {
  auto& peer = peers_.at(serial);
  if (peer.established) return;
  peer.established = true;
  --unestablished_;
  log::info("rdma", "ofi: reader connected principal={} session={} by={}", peer.served->domain->principal(),
            peer.session, kind_.name);
}

void OfiListener::take_completions(Served& served) {
  while (true) {
    std::array<fi_cq_entry, 16> done{};
    const auto got = fi_cq_read(served.completions.get(), done.data(), done.size());
    if (got == -FI_EAVAIL) {
      fi_cq_err_entry failure{};
      if (fi_cq_readerr(served.completions.get(), &failure, 0) <= 0) return;
      drop(number_of(failure.op_context), "connection failed");
      continue;
    }
    if (got <= 0) return;
    for (ssize_t i = 0; i < got; ++i)
      drop(number_of(done[static_cast<std::size_t>(i)].op_context), "peer sent something");
  }
}

void OfiListener::drop(std::uint64_t serial, const char* why) {
  const auto found = peers_.find(serial);
  if (found == peers_.end()) return;
  auto& peer = found->second;
  if (!peer.established) --unestablished_;
  --peer.served->peers;
  serials_.erase(&peer.endpoint->fid);
  log::info("rdma", "ofi: reader gone principal={} session={} why=\"{}\"", peer.served->domain->principal(),
            peer.session, why);
  // The peer hears of it; without its endpoint it reads nothing any more.
  (void)fi_shutdown(peer.endpoint.get(), 0);
  peers_.erase(found);
  connections_.fetch_sub(1);
}

void OfiListener::drop_if(const std::function<bool(const Peer&)>& which, const char* why) {
  std::vector<std::uint64_t> all;
  for (const auto& [serial, peer] : peers_)
    if (which(peer)) all.push_back(serial);
  for (const auto serial : all) drop(serial, why);
}

}  // namespace

Result<std::unique_ptr<Listener>> listen(const Library& library, const Kind& kind, const ListenOptions& options,
                                         std::shared_ptr<Seat> seat, const Clock& clock) {
  auto listener = std::make_unique<OfiListener>(library, kind, options, std::move(seat), clock);
  if (const auto started = listener->start(); !started) return started.error();
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace ciuic::rdma::ofi
