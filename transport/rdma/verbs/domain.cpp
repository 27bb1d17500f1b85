// Protection domains and regions: one registration of a span a rail. Not here: queue pairs.
#include "transport/rdma/verbs/domain.h"

#include <cerrno>
#include <cstring>

#include "transport/base/log.h"

namespace ciuic::rdma::verbs {

std::optional<std::uint32_t> Rails::add(ibv_context* context) {
  if (const auto known = find(context)) return known;
  const std::scoped_lock lock(mutex_);
  if (rails_.size() >= rails_max) return std::nullopt;
  rails_.push_back(std::make_shared<Rail>(context));
  return static_cast<std::uint32_t>(rails_.size() - 1);
}

std::optional<std::uint32_t> Rails::find(const ibv_context* context) const {
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < rails_.size(); ++i)
    if (rails_[i]->context == context) return static_cast<std::uint32_t>(i);
  return std::nullopt;
}

std::vector<std::shared_ptr<Rail>> Rails::all() const {
  const std::scoped_lock lock(mutex_);
  return rails_;
}

void Rails::lost(const ibv_context* context) {
  const std::scoped_lock lock(mutex_);
  for (const auto& rail : rails_)
    if (rail->context == context) rail->lost.store(true);
}

/// A span's registrations, and what they need to end.
class VerbsDomain::Held final : public Registration {
 public:
  explicit Held(std::shared_ptr<VerbsDomain> domain) : domain_(std::move(domain)) { ++domain_->regions_; }
  ~Held() override { --domain_->regions_; }
  void add(Owned<ibv_mr> mr, std::shared_ptr<Rail> rail) { mrs_.emplace_back(std::move(mr), std::move(rail)); }

  Result<void> deregister() override {
    bool all = true;
    for (auto& [mr, rail] : mrs_) {
      const int error = domain_->library_.ibv_dereg_mr(mr.get());
      // Whatever became of it, a second try is no help: a window that is bound to it is a bug of ours.
      (void)mr.release();
      if (error == 0) continue;
      // A removed device reads nothing any more; the kernel took its registrations away with it.
      if (rail->lost.load()) continue;
      log::error("rdma", "verbs: a region could not be deregistered device={}: {}",
                 domain_->library_.ibv_get_device_name(rail->context->device), std::strerror(error));
      all = false;
    }
    mrs_.clear();
    return all ? Result<void>() : Result<void>(Fault::device_lost);
  }

 private:
  std::shared_ptr<VerbsDomain> domain_;
  std::vector<std::pair<Owned<ibv_mr>, std::shared_ptr<Rail>>> mrs_;
};

Result<ibv_pd*> VerbsDomain::protection_domain_locked(std::uint32_t rail, const Rail& device) {
  auto& domain = domains_[rail];
  if (!domain) domain = Owned<ibv_pd>(library_.ibv_alloc_pd(device.context), Closer{&library_});
  if (!domain) return fault_of(errno);
  return domain.get();
}

Result<ibv_pd*> VerbsDomain::protection_domain(std::uint32_t rail) {
  const auto devices = rails_->all();
  if (rail >= devices.size() || devices[rail]->lost.load()) return Fault::device_lost;
  const std::scoped_lock lock(mutex_);
  return protection_domain_locked(rail, *devices[rail]);
}

Result<Region> VerbsDomain::expose(const Exposable& memory) {
  if (memory.bytes.empty() || memory.bytes.size() > 0xFFFFFFFFU) return Fault::not_registrable;
  if (regions_.load() >= regions_max) return Fault::resources_exhausted;
  auto held = std::make_unique<Held>(shared_from_this());
  std::uint64_t key = 0;
  bool any = false;
  const auto devices = rails_->all();
  {
    const std::scoped_lock lock(mutex_);
    for (std::uint32_t rail = 0; rail < devices.size(); ++rail) {
      if (devices[rail]->lost.load()) continue;
      const auto domain = protection_domain_locked(rail, *devices[rail]);
      if (!domain) return domain.error();
      auto mr = register_memory(library_, **domain, memory.bytes.data(), memory.bytes.size(), IBV_ACCESS_REMOTE_READ);
      if (!mr) return mr.error();
      key |= static_cast<std::uint64_t>((*mr)->rkey) << (32 * rail);
      held->add(std::move(*mr), devices[rail]);
      any = true;
    }
  }
  if (!any) return Fault::device_lost;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.bytes.data());
  return Region(std::move(held), {address, static_cast<std::uint32_t>(memory.bytes.size()), key});
}

}  // namespace ciuic::rdma::verbs
