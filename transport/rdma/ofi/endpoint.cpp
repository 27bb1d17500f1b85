// The client's end: READs over a line, counted here and told in the order posted, whatever order they arrive in. The
// line's end is looked for beside completions; with software providers that is also what moves bytes.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "transport/base/fork_guard.h"
#include "transport/base/log.h"
#include "transport/rdma/first_read.h"
#include "transport/rdma/landing_places.h"
#include "transport/rdma/ofi/ends.h"
#include "transport/rdma/ofi/line.h"

namespace ciuic::rdma::ofi {

namespace {

/// An idle line's end is looked for so often.
constexpr Milliseconds look_interval{1};
/// A failed connection flushes at once; some devices forget to.
constexpr Milliseconds flush_patience{1000};

using Places = LandingPlaces<Owned<fid_mr>>;
using Place = Places::Place;

class OfiEndpoint final : public Endpoint {
 public:
  OfiEndpoint(std::unique_ptr<Line> line, const Clock& clock)
      : clock_(clock), caps_(caps_of(line->device())), line_(std::move(line)), reads_(caps_.reads_outstanding_max) {}
  ~OfiEndpoint() override;

  const Caps& caps() const override { return caps_; }
  Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) override;
  Result<std::unique_ptr<Landing>> register_landing(const LandingMemory& memory) override;
  Result<std::size_t> post_reads(std::span<const ReadRequest> batch) override;
  Result<std::size_t> poll(std::span<Completion> into) override;
  int arm() override;
  void close() override;
  /// `first_read` over iWARP. (`post_reads` sends nothing for a READ of nothing.)
  [[nodiscard]] Result<void> prove(Clock::TimePoint deadline);

 private:
  struct Pending {
    fi_context2 context{};  // libfabric's while the READ is under way, and by its place the READ's name
    std::uint64_t id = 0;
    Place* place = nullptr;
    bool arrived = false;
  };
  [[nodiscard]] Result<std::unique_ptr<Landing>> add(MutableBytes memory, std::unique_ptr<Place> place);
  [[nodiscard]] Fault break_with(Fault fault);
  [[nodiscard]] std::optional<Fault> refuse_if_over() const;
  [[nodiscard]] std::optional<std::uint64_t> number_of(const void* context) const;
  void count_arrived();
  void take_completions();
  void look_at_line();
  [[nodiscard]] bool is_stuck();
  void finish(std::optional<Fault> fault, Completion& into);
  [[nodiscard]] std::size_t outstanding() const { return posted_ - finished_; }

  const Clock& clock_;
  Caps caps_;
  ForkGuard fork_{};
  std::unique_ptr<Line> line_;
  std::shared_ptr<Places> places_ = std::make_shared<Places>();
  std::optional<Fault> broken_{};
  Clock::TimePoint broken_at_{};
  Clock::TimePoint looked_at_{};
  std::optional<Clock::TimePoint> stuck_since_{};  // nothing is under way, and nothing can be posted
  // READ number n is at n modulo the table's size. All below `succeeded_` have arrived, below `finished_` been told.
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
    line_->leave_to_parent();
    return;
  }
  close();
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
  line_->cut();
  if (line_->endpoint() == nullptr) flushed_ = true;
  return fault;
}

Result<std::unique_ptr<Landing>> OfiEndpoint::make_landing(std::size_t bytes) {
  if (const auto fault = refuse_if_over()) return *fault;
  auto place = Place::make(bytes);
  if (!place) return Fault::resources_exhausted;
  const MutableBytes memory{place->at, place->mapped_bytes};
  return add(memory, std::move(place));
}

Result<std::unique_ptr<Landing>> OfiEndpoint::register_landing(const LandingMemory& memory) {
  if (const auto fault = refuse_if_over()) return *fault;
  // Of devices only libfabric 1.20 and newer hears by dma-buf.
  if (!memory.of_host) return Fault::not_registrable;
  return add(memory.bytes, Place::of(memory.bytes));
}

Result<std::unique_ptr<Landing>> OfiEndpoint::add(MutableBytes memory, std::unique_ptr<Place> place) {
  if ((line_->device().info->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    auto region = register_memory(line_->device(), line_->domain(), line_->endpoint(), memory, Use::landing);
    if (!region) return region.error();
    place->registration = std::move(*region);
  }
  return places_->add(std::move(place));
}

Result<void> OfiEndpoint::prove(Clock::TimePoint deadline) {
  if (line_->device().info->ep_attr->protocol != FI_PROTO_IWARP) return {};
  return first_read(*this, clock_, deadline, [this]() -> Result<void> {
    if (outstanding() == reads_.size()) return Fault::would_block;
    auto& read = reads_[posted_ % reads_.size()];
    read = {};
    if (fi_read(line_->endpoint(), nullptr, 0, nullptr, line_->peer(), 0, 0, &read.context) != 0)
      return Fault::qp_in_error;
    ++posted_;
    return {};
  });
}

/// What lies under an endpoint without connections may be gone, and be made anew for ever.
bool OfiEndpoint::is_stuck() {
  if (outstanding() > 0) return false;
  if (!stuck_since_) stuck_since_ = clock_.now();
  return clock_.now() - *stuck_since_ > flush_patience;
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
    auto& read = reads_[posted_ % reads_.size()];
    // Nothing is there at once: libraries differ in what they make of no bytes at no place.
    const auto error = request.to.empty()
                           ? 0
                           : fi_read(line_->endpoint(), request.to.data(), request.to.size(), local, line_->peer(),
                                     request.from.address, request.from.key, &read.context);
    if (error == -FI_EAGAIN) {
      if (done > 0) return done;
      return is_stuck() ? break_with(Fault::peer_gone) : Fault::would_block;
    }
    if (error != 0) return break_with(Fault::qp_in_error);
    stuck_since_.reset();
    read.id = request.id;
    read.place = place;
    read.arrived = request.to.empty();
    ++posted_;
    count_arrived();
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

/// Of the READ that a completion is of.
std::optional<std::uint64_t> OfiEndpoint::number_of(const void* context) const {
  for (auto number = finished_; number < posted_; ++number)
    if (&reads_[number % reads_.size()].context == context) return number;
  return std::nullopt;
}

void OfiEndpoint::count_arrived() {
  while (succeeded_ < posted_ && reads_[succeeded_ % reads_.size()].arrived) ++succeeded_;
}

void OfiEndpoint::take_completions() {
  bool flushing = false;
  while (line_->endpoint() != nullptr && !flushed_) {
    std::array<fi_cq_entry, 16> done{};
    const auto got = fi_cq_read(&line_->completions(), done.data(), done.size());
    if (got > 0) {
      for (ssize_t i = 0; i < got; ++i)
        if (const auto number = number_of(done[static_cast<std::size_t>(i)].op_context))
          reads_[*number % reads_.size()].arrived = true;
      count_arrived();
      continue;
    }
    if (got == -FI_EAGAIN) break;
    fi_cq_err_entry failure{};
    if (got == -FI_EAVAIL && fi_cq_readerr(&line_->completions(), &failure, 0) < 0) break;
    flushing = true;
    if (broken_) continue;  // we failed it ourselves: what was under way is flushed, not refused
    const auto number = got == -FI_EAVAIL ? number_of(failure.op_context).value_or(succeeded_) : succeeded_;
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
  look_at_line();
  if (broken_ && outstanding() > 0 && !flushed_ && clock_.now() - broken_at_ > flush_patience) {
    // Without its endpoint nothing can land any more, so that the landings are their owner's again.
    line_->end();
    flushed_ = true;
  }
  if (broken_ && outstanding() == 0) return *broken_;
  tell();
  return count;
}

int OfiEndpoint::arm() { return fork_.in_child() || broken_ || line_->endpoint() == nullptr ? -1 : line_->arm(); }

void OfiEndpoint::look_at_line() {
  if (broken_ || line_->endpoint() == nullptr) return;
  const auto now = clock_.now();
  if (now - looked_at_ < look_interval) return;
  looked_at_ = now;
  take_completions();  // software providers notice the other side's end only so
  if (broken_) return;
  if (const auto why = line_->over()) (void)break_with(*why);
}

void OfiEndpoint::close() {
  if (fork_.in_child()) return;
  (void)break_with(Fault::peer_gone);
  line_->end();
  places_->end();
  posted_ = succeeded_ = finished_ = 0;
  failed_.reset();
  refused_.reset();
  std::fill(reads_.begin(), reads_.end(), Pending{});
}

}  // namespace

std::unique_ptr<Endpoint> read_by(std::unique_ptr<Line> line, const Clock& clock) {
  return std::make_unique<OfiEndpoint>(std::move(line), clock);
}

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
  const Dial dial{library, *kind, *place, source, token, clock, clock.now() + options.timeout};
  auto line = kind->manner == Manner::connected ? dial_connected(dial) : dial_connectionless(dial);
  if (!line) return line.error();
  log::debug("rdma", "ofi: connected address={} by={} interface={}", place->text(), kind->name,
             (*line)->device().info->domain_attr->name);
  auto endpoint = std::make_unique<OfiEndpoint>(std::move(*line), clock);
  if (const auto proven = endpoint->prove(dial.deadline); !proven) return proven.error();
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace ciuic::rdma::ofi
