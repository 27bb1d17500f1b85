// Domains and regions. Not here: connections.
#include "transport/rdma/ofi/domain.h"

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

Result<fid_domain*> OfiDomain::opened() {
  const std::scoped_lock lock(mutex_);
  if (domain_) return domain_.get();
  device_ = seat_->device();
  if (!device_) return Fault::device_lost;
  auto domain = open_domain(*device_);
  if (!domain) return domain.error();
  domain_ = std::move(*domain);
  return domain_.get();
}

Result<Region> OfiDomain::expose(const Exposable& memory) {
  if (memory.bytes.empty() || memory.bytes.size() > 0xFFFFFFFFU) return Fault::not_registrable;
  if (regions_.load() >= regions_max) return Fault::resources_exhausted;
  const auto domain = opened();
  if (!domain) return domain.error();
  auto region = register_memory(*device_, **domain, memory.bytes, Use::exposed);
  if (!region) return region.error();
  const auto key = fi_mr_key(region->get());
  // Longer ones than a span holds; no provider of ours has them.
  if (key == FI_KEY_NOTAVAIL) return Fault::not_registrable;
  const bool by_address = (device_->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const auto address = by_address ? reinterpret_cast<std::uintptr_t>(memory.bytes.data()) : 0;
  return Region(std::make_unique<Held>(shared_from_this(), std::move(*region)),
                {address, static_cast<std::uint32_t>(memory.bytes.size()), key});
}

}  // namespace ciuic::rdma::ofi
