// The client's end: a connected endpoint. READs are counted here and completed in the order posted. Connection events
// are looked at beside completions; with software providers that is also what moves bytes.
#include <endian.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "transport/base/fork_guard.h"
#include "transport/base/log.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/landing_places.h"
#include "transport/rdma/ofi/ends.h"
#include "transport/rdma/ofi/protocol.h"

namespace ciuic::rdma::ofi {

namespace {

/// Events are looked for so often, and an idle connection's end.
constexpr Milliseconds look_interval{1};
/// A failed connection flushes at once; some devices forget to.
constexpr Milliseconds flush_patience{1000};

using Places = LandingPlaces<Owned<fid_mr>>;
using Place = Places::Place;

class OfiEndpoint final : public Endpoint {
 public:
  OfiEndpoint(const Library& library, const Kind& kind, const Clock& clock)
      : library_(library), kind_(kind), clock_(clock), caps_(kind.caps) {}
  ~OfiEndpoint() override;

  Result<void> dial(const Address& address, const std::optional<Address>& source, const Token& token,
                    Clock::TimePoint deadline);

  const Caps& caps() const override { return caps_; }
  Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) override;
  Result<std::size_t> post_reads(std::span<const ReadRequest> batch) override;
  Result<std::size_t> poll(std::span<Completion> into) override;
  int arm() override;
  void close() override;

 private:
  struct Pending {
    std::uint64_t id = 0;
    Place* place = nullptr;
  };
  [[nodiscard]] Result<Event> await_connection(Clock::TimePoint deadline);
  [[nodiscard]] Fault break_with(Fault fault);
  [[nodiscard]] std::optional<Fault> refuse_if_over() const;
  void take_completions();
  void look_at_events();
  void finish(std::optional<Fault> fault, Completion& into);
  [[nodiscard]] std::size_t outstanding() const { return posted_ - finished_; }

  const Library& library_;
  const Kind& kind_;
  const Clock& clock_;
  Caps caps_;
  ForkGuard fork_{};
  // The endpoint ends before what it uses.
  std::shared_ptr<Device> device_;
  Owned<fid_domain> domain_;
  std::shared_ptr<Places> places_ = std::make_shared<Places>();
  Owned<fid_eq> events_;
  Owned<fid_cq> completions_;
  Owned<fid_ep> endpoint_;
  UniqueFd news_;  // readable when completions_ or events_ is
  std::optional<Fault> broken_{};
  Clock::TimePoint broken_at_{};
  Clock::TimePoint looked_at_{};
  // READ number n is at n modulo the table's size. What is below `succeeded_` has arrived, below `finished_` been told.
  std::vector<Pending> reads_;
  std::uint64_t posted_ = 0;
  std::uint64_t succeeded_ = 0;
  std::uint64_t finished_ = 0;
  std::optional<std::pair<std::uint64_t, Fault>> refused_{};  // the lowest that ended with an error so far
  std::optional<std::pair<std::uint64_t, Fault>> failed_{};   // the first that did, and how
  bool flushed_ = false;                                      // whatever is outstanding will not arrive
};

OfiEndpoint::~OfiEndpoint() {
  if (fork_.in_child()) {
    // The parent's objects: ending them here would end them there.
    (void)endpoint_.release();
    (void)completions_.release();
    (void)events_.release();
    (void)domain_.release();
    if (device_) device_->leave_to_parent();
    return;
  }
  close();
}

Result<Event> OfiEndpoint::await_connection(Clock::TimePoint deadline) {
  const int descriptor = descriptor_of(events_->fid);
  while (true) {
    if (auto event = next_event(library_, *events_)) {
      if (event->type == FI_CONNECTED) return std::move(*event);
      log::debug("rdma", "ofi: no connection, event {}: {}", event->type, library_.fi_strerror(event->error));
      const auto answer = parse<Welcome>(event->data);
      if (!answer || be64toh(answer->magic_number) != magic)
        return event->error == ENODEV ? Fault::device_lost : Fault::address_unreachable;
      switch (static_cast<Status>(be32toh(answer->status))) {
        case Status::refused:
          return Fault::refused;
        case Status::no_room:
          return Fault::resources_exhausted;
        default:
          return Fault::incompatible;
      }
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - clock_.now()).count();
    if (left <= 0) return Fault::address_unreachable;
    fid_t queue = &events_->fid;
    if (fi_trywait(device_->fabric.get(), &queue, 1) != 0) continue;
    pollfd ready{descriptor, POLLIN, 0};
    (void)::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, 100)));
  }
}

Result<void> OfiEndpoint::dial(const Address& address, const std::optional<Address>& source, const Token& token,
                               Clock::TimePoint deadline) {
  auto device = open_device(library_, kind_, Side::connecting, address, source);
  if (!device) return device.error();
  device_ = std::move(*device);
  auto domain = open_domain(*device_);
  if (!domain) return domain.error();
  domain_ = std::move(*domain);
  auto events = open_event_queue(*device_);
  if (!events) return events.error();
  events_ = std::move(*events);
  const auto& info = *device_->info;
  caps_.reads_outstanding_max =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(info.tx_attr->size, 1, caps_.reads_outstanding_max));
  caps_.read_bytes_max =
      static_cast<std::uint32_t>(std::min<std::size_t>(info.ep_attr->max_msg_size, caps_.read_bytes_max));
  reads_.resize(caps_.reads_outstanding_max);
  auto completions = open_completions(*domain_, caps_.reads_outstanding_max + 16U);
  if (!completions) return completions.error();
  completions_ = std::move(*completions);
  news_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  for (const int each : {descriptor_of(completions_->fid), descriptor_of(events_->fid)}) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    if (::epoll_ctl(news_.get(), EPOLL_CTL_ADD, each, &wanted) != 0) return fault_of(errno);
  }
  auto endpoint = open_endpoint(*domain_, *device_->info, *events_, *completions_);
  if (!endpoint) return endpoint.error();
  endpoint_ = std::move(*endpoint);

  Hello hello{htobe64(magic), htobe32(version), 0, {}};
  std::memcpy(hello.token, token.bytes.data(), sizeof hello.token);
  if (const int error = fi_connect(endpoint_.get(), info.dest_addr, &hello, sizeof hello); error != 0)
    return fault_of(error);
  const auto answer = await_connection(deadline);
  if (!answer) return answer.error();
  const auto welcome = parse<Welcome>(answer->data);
  if (!welcome || be64toh(welcome->magic_number) != magic || be32toh(welcome->version_number) != version)
    return Fault::incompatible;
  log::debug("rdma", "ofi: connected address={} by={} interface={}", address.text(), kind_.name,
             info.domain_attr->name);
  return {};
}

std::optional<Fault> OfiEndpoint::refuse_if_over() const {
  if (fork_.in_child()) return Fault::forked_child;
  if (broken_) return *broken_ == Fault::peer_gone || *broken_ == Fault::device_lost ? *broken_ : Fault::qp_in_error;
  if (refused_) return Fault::qp_in_error;
  return std::nullopt;
}

Fault OfiEndpoint::break_with(Fault fault) {
  if (broken_) return *broken_;
  broken_ = fault;
  broken_at_ = clock_.now();
  // Flushes what is under way, and tells the broker.
  if (endpoint_) (void)fi_shutdown(endpoint_.get(), 0);
  return fault;
}

Result<std::unique_ptr<Landing>> OfiEndpoint::make_landing(std::size_t bytes) {
  if (const auto fault = refuse_if_over()) return *fault;
  auto place = Place::make(bytes);
  if (!place) return Fault::resources_exhausted;
  if ((device_->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    auto region = register_memory(*device_, *domain_, {place->at, place->mapped_bytes}, Use::landing);
    if (!region) return region.error();
    place->registration = std::move(*region);
  }
  return places_->add(std::move(place));
}

Result<std::size_t> OfiEndpoint::post_reads(std::span<const ReadRequest> batch) {
  if (const auto fault = refuse_if_over()) return *fault;
  if (batch.empty()) return std::size_t{0};
  const auto count = std::min(batch.size(), reads_.size() - outstanding());
  for (std::size_t done = 0; done < count; ++done) {
    const auto& request = batch[done];
    Place* place = request.to.empty() ? nullptr : places_->find(request.to);
    if (request.from.length > caps_.read_bytes_max || request.to.size() != request.from.length ||
        (place == nullptr && !request.to.empty()))
      return break_with(Fault::access_error);
    auto* const local = place != nullptr && place->registration ? fi_mr_desc(place->registration.get()) : nullptr;
    const auto error = fi_read(endpoint_.get(), request.to.data(), request.to.size(), local, 0, request.from.address,
                               request.from.key, mark_of(posted_));
    if (error == -FI_EAGAIN) {
      if (done == 0) return Fault::would_block;
      return done;
    }
    if (error != 0) return break_with(Fault::qp_in_error);
    reads_[posted_++ % reads_.size()] = {request.id, place};
    if (place != nullptr) ++place->pending;
  }
  if (count == 0) return Fault::would_block;
  return count;
}

namespace {

/// What the other side, or the way to it, did to a READ. Flushed ones say nothing of why.
Fault fault_of_completion(const fi_cq_err_entry& failure) {
  // libfabric's verbs provider hands the card's own word through: ibv_wc_status.
  constexpr int remote_invalid_request = 9, remote_access = 10, remote_operation = 11, retries_over = 12,
                receiver_not_ready = 13;
  switch (failure.err) {
    case FI_EACCES:
    case FI_EPERM:
    case FI_ENOKEY:
      return Fault::access_error;
    case EIO:
      break;
    default:
      return Fault::qp_in_error;
  }
  switch (failure.prov_errno) {
    case remote_invalid_request:
    case remote_access:
    case remote_operation:
      return Fault::access_error;
    case retries_over:
    case receiver_not_ready:
      return Fault::peer_gone;
    default:
      return Fault::qp_in_error;
  }
}

}  // namespace

void OfiEndpoint::finish(std::optional<Fault> fault, Completion& into) {
  auto& read = reads_[finished_ % reads_.size()];
  into = {read.id, fault};
  if (read.place != nullptr) places_->done(*read.place);
  read.place = nullptr;
  ++finished_;
}

void OfiEndpoint::take_completions() {
  bool flushing = false;
  while (endpoint_ && !flushed_) {
    std::array<fi_cq_entry, 16> done{};
    const auto got = fi_cq_read(completions_.get(), done.data(), done.size());
    if (got > 0) {
      for (ssize_t i = 0; i < got; ++i)
        succeeded_ = std::max<std::uint64_t>(succeeded_, number_of(done[static_cast<std::size_t>(i)].op_context) + 1);
      continue;
    }
    if (got == -FI_EAGAIN) break;
    fi_cq_err_entry failure{};
    if (got == -FI_EAVAIL && fi_cq_readerr(completions_.get(), &failure, 0) < 0) break;
    flushing = true;
    if (broken_) continue;  // we failed it ourselves: what was under way is flushed, not refused
    const auto number = got == -FI_EAVAIL ? number_of(failure.op_context) : succeeded_;
    if (!refused_ || number < refused_->first) {
      if (!refused_) broken_at_ = clock_.now();
      refused_ = {number, got == -FI_EAVAIL ? fault_of_completion(failure) : Fault::device_lost};
    }
    if (got != -FI_EAVAIL) break;
  }
  if (broken_) {
    flushed_ = flushed_ || flushing;
    return;
  }
  // Software providers may say that a request could not be sent before they have read the answers to those before it.
  if (!refused_ || (refused_->first > succeeded_ && clock_.now() - broken_at_ <= flush_patience)) return;
  flushed_ = true;
  failed_ = {succeeded_, refused_->second};
  (void)break_with(failed_->second);
}

Result<std::size_t> OfiEndpoint::poll(std::span<Completion> into) {
  if (fork_.in_child()) return Fault::forked_child;
  std::size_t count = 0;
  const auto tell = [&] {
    while (count < into.size() && finished_ < succeeded_) finish(std::nullopt, into[count++]);
    if (failed_ && finished_ == failed_->first && outstanding() > 0 && count < into.size())
      finish(failed_->second, into[count++]);
    const bool rest = flushed_ && finished_ >= succeeded_;
    while (rest && count < into.size() && outstanding() > 0) finish(Fault::qp_in_error, into[count++]);
  };
  tell();
  if (count < into.size() && outstanding() > 0) {
    take_completions();
    tell();
  }
  if (count > 0) return count;
  look_at_events();
  if (broken_ && outstanding() > 0 && !flushed_ && clock_.now() - broken_at_ > flush_patience) {
    // Without its endpoint nothing can land any more, so that the landings are their owner's again.
    endpoint_.reset();
    flushed_ = true;
  }
  if (broken_ && outstanding() == 0) return *broken_;
  tell();
  return count;
}

int OfiEndpoint::arm() {
  if (fork_.in_child() || broken_ || !endpoint_) return -1;
  std::array<fid_t, 2> queues{&completions_->fid, &events_->fid};
  return fi_trywait(device_->fabric.get(), queues.data(), static_cast<int>(queues.size())) == 0 ? news_.get() : -1;
}

void OfiEndpoint::look_at_events() {
  if (broken_ || !endpoint_) return;
  const auto now = clock_.now();
  if (now - looked_at_ < look_interval) return;
  looked_at_ = now;
  take_completions();  // software providers notice the other side's end only so
  while (!broken_) {
    const auto event = next_event(library_, *events_);
    if (!event) return;
    // An interface that changes its address, as bonded ones do, keeps its connections.
    if (event->error == EADDRNOTAVAIL) continue;
    (void)break_with(event->error == ENODEV ? Fault::device_lost : Fault::peer_gone);
  }
}

void OfiEndpoint::close() {
  if (fork_.in_child()) return;
  (void)break_with(Fault::peer_gone);
  endpoint_.reset();
  places_->end();
  posted_ = succeeded_ = finished_ = 0;
  failed_.reset();
  refused_.reset();
  std::fill(reads_.begin(), reads_.end(), Pending{});
}

}  // namespace

Result<std::unique_ptr<Endpoint>> connect(const Library& library, const std::string& address, const Token& token,
                                          const ConnectOptions& options, const Clock& clock) {
  constexpr std::string_view between = "://";
  const auto at = address.find(between);
  if (at == std::string::npos) return Fault::address_unreachable;
  const auto* const kind = find_kind(std::string_view(address).substr(0, at));
  const auto place = Address::parse(std::string_view(address).substr(at + between.size()));
  if (kind == nullptr || !place) return Fault::address_unreachable;
  std::optional<Address> source;
  if (!options.source.empty()) {
    source = Address::parse(options.source);
    if (!source) return Fault::address_unreachable;
  }
  auto endpoint = std::make_unique<OfiEndpoint>(library, *kind, clock);
  if (const auto done = endpoint->dial(*place, source, token, clock.now() + options.timeout); !done)
    return done.error();
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace ciuic::rdma::ofi
