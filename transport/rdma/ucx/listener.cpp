// The broker's end: one thread drives UCX, asleep while there is nothing to do. READs that UCX does in software are
// served by it. Here a token opens a connection, a connection learns the keys of its principal, and whoever does not
// let go of a key that ends is cut.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/token_desk.h"
#include "transport/rdma/ucx/ends.h"

namespace ciuic::rdma::ucx {

namespace {

constexpr Milliseconds greet_timeout{3000};
/// A reader that polls lets go of a key at once.
constexpr Milliseconds forget_timeout{200};
constexpr std::size_t strangers_max = 256;

struct Peer {
  ucp_ep_h endpoint = nullptr;
  std::shared_ptr<UcxDomain> domain;  // null: a stranger yet
  SessionId session = 0;
  Clock::TimePoint since{};
  std::unordered_set<std::uint64_t> keys;
};

/// A key that somebody waits to see forgotten.
struct Ending {
  std::uint64_t key = 0;
  Clock::TimePoint until{};
  bool told = false;
  bool cut = false;
  bool done = false;
};

class UcxListener final : public Listener, private Holders {
 public:
  UcxListener(const ListenOptions& options, std::shared_ptr<Seat> seat, const Clock& clock)
      : options_(options), seat_(std::move(seat)), clock_(clock), desk_(clock) {}
  ~UcxListener() override;
  Result<void> start();

  std::string address() const override { return address_; }
  void admit(const Token& token, std::shared_ptr<Domain> domain, SessionId session, Clock::TimePoint until) override {
    desk_.admit(token, std::move(domain), session, until);
  }
  void disconnect(SessionId session) override;
  std::size_t connections() const override { return connections_.load(std::memory_order_relaxed); }

 private:
  struct Said {
    std::uint64_t serial;
    Kind kind;
    Buffer bytes;
  };
  void forget(std::uint64_t key) override;
  [[nodiscard]] Result<void> listen_at(Address address);
  [[nodiscard]] Result<void> hear(Kind kind, ucp_am_recv_callback_t call);
  template <Kind kind>
  static ucs_status_t heard(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                            const ucp_am_recv_param_t* how);
  void wake();
  void work();
  void sleep();
  void take_requests();
  void take_words();
  void take_cuts();
  void end_keys();
  [[nodiscard]] Status judge(const Hello* hello, Peer& peer);
  void greet(Peer& peer, Bytes said);
  void answer(Peer& peer, std::uint64_t key);
  void drop(std::uint64_t serial, const char* why);
  void drop_if(const std::function<bool(const Peer&)>& which, const char* why);

  ListenOptions options_;
  std::shared_ptr<Seat> seat_;
  const Clock& clock_;
  TokenDesk desk_;
  UniqueFd wake_;
  std::string address_;
  std::shared_ptr<const Context> context_;
  std::unique_ptr<Worker> worker_;
  ucp_listener_h listening_ = nullptr;
  // The thread's from here on. What UCX calls us with is taken down, and done after the call.
  std::vector<ucp_conn_request_h> requests_;
  std::vector<Said> said_;
  std::vector<std::uint64_t> gone_;
  std::unordered_map<std::uint64_t, Peer> peers_;
  std::unordered_map<ucp_ep_h, std::uint64_t> serials_;
  std::uint64_t next_serial_ = 1;
  std::atomic<std::size_t> connections_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<SessionId> to_cut_;
  std::vector<Ending*> endings_;
  std::condition_variable ended_;
  std::thread thread_;
};

template <Kind kind>
ucs_status_t UcxListener::heard(void* self, const void* header, std::size_t header_bytes, void* /*data*/,
                                std::size_t /*bytes*/, const ucp_am_recv_param_t* how) {
  auto& listener = *static_cast<UcxListener*>(self);
  if ((how->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0 || header_bytes > sizeof(Hello)) return UCS_OK;
  const auto found = listener.serials_.find(how->reply_ep);
  if (found == listener.serials_.end()) return UCS_OK;
  const auto said = bytes_of(header, header_bytes);
  listener.said_.push_back({found->second, kind, Buffer(said.begin(), said.end())});
  return UCS_OK;
}

Result<void> UcxListener::hear(Kind kind, ucp_am_recv_callback_t call) { return worker_->on(kind, call, this); }

Result<void> UcxListener::listen_at(Address address) {
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = sockaddr_of(address);
  params.conn_handler.cb = [](ucp_conn_request_h request, void* self) {
    static_cast<UcxListener*>(self)->requests_.push_back(request);
  };
  params.conn_handler.arg = this;
  const auto& library = context_->library;
  if (const auto status = library.listener_create(worker_->handle(), &params, &listening_); status != UCS_OK) {
    listening_ = nullptr;
    return fault_of(status);
  }
  ucp_listener_attr_t seen{};
  seen.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const auto status = library.listener_query(listening_, &seen); status != UCS_OK) {
    library.listener_destroy(std::exchange(listening_, nullptr));
    return fault_of(status);
  }
  address.storage = seen.sockaddr;
  address_ = address.text();
  log::info("rdma", "ucx: listening address={} version={}", address_, library.get_version_string());
  return {};
}

Result<void> UcxListener::start() {
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return Fault::resources_exhausted;
  auto context = seat_->context();
  if (!context) return context.error();
  context_ = std::move(*context);
  auto worker = Worker::open(context_);
  if (!worker) return worker.error();
  worker_ = std::move(*worker);
  for (const auto& done : {hear(Kind::hello, &heard<Kind::hello>), hear(Kind::ask, &heard<Kind::ask>),
                           hear(Kind::forgot, &heard<Kind::forgot>)})
    if (!done) return done.error();
  const auto addresses =
      options_.address.empty() ? host_addresses() : parse_addresses(options_.address).value_or(std::vector<Address>());
  if (addresses.empty() && !options_.address.empty()) {
    log::error("rdma", "ucx: onesided.listen={}: no list of addresses; give ip:port, with commas between",
               options_.address);
    return Fault::refused;
  }
  auto why = Fault::no_device;
  for (const auto& address : addresses) {
    const auto done = listen_at(address);
    if (done) break;
    why = done.error();
    log::error("rdma", "ucx: cannot listen at {}: {}; {}", address.text(), text(why), remedy(why));
  }
  if (listening_ == nullptr) return why;
  thread_ = std::thread([this] { work(); });
  seat_->join(*this);
  return {};
}

UcxListener::~UcxListener() {
  if (!thread_.joinable()) return;
  seat_->leave(*this);
  stopping_.store(true);
  wake();
  thread_.join();
}

void UcxListener::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void UcxListener::disconnect(SessionId session) {
  desk_.forget(session);
  {
    const std::scoped_lock lock(mutex_);
    to_cut_.push_back(session);
  }
  wake();
}

void UcxListener::forget(std::uint64_t key) {
  Ending ending;
  ending.key = key;
  std::unique_lock lock(mutex_);
  endings_.push_back(&ending);
  wake();
  ended_.wait(lock, [&] { return ending.done; });
}

void UcxListener::work() {
  while (!stopping_.load()) {
    worker_->progress();
    take_requests();
    take_words();
    take_cuts();
    end_keys();
    sleep();
  }
  for (auto* const request : std::exchange(requests_, {})) (void)context_->library.listener_reject(listening_, request);
  context_->library.listener_destroy(listening_);
  drop_if([](const Peer&) { return true; }, "the broker stops");
  const auto until = clock_.now() + Milliseconds(500);
  while (worker_->is_cutting() && clock_.now() < until) worker_->progress();
  // Nobody comes any more, and none has stayed: seat_->leave has waited for those who waited here.
  worker_.reset();
}

void UcxListener::sleep() {
  if (!requests_.empty() || !said_.empty() || !gone_.empty()) return;
  int patience = -1;
  // Few cases, each with its own hurry.
  if (std::any_of(peers_.begin(), peers_.end(), [](const auto& one) { return !one.second.domain; })) patience = 500;
  if (worker_->is_cutting()) patience = 1;
  {
    const std::scoped_lock lock(mutex_);
    if (!endings_.empty()) patience = 10;
  }
  if (!worker_->arm()) return;
  std::array<pollfd, 2> ready{{{worker_->descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  (void)::poll(ready.data(), ready.size(), patience);
  std::uint64_t value;
  (void)!::read(wake_.get(), &value, sizeof value);
}

void UcxListener::take_requests() {
  for (auto* const request : std::exchange(requests_, {})) {
    const auto strangers = peers_.size() - connections_.load();
    if (peers_.size() >= options_.connections_max || strangers >= strangers_max) {
      log::bounded(log::Level::warn, "rdma", "ucx: connection refused: {} open, {} strangers among them", peers_.size(),
                   strangers);
      (void)context_->library.listener_reject(listening_, request);
      continue;
    }
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.conn_request = request;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* self, ucp_ep_h endpoint, ucs_status_t) {
      auto& listener = *static_cast<UcxListener*>(self);
      if (const auto found = listener.serials_.find(endpoint); found != listener.serials_.end())
        listener.gone_.push_back(found->second);
    };
    params.err_handler.arg = this;
    Peer peer;
    peer.since = clock_.now();
    if (const auto status = context_->library.ep_create(worker_->handle(), &params, &peer.endpoint); status != UCS_OK) {
      log::bounded(log::Level::warn, "rdma", "ucx: a connection cannot be taken: {}",
                   context_->library.status_string(status));
      continue;
    }
    serials_[peer.endpoint] = next_serial_;
    peers_.emplace(next_serial_++, std::move(peer));
  }
}

void UcxListener::take_words() {
  for (const auto& [serial, kind, bytes] : std::exchange(said_, {})) {
    const auto found = peers_.find(serial);
    if (found == peers_.end()) continue;
    auto& peer = found->second;
    if (kind == Kind::hello && !peer.domain) {
      greet(peer, bytes);
      continue;
    }
    const auto word = parse<KeyWord>(bytes);
    if (!word || !peer.domain || kind == Kind::hello)
      drop(serial, "peer said what we do not understand");
    else if (kind == Kind::ask)
      answer(peer, word->key);
    else
      peer.keys.erase(be64toh(word->key));
  }
  for (const auto serial : std::exchange(gone_, {})) drop(serial, "peer disconnected");
}

void UcxListener::take_cuts() {
  std::vector<SessionId> cut;
  {
    const std::scoped_lock lock(mutex_);
    cut.swap(to_cut_);
  }
  for (const auto session : cut)
    drop_if([session](const Peer& peer) { return peer.domain && peer.session == session; }, "session ended");
  const auto now = clock_.now();
  drop_if([now](const Peer& peer) { return !peer.domain && now - peer.since > greet_timeout; },
          "peer showed no token that is one");
}

void UcxListener::end_keys() {
  const std::scoped_lock lock(mutex_);
  const auto now = clock_.now();
  for (auto* const ending : endings_) {
    if (!ending->told) {
      const KeyWord word{htobe64(ending->key)};
      for (auto& [serial, peer] : peers_)
        if (peer.keys.contains(ending->key)) worker_->send(peer.endpoint, Kind::forget, word);
      ending->until = now + forget_timeout;
      ending->told = true;
    }
    const auto holds = [ending](const Peer& peer) { return peer.keys.contains(ending->key); };
    const bool held = std::any_of(peers_.begin(), peers_.end(), [&](const auto& one) { return holds(one.second); });
    if (held && now < ending->until) continue;
    drop_if(holds, "peer went on reading what has ended");
    ending->cut = ending->cut || held;
    // A cut is over when UCX says so: until then it may send more of the region.
    ending->done = !ending->cut || !worker_->is_cutting();
  }
  if (std::erase_if(endings_, [](const Ending* one) { return one->done; }) > 0) ended_.notify_all();
}

Status UcxListener::judge(const Hello* hello, Peer& peer) {
  if (hello == nullptr || be64toh(hello->magic_number) != magic || be32toh(hello->version_number) != version)
    return Status::incompatible;
  const auto admission = desk_.redeem(*Token::from(std::as_bytes(std::span(hello->token))));
  if (!admission) return Status::refused;
  const auto domain = std::dynamic_pointer_cast<UcxDomain>(admission->domain);
  if (!domain) return Status::refused;
  const auto of_principal = std::count_if(peers_.begin(), peers_.end(), [&](const auto& one) {
    return one.second.domain && one.second.domain->principal() == domain->principal();
  });
  if (static_cast<std::size_t>(of_principal) >= options_.connections_per_principal_max) return Status::refused;
  peer.domain = domain;
  peer.session = admission->session;
  return Status::ok;
}

void UcxListener::greet(Peer& peer, Bytes said) {
  const auto hello = parse<Hello>(said);
  const auto status = judge(hello ? &*hello : nullptr, peer);
  worker_->send(peer.endpoint, Kind::welcome,
                Welcome{htobe64(magic), htobe32(version), htobe32(static_cast<std::uint32_t>(status))});
  if (status != Status::ok) {
    // He has heard it, or soon: he goes by himself, or when strangers have to.
    log::bounded(log::Level::warn, "rdma", "ucx: connection refused status={}", static_cast<std::uint32_t>(status));
    return;
  }
  connections_.fetch_add(1);
  log::info("rdma", "ucx: reader connected principal={} session={}", peer.domain->principal(), peer.session);
}

void UcxListener::answer(Peer& peer, std::uint64_t key) {
  const auto exposed = seat_->find(be64toh(key), *peer.domain);
  KeyAnswer said{key, 0, 0, htobe32(static_cast<std::uint32_t>(Status::refused))};
  if (exposed) {
    peer.keys.insert(be64toh(key));
    said.address = htobe64(exposed->address);
    said.length = htobe32(exposed->length);
    said.status = 0;
  }
  worker_->send(peer.endpoint, Kind::key, said, exposed ? Bytes(exposed->packed) : Bytes());
}

void UcxListener::drop(std::uint64_t serial, const char* why) {
  const auto found = peers_.find(serial);
  if (found == peers_.end()) return;
  auto& peer = found->second;
  serials_.erase(peer.endpoint);
  if (peer.domain) {
    connections_.fetch_sub(1);
    log::info("rdma", "ucx: reader gone principal={} session={} why=\"{}\"", peer.domain->principal(), peer.session,
              why);
  }
  worker_->cut(peer.endpoint);
  peers_.erase(found);
}

void UcxListener::drop_if(const std::function<bool(const Peer&)>& which, const char* why) {
  std::vector<std::uint64_t> all;
  for (const auto& [serial, peer] : peers_)
    if (which(peer)) all.push_back(serial);
  for (const auto serial : all) drop(serial, why);
}

}  // namespace

Result<std::unique_ptr<Listener>> listen(const ListenOptions& options, std::shared_ptr<Seat> seat, const Clock& clock) {
  auto listener = std::make_unique<UcxListener>(options, std::move(seat), clock);
  if (const auto started = listener->start(); !started) return started.error();
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace ciuic::rdma::ucx
