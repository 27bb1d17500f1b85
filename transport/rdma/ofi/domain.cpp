// Domains and regions. Not here: connections.
#include "transport/rdma/ofi/domain.h"

#include <sys/random.h>

#include "transport/base/log.h"

namespace ciuic::rdma::ofi {

bool Seat::take(std::shared_ptr<const Device> device) {
  const std::scoped_lock lock(mutex_);
  if (!device_)
    device_ = std::move(device);
  else if (std::string_view(device_->info->domain_attr->name) != device->info->domain_attr->name)
    return false;
  return true;
}

std::shared_ptr<const Device> Seat::device() const {
  const std::scoped_lock lock(mutex_);
  return device_;
}

/// A region, and what it needs to end.
class OfiDomain::Held final : public Registration {
 public:
  Held(std::shared_ptr<OfiDomain> domain, Owned<fid_mr> region)
      : domain_(std::move(domain)), region_(std::move(region)) {
    ++domain_->regions_;
  }
  ~Held() override { --domain_->regions_; }

  Result<void> deregister() override {
    // Whatever became of it, a second try is no help.
    auto* const region = region_.release();
    const int error = fi_close(&region->fid);
    if (error == 0) return {};
    log::error("rdma", "ofi: a region could not be closed: {}", domain_->device_->library.fi_strerror(-error));
    return Fault::device_lost;
  }

 private:
  std::shared_ptr<OfiDomain> domain_;
  Owned<fid_mr> region_;
};

Result<void> OfiDomain::open() {
  const std::scoped_lock lock(mutex_);
  if (domain_) return {};
  device_ = seat_->device();
  if (!device_) return Fault::device_lost;
  auto domain = open_domain(*device_);
  if (!domain) return domain.error();
  if (kind_.manner == Manner::connectionless) {
    auto door = open_door(**domain);
    if (!door) return door.error();
    door_ = std::move(*door);
  }
  domain_ = std::move(*domain);
  return {};
}

Result<std::unique_ptr<OfiDomain::Door>> OfiDomain::open_door(fid_domain& domain) const {
  // No completion is ever meant for it.
  auto reach = Reach::open(*device_, domain, 64);
  if (!reach) return reach.error();
  auto door = std::make_unique<Door>();
  door->reach = std::move(*reach);
  if (::getrandom(door->sample.data(), door->sample.size(), 0) != static_cast<ssize_t>(door->sample.size()))
    return Fault::resources_exhausted;
  auto region = register_memory(*device_, domain, door->reach.endpoint.get(), door->sample, Use::exposed);
  if (!region) return region.error();
  const auto span = span_of(*device_, **region, door->sample);
  if (!span) return Fault::not_registrable;
  door->sample_span = *span;
  door->sample_region = std::move(*region);
  return door;
}

Result<fid_domain*> OfiDomain::opened() {
  const auto done = open();
  if (!done) return done.error();
  return domain_.get();
}

Result<OfiDomain::Door*> OfiDomain::door() {
  const auto done = open();
  if (!done) return done.error();
  return door_.get();
}

Result<Region> OfiDomain::expose(const Exposable& memory) {
  if (memory.bytes.empty() || memory.bytes.size() > 0xFFFFFFFFU) return Fault::not_registrable;
  if (regions_.load() >= regions_max) return Fault::resources_exhausted;
  const auto domain = opened();
  if (!domain) return domain.error();
  auto region =
      register_memory(*device_, **domain, door_ ? door_->reach.endpoint.get() : nullptr, memory.bytes, Use::exposed);
  if (!region) return region.error();
  const auto span = span_of(*device_, **region, memory.bytes);
  if (!span) return Fault::not_registrable;
  return Region(std::make_unique<Held>(shared_from_this(), std::move(*region)), *span);
}

}  // namespace ciuic::rdma::ofi
