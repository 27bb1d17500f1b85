// One endpoint of two connections: which READ goes by which, and completions in the order posted whichever is quicker.
#include "transport/rdma/stripes.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "transport/base/unique_fd.h"
#include "transport/rdma/landing_places.h"

namespace ciuic::rdma {

namespace {

constexpr std::size_t lanes_count = 2;
constexpr std::uint32_t cut_at = 4096;  // parts begin at multiples

using LaneLandings = std::array<std::unique_ptr<Landing>, lanes_count>;
using Places = LandingPlaces<std::unique_ptr<LaneLandings>>;
using Place = Places::Place;

class StripedEndpoint final : public Endpoint {
 public:
  explicit StripedEndpoint(std::array<Lane, lanes_count> lanes) : lanes_(std::move(lanes)) {}
  ~StripedEndpoint() override { close(); }

  const Caps& caps() const override { return lanes_[0].endpoint->caps(); }
  Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) override {
    auto place = Place::make(bytes);
    if (!place) return Fault::resources_exhausted;
    const MutableBytes memory(place->at, place->mapped_bytes);
    return add(std::move(place), {memory});
  }
  Result<std::unique_ptr<Landing>> register_landing(const LandingMemory& memory) override {
    return add(Place::of(memory.bytes), memory);
  }
  Result<std::size_t> post_reads(std::span<const ReadRequest> batch) override;
  Result<std::size_t> poll(std::span<Completion> into) override;
  int arm() override;
  void close() override;

 private:
  struct Read {
    std::uint64_t id = 0;
    Place* place = nullptr;
    std::array<std::uint32_t, lanes_count> bytes{};  // by lane; under way
    std::array<bool, lanes_count> waits{};
    std::optional<Fault> fault{};
    [[nodiscard]] bool done() const { return !waits[0] && !waits[1]; }
  };
  using Parts = std::array<std::vector<ReadRequest>, lanes_count>;

  [[nodiscard]] Result<std::unique_ptr<Landing>> add(std::unique_ptr<Place> place, const LandingMemory& memory);
  [[nodiscard]] std::optional<Fault> refuse_if_over() const;
  [[nodiscard]] bool plan(const ReadRequest& request, Place* place, Parts& parts);
  void collect();
  void collect(std::size_t lane);
  Fault fail(Fault fault);

  std::array<Lane, lanes_count> lanes_;
  std::shared_ptr<Places> places_ = std::make_shared<Places>();
  std::deque<Read> reads_;   // in the order posted
  std::uint64_t first_ = 0;  // the number of the first of them, which is the id of its parts
  std::array<std::uint64_t, lanes_count> under_way_{};
  std::size_t next_ = 0;
  bool ended_ = false;  // a READ was told that did
  std::optional<Fault> broken_{};
  UniqueFd news_;
};

Result<std::unique_ptr<Landing>> StripedEndpoint::add(std::unique_ptr<Place> place, const LandingMemory& memory) {
  if (const auto fault = refuse_if_over()) return *fault;
  auto landings = std::make_unique<LaneLandings>();
  for (std::size_t lane = 0; lane < lanes_count; ++lane) {
    auto landing = lanes_.at(lane).endpoint->register_landing(memory);
    if (!landing) return landing.error();
    landings->at(lane) = std::move(*landing);
  }
  place->registration = std::move(landings);
  return places_->add(std::move(place));
}

std::optional<Fault> StripedEndpoint::refuse_if_over() const {
  if (!broken_) return std::nullopt;
  const bool says_more =
      outcome_of(*broken_) != Outcome::reconnect || *broken_ == Fault::peer_gone || *broken_ == Fault::device_lost;
  return says_more ? *broken_ : Fault::qp_in_error;
}

/// Adds the READ to those under way, and its parts to what is to be posted. False: no lane opens it.
bool StripedEndpoint::plan(const ReadRequest& request, Place* place, Parts& parts) {
  Read read{request.id, place};
  const auto number = first_ + reads_.size();
  const auto give = [&](std::size_t lane, std::uint32_t at, std::uint32_t length) {
    read.bytes.at(lane) = length;
    read.waits.at(lane) = true;
    under_way_.at(lane) += length;
    parts.at(lane).push_back(
        {{request.from.address + at, length, request.from.key}, request.to.subspan(at, length), number});
  };
  const std::array<bool, lanes_count> opens{lanes_[0].opens(request.from), lanes_[1].opens(request.from)};
  if (!opens[0] && !opens[1]) return false;
  if (opens[0] && opens[1] && request.from.length >= stripe_bytes_min) {
    const auto half = request.from.length / 2 / cut_at * cut_at;
    give(0, 0, half);
    give(1, half, request.from.length - half);
  } else {
    auto lane = under_way_[0] == under_way_[1] ? next_ : under_way_[0] < under_way_[1] ? 0U : 1U;
    if (!opens.at(lane)) lane = 1 - lane;
    next_ = 1 - lane;
    give(lane, 0, request.from.length);
  }
  if (place != nullptr) ++place->pending;
  reads_.push_back(read);
  return true;
}

Result<std::size_t> StripedEndpoint::post_reads(std::span<const ReadRequest> batch) {
  if (const auto fault = refuse_if_over()) return *fault;
  if (batch.empty()) return std::size_t{0};
  const auto outstanding_max = caps().reads_outstanding_max;
  if (reads_.size() >= outstanding_max) return Fault::would_block;
  const auto before = reads_.size();
  const auto forget = [&] {
    for (; reads_.size() > before; reads_.pop_back())
      if (reads_.back().place != nullptr) places_->done(*reads_.back().place);
  };
  Parts parts;
  std::size_t taken = 0;
  for (; taken < batch.size() && reads_.size() < outstanding_max; ++taken) {
    const auto& request = batch[taken];
    Place* const place = request.to.empty() ? nullptr : places_->find(request.to);
    if (request.from.length > caps().read_bytes_max || request.to.size() != request.from.length ||
        (place == nullptr && !request.to.empty())) {
      forget();
      return fail(Fault::access_error);
    }
    if (plan(request, place, parts)) continue;
    if (taken == 0) return Fault::not_registrable;
    break;
  }
  for (std::size_t lane = 0; lane < lanes_count; ++lane) {
    for (auto left = std::span<const ReadRequest>(parts.at(lane)); !left.empty();) {
      // Its queue is as long as ours: it has room.
      const auto posted = lanes_.at(lane).endpoint->post_reads(left);
      if (!posted) {
        const auto fault = posted.error() == Fault::would_block ? Fault::qp_in_error : posted.error();
        (void)fail(fault);
        forget();
        return fault;
      }
      left = left.subspan(*posted);
    }
  }
  return taken;
}

void StripedEndpoint::collect(std::size_t lane) {
  std::array<Completion, 32> done;
  while (true) {
    const auto got = lanes_.at(lane).endpoint->poll(done);
    if (!got) {
      (void)fail(got.error());
      if (broken_ == Fault::qp_in_error) broken_ = got.error();  // why what was under way was flushed
      return;
    }
    for (std::size_t i = 0; i < *got; ++i) {
      const auto& one = done.at(i);
      if (one.id < first_ || one.id - first_ >= reads_.size()) continue;  // told already, when a lane failed
      auto& read = reads_[one.id - first_];
      if (!read.waits.at(lane)) continue;
      read.waits.at(lane) = false;
      under_way_.at(lane) -= read.bytes.at(lane);
      if (one.fault && !read.fault) read.fault = one.fault;
      if (one.fault && outcome_of(*one.fault) != Outcome::retry_here) (void)fail(*one.fault);
    }
    if (*got < done.size()) return;
  }
}

void StripedEndpoint::collect() {
  for (std::size_t lane = 0; lane < lanes_count && !broken_; ++lane) collect(lane);
}

/// Nothing lands any more; what had not arrived fails.
Fault StripedEndpoint::fail(Fault fault) {
  if (broken_) return *broken_;
  broken_ = fault;
  // What the other lane has is as good as ever.
  for (std::size_t lane = 0; lane < lanes_count; ++lane) collect(lane);
  for (auto& lane : lanes_) lane.endpoint->close();
  for (auto& read : reads_) {
    if (read.done()) continue;
    read.waits = {};
    if (!read.fault) read.fault = Fault::qp_in_error;
  }
  return fault;
}

Result<std::size_t> StripedEndpoint::poll(std::span<Completion> into) {
  collect();
  std::size_t count = 0;
  for (; count < into.size() && !reads_.empty() && reads_.front().done(); ++count, ++first_) {
    auto& read = reads_.front();
    // Behind one that ended the endpoint nothing is believed, whichever lane it came by.
    into[count] = {read.id, ended_ ? Fault::qp_in_error : read.fault};
    ended_ = ended_ || (read.fault && outcome_of(*read.fault) != Outcome::retry_here);
    if (read.place != nullptr) places_->done(*read.place);
    reads_.pop_front();
  }
  if (count == 0 && reads_.empty() && broken_) return *broken_;
  return count;
}

int StripedEndpoint::arm() {
  if (broken_) return -1;
  if (!news_) news_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  for (auto& lane : lanes_) {
    const int each = lane.endpoint->arm();
    epoll_event event{};
    event.events = EPOLLIN;
    if (each < 0 || (::epoll_ctl(news_.get(), EPOLL_CTL_ADD, each, &event) != 0 && errno != EEXIST)) return -1;
  }
  return news_.get();
}

void StripedEndpoint::close() {
  if (!broken_) broken_ = Fault::peer_gone;
  for (auto& lane : lanes_) lane.endpoint->close();
  places_->end();
  first_ += reads_.size();
  reads_.clear();
}

}  // namespace

std::unique_ptr<Endpoint> stripe(std::array<Lane, 2> lanes) {
  return std::make_unique<StripedEndpoint>(std::move(lanes));
}

}  // namespace ciuic::rdma
