// The client's end: an RC queue pair. READs are counted here, for the device will not: its queue is exactly as long as
// what may be outstanding, and completions come in the order posted. rdma_cm's events are looked at beside completions,
// for a READ that was under way when the broker died ends by itself only after all its retries.
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "transport/base/fork_guard.h"
#include "transport/base/log.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/first_read.h"
#include "transport/rdma/landing_places.h"
#include "transport/rdma/stripes.h"
#include "transport/rdma/verbs/ends.h"

namespace ciuic::rdma::verbs {

namespace {

/// READs that one connection asks the broker's device to serve at a time.
constexpr std::uint8_t depth_wanted = 16;
/// A lost packet is asked for again after 4.096 us * 2^14 = 67 ms (rdma_cm's own choice: seconds), six times: a dead
/// peer is known within half a second. Seven would mean for ever on some devices.
constexpr std::uint8_t ack_timeout = 14;
constexpr std::uint8_t retries = 6;
/// Events are looked for so often.
constexpr Milliseconds look_interval{1};
/// A failed queue pair flushes at once; some software devices forget to.
constexpr Milliseconds flush_patience{1000};
/// A second connection is a matter of speed alone: it is not waited for longer.
constexpr Milliseconds second_timeout{1000};

using Places = LandingPlaces<Owned<ibv_mr>>;
using Place = Places::Place;

class VerbsEndpoint final : public Endpoint {
 public:
  VerbsEndpoint(const Library& library, const Clock& clock) : library_(library), clock_(clock) {}
  ~VerbsEndpoint() override;

  /// `other`: a connection that there is already. One by the same device as it is not made: no_device.
  Result<void> dial(Address address, std::optional<Address> source, const Token& token, Clock::TimePoint deadline,
                    const VerbsEndpoint* other = nullptr);
  [[nodiscard]] std::uint32_t rail() const { return rail_; }

  const Caps& caps() const override { return verbs_caps(); }
  Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) override;
  Result<std::unique_ptr<Landing>> register_landing(const LandingMemory& memory) override;
  Result<std::size_t> post_reads(std::span<const ReadRequest> batch) override;
  Result<std::size_t> poll(std::span<Completion> into) override;
  int arm() override;
  void close() override;

 private:
  struct Pending {
    std::uint64_t id = 0;
    Place* place = nullptr;
  };
  [[nodiscard]] Result<Event> await(rdma_cm_event_type wanted, Clock::TimePoint deadline);
  [[nodiscard]] Result<void> make_queue_pair();
  [[nodiscard]] Fault break_with(Fault fault);
  [[nodiscard]] std::optional<Fault> refuse_if_over() const;
  void look_at_events();
  void finish(std::optional<Fault> fault, Completion& into);
  [[nodiscard]] std::size_t outstanding() const { return posted_ - finished_; }
  [[nodiscard]] unsigned landing_access() const;
  [[nodiscard]] bool iwarp() const { return id_->verbs->device->transport_type == IBV_TRANSPORT_IWARP; }

  const Library& library_;
  const Clock& clock_;
  ForkGuard fork_{};
  // The id keeps the device's context and ends last of what is on it; its queue pair, before what that uses, by
  // `close`.
  Owned<rdma_event_channel> channel_;
  Owned<rdma_cm_id> id_;
  Owned<ibv_pd> domain_;
  std::shared_ptr<Places> places_ = std::make_shared<Places>();
  Owned<ibv_comp_channel> signals_;
  Owned<ibv_cq> completions_;
  UniqueFd news_;  // readable when signals_ or channel_ is
  std::uint32_t rail_ = 0;
  std::optional<Fault> broken_{};
  Clock::TimePoint broken_at_{};
  Clock::TimePoint looked_at_{};
  // READ number n is at n modulo the table's size. What is below `succeeded_` has arrived, below `finished_` been told.
  std::vector<Pending> reads_ = std::vector<Pending>(verbs_caps().reads_outstanding_max);
  std::uint64_t posted_ = 0;
  std::uint64_t succeeded_ = 0;
  std::uint64_t finished_ = 0;
  std::optional<std::pair<std::uint64_t, Fault>> failed_{};  // the first that did, and how
  bool flushed_ = false;                                     // whatever is outstanding will not arrive
};

VerbsEndpoint::~VerbsEndpoint() {
  if (fork_.in_child()) {
    // The parent's objects: ending them here would end them there.
    (void)id_.release();
    (void)completions_.release();
    (void)signals_.release();
    (void)domain_.release();
    (void)channel_.release();
    return;
  }
  close();
  if (!broken_ || *broken_ != Fault::device_lost) return;
  library_.notice_removed_devices();
}

Result<Event> VerbsEndpoint::await(rdma_cm_event_type wanted, Clock::TimePoint deadline) {
  while (true) {
    if (const auto event = next_event(library_, *channel_)) {
      if (event->type == wanted) return *event;
      log::debug("rdma", "verbs: {} status={} instead of {}", library_.rdma_event_str(event->type), event->status,
                 library_.rdma_event_str(wanted));
      switch (event->type) {
        case RDMA_CM_EVENT_REJECTED: {
          const auto answer = parse<Welcome>(event->data.data(), event->data_bytes);
          if (!answer || be64toh(answer->magic_number) != magic) return Fault::address_unreachable;
          switch (static_cast<Status>(be32toh(answer->status))) {
            case Status::refused:
              return Fault::refused;
            case Status::no_room:
              return Fault::resources_exhausted;
            default:
              return Fault::incompatible;
          }
        }
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
          return Fault::device_lost;
        case RDMA_CM_EVENT_DISCONNECTED:
          return Fault::peer_gone;
        case RDMA_CM_EVENT_ADDR_ERROR:
          return event->status == -ENODEV ? Fault::no_device : Fault::address_unreachable;
        default:
          return Fault::address_unreachable;
      }
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - clock_.now()).count();
    if (left <= 0) return Fault::address_unreachable;
    pollfd ready{channel_->fd, POLLIN, 0};
    (void)::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, 1000)));
  }
}

Result<void> VerbsEndpoint::make_queue_pair() {
  auto* const context = id_->verbs;
  if (context == nullptr) return Fault::no_device;
  domain_ = Owned<ibv_pd>(library_.ibv_alloc_pd(context), Closer{&library_});
  if (!domain_) return fault_of(errno);
  const auto length = verbs_caps().reads_outstanding_max;
  signals_ = Owned<ibv_comp_channel>(library_.ibv_create_comp_channel(context), Closer{&library_});
  if (!signals_) return fault_of(errno);
  completions_ = Owned<ibv_cq>(
      library_.ibv_create_cq(context, static_cast<int>(length) + 1, nullptr, signals_.get(), 0), Closer{&library_});
  if (!completions_) return fault_of(errno);
  news_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  for (const int each : {signals_->fd, channel_->fd}) {
    epoll_event wanted_event{};
    wanted_event.events = EPOLLIN;
    if (::fcntl(each, F_SETFL, ::fcntl(each, F_GETFL) | O_NONBLOCK) != 0 ||
        ::epoll_ctl(news_.get(), EPOLL_CTL_ADD, each, &wanted_event) != 0)
      return fault_of(errno);
  }
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = length, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  if (library_.rdma_create_qp(id_.get(), domain_.get(), &wanted) != 0) return fault_of(errno);
  return {};
}

Result<void> VerbsEndpoint::dial(Address address, std::optional<Address> source, const Token& token,
                                 Clock::TimePoint deadline, const VerbsEndpoint* other) {
  auto channel = make_channel(library_);
  if (!channel) return channel.error();
  channel_ = std::move(*channel);
  auto id = make_id(library_, *channel_);
  if (!id) return id.error();
  id_ = std::move(*id);
  const auto left = [&] {
    return std::max(1, static_cast<int>(std::chrono::duration_cast<Milliseconds>(deadline - clock_.now()).count()));
  };
  if (library_.rdma_resolve_addr(id_.get(), source ? source->get() : nullptr, address.get(), left()) != 0)
    return fault_of(errno);
  if (const auto got = await(RDMA_CM_EVENT_ADDR_RESOLVED, deadline); !got) return got.error();
  if (other != nullptr && other->id_->verbs == id_->verbs) return Fault::no_device;
  std::uint8_t timeout = ack_timeout;
  (void)library_.rdma_set_option(id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  if (library_.rdma_resolve_route(id_.get(), left()) != 0) return fault_of(errno);
  if (const auto got = await(RDMA_CM_EVENT_ROUTE_RESOLVED, deadline); !got) return got.error();
  if (const auto made = make_queue_pair(); !made) return made.error();
  ibv_device_attr can{};
  if (const int error = library_.ibv_query_device(id_->verbs, &can); error != 0) return fault_of(error);

  Hello hello{htobe64(magic), htobe32(version), 0, {}};
  std::memcpy(hello.token, token.bytes.data(), sizeof hello.token);
  rdma_conn_param request{};
  request.private_data = &hello;
  request.private_data_len = sizeof hello;
  request.initiator_depth = static_cast<std::uint8_t>(std::clamp(can.max_qp_init_rd_atom, 1, int{depth_wanted}));
  request.retry_count = retries;
  request.rnr_retry_count = retries;
  if (library_.rdma_connect(id_.get(), &request) != 0) return fault_of(errno);
  const auto answer = await(RDMA_CM_EVENT_ESTABLISHED, deadline);
  if (!answer) return answer.error();
  const auto welcome = parse<Welcome>(answer->data.data(), answer->data_bytes);
  if (!welcome || be64toh(welcome->magic_number) != magic || be32toh(welcome->version_number) != version ||
      be32toh(welcome->rail) >= rails_max)
    return Fault::incompatible;
  // With a depth of 0 posts would be taken and nothing would ever complete. (iWARP settles its own, and tells another.)
  if (answer->initiator_depth == 0 && !iwarp()) return Fault::incompatible;
  rail_ = be32toh(welcome->rail);
  // Nobody may do anything to this side. (No memory of ours is open either, but for READs under way over iWARP.)
  ibv_qp_attr rights{};
  if (!iwarp()) (void)library_.ibv_modify_qp(id_->qp, &rights, IBV_QP_ACCESS_FLAGS);
  log::debug("rdma", "verbs: connected address={} device={} rail={} depth={}", address.text(),
             library_.ibv_get_device_name(id_->verbs->device), rail_, answer->initiator_depth);
  if (!iwarp()) return {};
  return first_read(*this, clock_, deadline, [this]() -> Result<void> {
    const ReadRequest nothing{};
    if (const auto posted = post_reads({&nothing, 1}); !posted) return posted.error();
    return {};
  });
}

std::optional<Fault> VerbsEndpoint::refuse_if_over() const {
  if (fork_.in_child()) return Fault::forked_child;
  if (broken_) return *broken_ == Fault::peer_gone || *broken_ == Fault::device_lost ? *broken_ : Fault::qp_in_error;
  return std::nullopt;
}

Fault VerbsEndpoint::break_with(Fault fault) {
  if (broken_) return *broken_;
  broken_ = fault;
  broken_at_ = clock_.now();
  // Fails the queue pair, which flushes what is under way, and tells the broker.
  if (id_ && id_->qp) (void)library_.rdma_disconnect(id_.get());
  return fault;
}

Result<std::unique_ptr<Landing>> VerbsEndpoint::make_landing(std::size_t bytes) {
  if (const auto fault = refuse_if_over()) return *fault;
  auto place = Place::make(bytes);
  if (!place) return Fault::resources_exhausted;
  auto mr = register_memory(library_, *domain_, place->at, place->mapped_bytes, landing_access());
  if (!mr) return mr.error();
  place->registration = std::move(*mr);
  return places_->add(std::move(place));
}

Result<std::unique_ptr<Landing>> VerbsEndpoint::register_landing(const LandingMemory& memory) {
  if (const auto fault = refuse_if_over()) return *fault;
  auto place = Place::of(memory.bytes);
  auto mr = memory.of_host
                ? register_memory(library_, *domain_, memory.bytes.data(), memory.bytes.size(), landing_access())
                : register_device_memory(library_, *domain_, memory, landing_access());
  if (!mr) return mr.error();
  place->registration = std::move(*mr);
  return places_->add(std::move(place));
}

unsigned VerbsEndpoint::landing_access() const {
  // Relaxed ordering costs nothing here: bytes are looked at only behind their completion, and checked.
  constexpr unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
  // iWARP's READ response is a tagged message, for which the sink must be open (RFC 5040, section 5.2).
  return iwarp() ? access | IBV_ACCESS_REMOTE_WRITE : access;
}

Result<std::size_t> VerbsEndpoint::post_reads(std::span<const ReadRequest> batch) {
  if (const auto fault = refuse_if_over()) return *fault;
  if (batch.empty()) return std::size_t{0};
  const auto room = reads_.size() - outstanding();
  if (room == 0) return Fault::would_block;
  const auto count = std::min(batch.size(), room);
  constexpr std::size_t chain = 16;
  std::array<ibv_send_wr, chain> work;
  std::array<ibv_sge, chain> pieces;
  for (std::size_t done = 0; done < count;) {
    const auto now = std::min(chain, count - done);
    for (std::size_t i = 0; i < now; ++i) {
      const auto& request = batch[done + i];
      Place* place = request.to.empty() ? nullptr : places_->find(request.to);
      if (request.from.length > verbs_caps().read_bytes_max || request.to.size() != request.from.length ||
          (place == nullptr && !request.to.empty()))
        return break_with(Fault::access_error);
      // The broker could register it with its other device only.
      if (request.from.key != 0 && rkey_of(request.from.key, rail_) == 0) return Fault::not_registrable;
      const auto number = posted_ + i;
      reads_[number % reads_.size()] = {request.id, place};
      auto& piece = pieces[i];
      piece = {reinterpret_cast<std::uintptr_t>(request.to.data()), request.from.length,
               place != nullptr ? place->registration->lkey : 0};
      auto& one = work[i];
      one = {};
      one.wr_id = number;
      one.next = i + 1 < now ? &work[i + 1] : nullptr;
      one.sg_list = &piece;
      one.num_sge = place != nullptr ? 1 : 0;
      one.opcode = IBV_WR_RDMA_READ;
      // One completion tells of all before it.
      one.send_flags = i + 1 == now ? IBV_SEND_SIGNALED : 0;
      one.wr.rdma.remote_addr = request.from.address;
      one.wr.rdma.rkey = rkey_of(request.from.key, rail_);
    }
    ibv_send_wr* refused = nullptr;
    // Some providers answer with a negative number.
    if (ibv_post_send(id_->qp, work.data(), &refused) != 0) {
      // READs before `refused` are under way, unsignalled: nothing would tell of them. That does not happen while the
      // queue is as long as we count; a device that does it is finished for us.
      const auto taken = refused != nullptr ? static_cast<std::size_t>(refused - work.data()) : std::size_t{0};
      posted_ += taken;
      for (std::size_t i = 0; i < taken; ++i)
        if (auto* place = reads_[(posted_ - taken + i) % reads_.size()].place) ++place->pending;
      return break_with(Fault::qp_in_error);
    }
    for (std::size_t i = 0; i < now; ++i)
      if (auto* place = reads_[(posted_ + i) % reads_.size()].place) ++place->pending;
    posted_ += now;
    done += now;
  }
  return count;
}

namespace {

Fault fault_of_status(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return Fault::access_error;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return Fault::peer_gone;
    case IBV_WC_FATAL_ERR:
      return Fault::device_lost;
    default:
      return Fault::qp_in_error;
  }
}

}  // namespace

void VerbsEndpoint::finish(std::optional<Fault> fault, Completion& into) {
  auto& read = reads_[finished_ % reads_.size()];
  into = {read.id, fault};
  if (read.place != nullptr) places_->done(*read.place);
  read.place = nullptr;
  ++finished_;
}

Result<std::size_t> VerbsEndpoint::poll(std::span<Completion> into) {
  if (fork_.in_child()) return Fault::forked_child;
  std::size_t count = 0;
  const auto tell = [&] {
    while (count < into.size() && finished_ < succeeded_) finish(std::nullopt, into[count++]);
    if (failed_ && finished_ == failed_->first && count < into.size()) finish(failed_->second, into[count++]);
    const bool rest = flushed_ && finished_ >= succeeded_;
    while (rest && count < into.size() && outstanding() > 0) finish(Fault::qp_in_error, into[count++]);
  };
  tell();
  while (count < into.size() && outstanding() > 0 && id_ && id_->qp && !flushed_) {
    std::array<ibv_wc, 16> done;
    const int got = ibv_poll_cq(completions_.get(), static_cast<int>(done.size()), done.data());
    if (got < 0) {
      (void)break_with(Fault::device_lost);
      flushed_ = true;
    }
    for (int i = 0; i < got; ++i) {
      const auto& one = done[static_cast<std::size_t>(i)];
      if (one.status == IBV_WC_SUCCESS) {
        succeeded_ = std::max(succeeded_, one.wr_id + 1);
        continue;
      }
      // READs before the one that failed were done: queue pairs work in order. Those behind it are lost.
      flushed_ = true;
      if (broken_) break;  // we failed it ourselves: what was under way is flushed, not refused
      succeeded_ = std::max(succeeded_, one.wr_id);
      failed_ = {one.wr_id, fault_of_status(one.status)};
      (void)break_with(failed_->second);
      break;
    }
    tell();
    if (got < static_cast<int>(done.size())) break;
  }
  if (count > 0) return count;
  look_at_events();
  if (broken_ && outstanding() > 0 && !flushed_ && clock_.now() - broken_at_ > flush_patience) {
    // Without its queue pair nothing can land any more, so that the landings are their owner's again.
    if (id_ && id_->qp) library_.rdma_destroy_qp(id_.get());
    flushed_ = true;
  }
  if (broken_ && (outstanding() == 0 || !id_)) return *broken_;
  tell();
  return count;
}

int VerbsEndpoint::arm() {
  if (fork_.in_child() || broken_ || !completions_) return -1;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (library_.ibv_get_cq_event(signals_.get(), &queue, &context) == 0) library_.ibv_ack_cq_events(queue, 1);
  return ibv_req_notify_cq(completions_.get(), 0) == 0 ? news_.get() : -1;
}

void VerbsEndpoint::look_at_events() {
  if (broken_ || !id_) return;
  const auto now = clock_.now();
  if (now - looked_at_ < look_interval) return;
  looked_at_ = now;
  while (const auto event = next_event(library_, *channel_)) {
    switch (event->type) {
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        (void)break_with(Fault::device_lost);
        break;
      case RDMA_CM_EVENT_ADDR_CHANGE:  // of a bonded interface: the connection lives on
        break;
      default:
        (void)break_with(Fault::peer_gone);
        break;
    }
  }
}

void VerbsEndpoint::close() {
  if (fork_.in_child()) return;
  (void)break_with(Fault::peer_gone);
  if (id_ && id_->qp) library_.rdma_destroy_qp(id_.get());
  places_->end();
  posted_ = succeeded_ = finished_ = 0;
  failed_.reset();
  std::fill(reads_.begin(), reads_.end(), Pending{});
}

}  // namespace

namespace {

/// Of several addresses of ours the one most like the other side's: subnets begin alike.
std::optional<Address> source_for(const Address& address, const std::vector<Address>& sources) {
  std::optional<Address> best;
  std::size_t best_alike = 0;
  for (const auto& source : sources) {
    const auto ours = source.network_bytes(), theirs = address.network_bytes();
    std::size_t alike = 0;
    while (alike < 8 * std::min(ours.size(), theirs.size()) &&
           ((ours[alike / 8] ^ theirs[alike / 8]) & (std::byte{0x80} >> (alike % 8))) == std::byte{0})
      ++alike;
    if (best && alike <= best_alike) continue;
    best = source;
    best_alike = alike;
  }
  return best;
}

Lane lane_of(std::unique_ptr<VerbsEndpoint> endpoint) {
  const auto rail = endpoint->rail();
  return {std::move(endpoint),
          [rail](const RemoteSpan& span) { return span.key == 0 || rkey_of(span.key, rail) != 0; }};
}

}  // namespace

Result<std::unique_ptr<Endpoint>> connect(const Library& library, const std::string& address, const Token& token,
                                          const ConnectOptions& options, const Clock& clock) {
  const auto addresses = parse_addresses(address);
  if (!addresses) return Fault::address_unreachable;
  std::vector<Address> sources;
  if (!options.source.empty()) {
    auto named = parse_addresses(options.source);
    if (!named) return Fault::address_unreachable;
    sources = std::move(*named);
  }
  const auto deadline = clock.now() + options.timeout;
  auto why = Fault::address_unreachable;
  std::unique_ptr<VerbsEndpoint> first;
  std::size_t at = 0;
  for (; at < addresses->size(); ++at) {
    const auto& one = (*addresses)[at];
    auto endpoint = std::make_unique<VerbsEndpoint>(library, clock);
    // An address that swallows requests leaves the others their share of the time.
    const auto now = clock.now();
    const auto share = (deadline - now) / static_cast<int>(addresses->size() - at);
    const auto done = endpoint->dial(one, source_for(one, sources), token, now + share);
    if (done) {
      first = std::move(endpoint);
      break;
    }
    why = done.error();
    // The token is spent, or the broker has spoken: another of its devices would say the same.
    if (why == Fault::refused || why == Fault::incompatible || clock.now() >= deadline) break;
  }
  if (!first) return why;
  // Who named one address of his own chose one device.
  if (!options.second || sources.size() == 1) return std::unique_ptr<Endpoint>(std::move(first));
  for (std::size_t next = 0; next < addresses->size(); ++next) {
    if (next == at) continue;
    const auto& one = (*addresses)[next];
    auto second = std::make_unique<VerbsEndpoint>(library, clock);
    const auto done = second->dial(one, source_for(one, sources), *options.second,
                                   std::min(deadline, clock.now() + second_timeout), first.get());
    if (done && second->rail() != first->rail()) return stripe({lane_of(std::move(first)), lane_of(std::move(second))});
    log::debug("rdma", "verbs: no second connection address={}: {}", one.text(),
               done ? "the same device of the broker's" : text(done.error()));
    if (done || done.error() == Fault::refused) break;
  }
  return std::unique_ptr<Endpoint>(std::move(first));
}

}  // namespace ciuic::rdma::verbs
