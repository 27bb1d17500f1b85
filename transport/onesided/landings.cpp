// Landings lent out and taken back. Not here: what is read into them (reader.cpp).
#include "transport/onesided/landings.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "transport/base/log.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::onesided {

namespace {
/// Landings kept for the next READ; more than that come back only when a burst of deliveries is let go.
constexpr std::size_t spare_max = 8;
}  // namespace

struct Landings::Back {
  struct Used {
    std::unique_ptr<rdma::Landing> landing;
    std::uint32_t checked = 0;
    std::uint32_t landed = 0;
  };
  std::mutex mutex;
  std::vector<Used> spare;
  std::size_t lent_bytes = 0;
  bool over = false;

  void take_back(Used used) {
    const std::lock_guard lock(mutex);
    lent_bytes -= used.landing->bytes().size();
    // A landing ends where its endpoint may be used, or when that is no more.
    if (over)
      used.landing.reset();
    else
      spare.push_back(std::move(used));
  }
};

Landings::Landings() : back_(std::make_shared<Back>()) {}
Landings::~Landings() { end(nullptr); }

void Landings::use(std::shared_ptr<LandingArea> area, std::unique_ptr<rdma::Landing> registered, Longer longer) {
  longer_ = longer;
  area_ = std::move(area);
  registered_ = std::move(registered);
}

rdma::Result<std::unique_ptr<rdma::Landing>> Landings::take(rdma::Endpoint& endpoint, std::size_t bytes) {
  if (area_ && longer_ == Longer::own_memory && bytes > area_->memory().bytes) return endpoint.make_landing(bytes);
  if (area_) {
    auto piece = area_->take(bytes);
    if (!piece) return rdma::Fault::landing_full;
    if (const auto wiped = area_->wipe(piece->span()); !wiped) {
      log::warn("client", "landing in {} failed: {}", area_->device_name(), wiped.error().text);
      return rdma::Fault::landing_failed;
    }
    return std::unique_ptr<rdma::Landing>(std::move(piece));
  }
  Back::Used used;
  {
    const std::lock_guard lock(back_->mutex);
    auto& spare = back_->spare;
    const auto fits = std::find_if(spare.begin(), spare.end(),
                                   [bytes](const auto& one) { return one.landing->bytes().size() >= bytes; });
    if (fits != spare.end()) {
      used = std::move(*fits);
      spare.erase(fits);
    }
    if (spare.size() > spare_max) spare.resize(spare_max);
  }
  if (!used.landing) return endpoint.make_landing(bytes);
  wipe(used.landing->bytes(), used.checked, used.landed);
  return std::move(used.landing);
}

std::shared_ptr<const void> Landings::lend(std::unique_ptr<rdma::Landing>& landing, std::uint32_t checked,
                                           std::uint32_t landed) {
  if (area_) return std::shared_ptr<const void>(std::move(landing));
  const auto size = landing->bytes().size();
  {
    const std::lock_guard lock(back_->mutex);
    if (back_->lent_bytes + size > lent_bytes_max) return nullptr;
    back_->lent_bytes += size;
  }
  auto* const memory = landing->bytes().data();
  struct Lent {
    std::shared_ptr<Back> back;
    Back::Used used;
    Lent(std::shared_ptr<Back> to, Back::Used what) : back(std::move(to)), used(std::move(what)) {}
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    ~Lent() { back->take_back(std::move(used)); }
  };
  return {std::make_shared<Lent>(back_, Back::Used{std::move(landing), checked, landed}), memory};
}

void Landings::end(std::unique_ptr<rdma::Endpoint> endpoint) {
  const std::lock_guard lock(back_->mutex);
  back_->over = true;
  back_->spare.clear();
  registered_.reset();
  endpoint.reset();
}

void Landings::wipe(MutableBytes bytes, std::uint32_t checked, std::uint32_t landed) {
  for (std::uint32_t at = 0; at < checked;) {
    const auto length = kafka::load_be<std::int32_t>(bytes.data() + at + kafka::batch_at::length);
    std::memset(bytes.data() + at, 0, kafka::batch_header_bytes);
    at += static_cast<std::uint32_t>(length) + static_cast<std::uint32_t>(kafka::batch_overhead_bytes);
  }
  if (landed > checked) std::memset(bytes.data() + checked, 0, landed - checked);
}

}  // namespace ciuic::onesided
