// The broker's end: one thread takes rdma_cm's events and the flushes of queue pairs that failed. A reader is never
// sent anything; the one receive that each queue pair has posted is there to be flushed, and a peer that sends into it
// is cut. Not here: what a key opens (the device), protection domains (domain.cpp).
#include <endian.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/token_desk.h"
#include "transport/rdma/verbs/ends.h"

namespace ciuic::rdma::verbs {

namespace {

constexpr Milliseconds establish_timeout{3000};
constexpr int backlog = 128;
/// A device that is missing is looked for so often.
constexpr Milliseconds look_interval{1000};
/// What a device can serve at a time for one connection, and no more than that is promised.
constexpr std::uint8_t depth_max = 16;

/// A device's completions and what it may be asked for.
struct Device {
  std::shared_ptr<Rail> rail;
  Owned<ibv_comp_channel> channel;
  Owned<ibv_cq> completions;
  std::uint8_t depth = 1;
  std::size_t peers_max = 0;
  std::size_t peers = 0;
  [[nodiscard]] bool iwarp() const { return rail->context->device->transport_type == IBV_TRANSPORT_IWARP; }
};

/// Members end in reverse order: the queue pair before the domain it is in.
struct Peer {
  std::shared_ptr<VerbsDomain> domain;
  Owned<rdma_cm_id> id;
  Device* device = nullptr;
  SessionId session = 0;
  Clock::TimePoint since{};
  bool established = false;
};

/// A bind says that no device has the address by one of these.
Fault fault_of_bind(int error) { return error == ENODEV ? Fault::no_device : fault_of(error); }
/// What is not there now may come: not an address that is taken, nor a card more than can be used.
bool may_come(Fault fault) {
  return fault == Fault::no_device || fault == Fault::address_unreachable || fault == Fault::device_lost;
}

class VerbsListener final : public Listener {
 public:
  VerbsListener(const Library& library, const ListenOptions& options, std::shared_ptr<Rails> rails, const Clock& clock)
      : library_(library), options_(options), rails_(std::move(rails)), clock_(clock), desk_(clock) {}
  ~VerbsListener() override;
  Result<void> start();

  std::string address() const override;
  void admit(const Token& token, std::shared_ptr<Domain> domain, SessionId session, Clock::TimePoint until) override {
    desk_.admit(token, std::move(domain), session, until);
  }
  void disconnect(SessionId session) override;
  std::size_t devices() const override;
  std::size_t connections() const override { return connections_.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] std::vector<Address> wanted_addresses() const;
  [[nodiscard]] Result<void> open_channel();
  [[nodiscard]] Result<void> listen_at(const Address& wanted);
  [[nodiscard]] bool listens_on(const ibv_context* context) const;
  [[nodiscard]] Result<Device*> device_of(ibv_context* context, const Address& address);
  void look_for_devices();
  [[nodiscard]] bool watch(int fd);
  void work();
  void handle(const Event& event);
  void greet(const Event& event);
  [[nodiscard]] Status judge(const Event& event, Device*& device, std::optional<TokenDesk::Admission>& admission);
  [[nodiscard]] bool accept(Peer& peer, std::uint64_t serial, const Event& event);
  int cut_rights(rdma_cm_id& id);
  void established(std::uint64_t serial);
  void reject(rdma_cm_id& id, Status status);
  void take_completions(Device& device);
  void take_async_event(Device& device);
  void stop_watching(const Device& device);
  void lose(const ibv_context* context, const char* why);
  void drop(std::uint64_t serial, const char* why);
  void drop_if(const std::function<bool(const Peer&)>& which, const char* why);
  [[nodiscard]] std::optional<std::uint64_t> serial_of(const rdma_cm_id* id) const;

  const Library& library_;
  ListenOptions options_;
  std::shared_ptr<Rails> rails_;
  const Clock& clock_;
  TokenDesk desk_;
  UniqueFd epoll_, wake_;
  // Ids end before the channel their events come by, queue pairs before the completion queues they report to.
  Owned<rdma_event_channel> channel_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Device>> lost_;  // until nobody is in the middle of them
  struct Place {
    Owned<rdma_cm_id> id;
    Address wanted;
    std::string text;
  };
  std::vector<Place> listening_;                   // behind mutex_ once the thread runs
  std::unordered_map<std::uint64_t, Peer> peers_;  // the thread's
  std::unordered_map<const rdma_cm_id*, std::uint64_t> serials_;
  std::uint64_t next_serial_ = 1;
  std::size_t unestablished_ = 0;
  std::atomic<std::size_t> connections_{0};
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::vector<SessionId> to_cut_;
  // The thread's: addresses asked for whose device is not there, and how many devices are if none was asked for.
  std::vector<Address> missing_;
  std::size_t places_wanted_ = 0;
  Clock::TimePoint look_at_{};
  std::thread thread_;
};

bool VerbsListener::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

/// Those asked for, else every address of the host: an interface without a device refuses to be bound.
std::vector<Address> VerbsListener::wanted_addresses() const {
  if (options_.address.empty()) return host_addresses();
  return parse_addresses(options_.address).value_or(std::vector<Address>());
}

Result<Device*> VerbsListener::device_of(ibv_context* context, const Address& address) {
  for (const auto& device : devices_)
    if (device->rail->context == context) return device.get();
  auto kept = keep_device(library_, address);
  if (!kept) return kept.error();
  if ((*kept)->verbs != context) return Fault::device_lost;
  auto device = std::make_unique<Device>();
  ibv_device_attr can{};
  if (const int error = library_.ibv_query_device(context, &can); error != 0) return fault_of(error);
  device->depth = static_cast<std::uint8_t>(std::clamp(can.max_qp_rd_atom, 1, int{depth_max}));
  // One completion a peer: its flushed receive.
  device->peers_max = std::min<std::size_t>(options_.connections_max, static_cast<std::size_t>(can.max_cqe) / 2);
  device->rail = rails_->add(std::move(*kept));
  if (!device->rail) return Fault::resources_exhausted;
  const auto made = [&]() -> Result<void> {
    device->channel = Owned<ibv_comp_channel>(library_.ibv_create_comp_channel(context), Closer{&library_});
    if (!device->channel) return fault_of(errno);
    device->completions = Owned<ibv_cq>(
        library_.ibv_create_cq(context, static_cast<int>(device->peers_max) * 2, nullptr, device->channel.get(), 0),
        Closer{&library_});
    if (!device->completions) return fault_of(errno);
    const int flags = ::fcntl(context->async_fd, F_GETFL);
    if (ibv_req_notify_cq(device->completions.get(), 0) != 0 || flags < 0 ||
        ::fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0 || !watch(device->channel->fd) ||
        !watch(context->async_fd))
      return Fault::resources_exhausted;
    return {};
  }();
  if (!made) {
    // A rail that nobody can come by would have every chunk pinned on it.
    stop_watching(*device);
    rails_->lose(context);
    return made.error();
  }
  devices_.push_back(std::move(device));
  return devices_.back().get();
}

Result<void> VerbsListener::open_channel() {
  if (channel_) return {};
  auto channel = make_channel(library_);
  if (!channel) return channel.error();
  if (!watch((*channel)->fd)) return Fault::resources_exhausted;
  channel_ = std::move(*channel);
  return {};
}

Result<void> VerbsListener::listen_at(const Address& wanted) {
  if (const auto opened = open_channel(); !opened) return opened.error();
  auto id = make_id(library_, *channel_);
  if (!id) return id.error();
  int on = 1;
  (void)library_.rdma_set_option(id->get(), RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
  auto address = wanted;
  if (library_.rdma_bind_addr(id->get(), address.get()) != 0) return fault_of_bind(errno);
  if ((*id)->verbs == nullptr) return Fault::no_device;
  // One address a device, unless more were asked for: an alias must not take the other device's place.
  if (options_.address.empty() && listens_on((*id)->verbs)) return {};
  // A device counts as a rail, on which every chunk is pinned, only once it is sure that readers can come by it.
  if (library_.rdma_listen(id->get(), backlog) != 0) return fault_of(errno);
  const auto device = device_of((*id)->verbs, address);
  if (!device) return device.error();
  address.set_port(be16toh(library_.rdma_get_src_port(id->get())));
  log::info("rdma", "verbs: listening address={} device={} rail={}", address.text(),
            library_.ibv_get_device_name((*id)->verbs->device), (*device)->rail->number);
  const std::scoped_lock lock(mutex_);
  listening_.push_back({std::move(*id), wanted, address.text()});
  return {};
}

/// Quietly: what was lost has been said, and what is found will be.
void VerbsListener::look_for_devices() {
  library_.meet_new_devices();
  auto wanted = options_.address.empty() ? host_addresses() : std::exchange(missing_, {});
  for (const auto& address : wanted) {
    const auto done = listen_at(address);
    if (!done && !options_.address.empty()) missing_.push_back(address);
  }
  look_at_ = clock_.now() + look_interval;
}

bool VerbsListener::listens_on(const ibv_context* context) const {
  return std::any_of(listening_.begin(), listening_.end(),
                     [context](const Place& place) { return place.id->verbs == context; });
}

std::string VerbsListener::address() const {
  const std::scoped_lock lock(mutex_);
  std::string all;
  for (const auto& place : listening_)
    if (rails_->usable(place.id->verbs)) all += (all.empty() ? "" : ",") + place.text;
  return all;
}

std::size_t VerbsListener::devices() const {
  const std::scoped_lock lock(mutex_);
  std::set<const ibv_context*> all;
  for (const auto& place : listening_)
    if (rails_->usable(place.id->verbs)) all.insert(place.id->verbs);
  return all.size();
}

Result<void> VerbsListener::start() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_) return Fault::resources_exhausted;
  if (!watch(wake_.get())) return Fault::resources_exhausted;
  const auto addresses = wanted_addresses();
  const bool named = !options_.address.empty();
  if (named && addresses.empty()) {
    log::error("rdma", "verbs: onesided.listen={}: no list of addresses; give ip:port, with commas between",
               options_.address);
    return Fault::refused;
  }
  auto why = Fault::no_device;
  for (const auto& address : addresses) {
    const auto done = listen_at(address);
    if (done || !named) continue;
    why = done.error();
    if (may_come(why)) {
      missing_.push_back(address);
      log::warn("rdma",
                "verbs: cannot listen at {} yet: {}; it is listened at once there is a device with that address",
                address.text(), text(why));
    } else {
      log::error("rdma", "verbs: cannot listen at {}: {}; {}", address.text(), text(why), remedy(why));
    }
  }
  if (listening_.empty() && missing_.empty()) return why;
  places_wanted_ = listening_.size();
  look_at_ = clock_.now() + look_interval;
  thread_ = std::thread([this] { work(); });
  return {};
}

VerbsListener::~VerbsListener() {
  stopping_.store(true);
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void VerbsListener::disconnect(SessionId session) {
  desk_.forget(session);
  {
    const std::scoped_lock lock(mutex_);
    to_cut_.push_back(session);
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void VerbsListener::work() {
  std::array<epoll_event, 16> events{};
  while (!stopping_.load()) {
    const bool misses_some = !missing_.empty() || listening_.size() < places_wanted_;
    if (misses_some && clock_.now() >= look_at_) look_for_devices();
    const int timeout = unestablished_ > 0 ? 500 : misses_some ? static_cast<int>(look_interval.count()) : -1;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    if (count < 0 && errno != EINTR) {
      log::error("rdma", "verbs: epoll_wait: {}", std::strerror(errno));
      return;
    }
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == wake_.get()) {
        std::uint64_t value;
        (void)!::read(fd, &value, sizeof value);
      } else if (channel_ && fd == channel_->fd) {
        // Few at a time: completions and cuts do not wait for a flood of strangers.
        for (int n = 0; n < 16; ++n) {
          const auto event = next_event(library_, *channel_);
          if (!event) break;
          handle(*event);
        }
      } else {
        const auto device = std::find_if(devices_.begin(), devices_.end(), [fd](const auto& one) {
          return one->channel->fd == fd || one->rail->context->async_fd == fd;
        });
        if (device == devices_.end()) continue;  // lost just now
        if ((*device)->channel->fd == fd)
          take_completions(**device);
        else
          take_async_event(**device);
      }
    }
    lost_.clear();
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
  }
  drop_if([](const Peer&) { return true; }, "the broker stops");
}

std::optional<std::uint64_t> VerbsListener::serial_of(const rdma_cm_id* id) const {
  const auto found = serials_.find(id);
  if (found == serials_.end()) return std::nullopt;
  return found->second;
}

void VerbsListener::handle(const Event& event) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return greet(event);
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    if (event.id->verbs == nullptr) return;
    lose(event.id->verbs, "device removed");
    library_.notice_removed_devices();
    return;
  }
  const auto serial = serial_of(event.id);
  if (!serial) return;
  switch (event.type) {
    case RDMA_CM_EVENT_ESTABLISHED:
      return established(*serial);
    case RDMA_CM_EVENT_DISCONNECTED:
      return drop(*serial, "peer disconnected");
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      return drop(*serial, "connection was not completed");
    default:
      return;
  }
}

Status VerbsListener::judge(const Event& event, Device*& device, std::optional<TokenDesk::Admission>& admission) {
  for (const auto& one : devices_)
    if (one->rail->context == event.id->verbs) device = one.get();
  const auto hello = parse<Hello>(event.data.data(), event.data_bytes);
  if (!hello || be64toh(hello->magic_number) != magic || be32toh(hello->version_number) != version)
    return Status::incompatible;
  // Before the token is spent: the client tries another device with it.
  if (device == nullptr || device->rail->lost.load() || device->peers >= device->peers_max ||
      peers_.size() >= options_.connections_max)
    return Status::no_room;
  admission = desk_.redeem(*Token::from(std::as_bytes(std::span(hello->token))));
  if (!admission) return Status::refused;
  std::size_t of_principal = 0;
  for (const auto& [serial, peer] : peers_)
    of_principal += peer.domain->principal() == admission->domain->principal() ? 1 : 0;
  return of_principal < options_.connections_per_principal_max ? Status::ok : Status::refused;
}

void VerbsListener::greet(const Event& event) {
  Peer peer;
  peer.id = Owned<rdma_cm_id>(event.id, Closer{&library_});
  std::optional<TokenDesk::Admission> admission;
  auto status = judge(event, peer.device, admission);
  if (status == Status::ok) {
    peer.domain = std::dynamic_pointer_cast<VerbsDomain>(admission->domain);
    peer.session = admission->session;
    peer.since = clock_.now();
    const auto serial = next_serial_++;
    if (peer.domain && accept(peer, serial, event)) {
      serials_[peer.id.get()] = serial;
      ++peer.device->peers;
      ++unestablished_;
      connections_.fetch_add(1);
      peers_.emplace(serial, std::move(peer));
      return;
    }
    status = Status::no_room;
  }
  log::bounded(log::Level::warn, "rdma", "verbs: connection refused status={} principal={}",
               static_cast<std::uint32_t>(status), admission ? admission->domain->principal() : "unknown");
  reject(*peer.id, status);
}

bool VerbsListener::accept(Peer& peer, std::uint64_t serial, const Event& event) {
  const auto refused = [](const char* step, int error) {
    log::bounded(log::Level::warn, "rdma", "verbs: a connection cannot be taken, {}: {}", step,
                 std::strerror(std::abs(error)));
    return false;
  };
  const auto domain = peer.domain->protection_domain(peer.device->rail);
  if (!domain) return refused("no protection domain", ENODEV);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = peer.device->completions.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  if (library_.rdma_create_qp(peer.id.get(), *domain, &wanted) != 0) return refused("rdma_create_qp", errno);
  // A receive that is there only to be flushed, and takes no byte. Soft-iWARP refuses one without a piece.
  ibv_sge nothing{};
  ibv_recv_wr receive{};
  receive.wr_id = serial;
  receive.sg_list = &nothing;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(peer.id->qp, &receive, &bad); error != 0) return refused("ibv_post_recv", error);
  // Here while there is no stream yet: soft-iWARP forgets to serve a READ that comes while its queue pair is modified.
  if (peer.device->iwarp()) {
    if (const int error = cut_rights(*peer.id); error != 0)  // iWARP devices need not know these rights
      log::debug("rdma", "verbs: a queue pair's rights stay as rdma_cm set them: {}", std::strerror(std::abs(error)));
  }
  const Welcome welcome{htobe64(magic), htobe32(version), 0, htobe32(peer.device->rail->number), 0};
  rdma_conn_param answer{};
  answer.private_data = &welcome;
  answer.private_data_len = sizeof welcome;
  answer.responder_resources = std::min(event.responder_resources, peer.device->depth);
  answer.rnr_retry_count = 0;
  if (library_.rdma_accept(peer.id.get(), &answer) != 0) return refused("rdma_accept", errno);
  return true;
}

/// rdma_cm gives a queue pair the right to everything; the regions' own rights are the first wall, this the second.
int VerbsListener::cut_rights(rdma_cm_id& id) {
  ibv_qp_attr rights{};
  rights.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  return library_.ibv_modify_qp(id.qp, &rights, IBV_QP_ACCESS_FLAGS);
}

void VerbsListener::established(std::uint64_t serial) {
  auto& peer = peers_.at(serial);
  if (peer.established) return;
  peer.established = true;
  --unestablished_;
  // Not before the connection stands: soft-RoCE then loses the peer's word that it does, now and again.
  if (!peer.device->iwarp()) {
    if (const int error = cut_rights(*peer.id); error != 0)
      return drop(serial, std::strerror(std::abs(error)));  // the second wall is missing
  }
  log::bounded(log::Level::info, "rdma", "verbs: reader connected principal={} session={} device={}",
               peer.domain->principal(), peer.session,
               library_.ibv_get_device_name(peer.device->rail->context->device));
}

void VerbsListener::reject(rdma_cm_id& id, Status status) {
  const Welcome answer{htobe64(magic), htobe32(version), htobe32(static_cast<std::uint32_t>(status)), 0, 0};
  (void)library_.rdma_reject(&id, &answer, sizeof answer);
}

void VerbsListener::take_completions(Device& device) {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (library_.ibv_get_cq_event(device.channel.get(), &queue, &context) != 0) {
    // A removed device's channel is readable for ever and has nothing.
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, device.channel->fd, nullptr);
    return lose(device.rail->context, "its completion channel failed");
  }
  library_.ibv_ack_cq_events(queue, 1);
  (void)ibv_req_notify_cq(queue, 0);
  std::array<ibv_wc, 16> done{};
  int count = 0;
  while ((count = ibv_poll_cq(queue, static_cast<int>(done.size()), done.data())) > 0)
    for (int i = 0; i < count; ++i) {
      const auto& one = done[static_cast<std::size_t>(i)];
      drop(one.wr_id, one.status == IBV_WC_SUCCESS ? "peer sent something" : "queue pair failed");
    }
}

void VerbsListener::take_async_event(Device& device) {
  ibv_async_event event{};
  if (library_.ibv_get_async_event(device.rail->context, &event) != 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, device.rail->context->async_fd, nullptr);
    return;
  }
  const auto type = event.event_type;
  // Before the objects it names are ended: that waits for the acknowledgement.
  library_.ibv_ack_async_event(&event);
  const auto* const name = library_.ibv_get_device_name(device.rail->context->device);
  switch (type) {
    case IBV_EVENT_DEVICE_FATAL:
      return lose(device.rail->context, "device failed");
    case IBV_EVENT_CQ_ERR:
      // No more flushes will be told: nobody would notice that a queue pair failed.
      return lose(device.rail->context, "its completion queue failed");
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
      log::warn("rdma", "verbs: device={}: {}", name, library_.ibv_event_type_str(type));
      return;
    default:
      log::debug("rdma", "verbs: device={}: {}", name, library_.ibv_event_type_str(type));
  }
}

void VerbsListener::stop_watching(const Device& device) {
  if (device.channel) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, device.channel->fd, nullptr);
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, device.rail->context->async_fd, nullptr);
}

/// Nothing of the device is used any more. Its addresses are looked for from now on, on whatever device they come back.
void VerbsListener::lose(const ibv_context* context, const char* why) {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [context](const auto& device) { return device->rail->context == context; });
  if (found == devices_.end()) return;
  log::error(
      "rdma",
      "verbs: a device is lost, its readers are cut; it is listened on again once it is back device={} why=\"{}\"",
      library_.ibv_get_device_name(context->device), why);
  rails_->lose(context);
  drop_if([context](const Peer& peer) { return peer.device->rail->context == context; }, why);
  stop_watching(**found);
  lost_.push_back(std::move(*found));
  devices_.erase(found);
  std::vector<Place> ended;  // destroyed outside the lock: rdma_cm waits for its events there
  {
    const std::scoped_lock lock(mutex_);
    const auto kept = std::stable_partition(listening_.begin(), listening_.end(),
                                            [context](const Place& place) { return place.id->verbs != context; });
    std::move(kept, listening_.end(), std::back_inserter(ended));
    listening_.erase(kept, listening_.end());
  }
  if (!options_.address.empty())
    for (const auto& place : ended) missing_.push_back(place.wanted);
  look_at_ = clock_.now() + look_interval;
}

void VerbsListener::drop(std::uint64_t serial, const char* why) {
  const auto found = peers_.find(serial);
  if (found == peers_.end()) return;
  auto& peer = found->second;
  if (!peer.established) --unestablished_;
  --peer.device->peers;
  serials_.erase(peer.id.get());
  log::bounded(log::Level::info, "rdma", "verbs: reader gone principal={} session={} why=\"{}\"",
               peer.domain->principal(), peer.session, why);
  // The queue pair fails at once, and the peer hears of it.
  (void)library_.rdma_disconnect(peer.id.get());
  peers_.erase(found);
  connections_.fetch_sub(1);
}

void VerbsListener::drop_if(const std::function<bool(const Peer&)>& which, const char* why) {
  std::vector<std::uint64_t> all;
  for (const auto& [serial, peer] : peers_)
    if (which(peer)) all.push_back(serial);
  for (const auto serial : all) drop(serial, why);
}

}  // namespace

Result<std::unique_ptr<Listener>> listen(const Library& library, const ListenOptions& options,
                                         std::shared_ptr<Rails> rails, const Clock& clock) {
  auto listener = std::make_unique<VerbsListener>(library, options, std::move(rails), clock);
  if (const auto started = listener->start(); !started) return started.error();
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace ciuic::rdma::verbs
