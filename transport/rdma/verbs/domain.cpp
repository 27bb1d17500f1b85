// Protection domains and regions: one registration of a span a rail. Not here: queue pairs.
#include "transport/rdma/verbs/domain.h"

#include <algorithm>
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

bool Rails::usable(const ibv_context* context) const {
  const std::scoped_lock lock(mutex_);
  return std::any_of(rails_.begin(), rails_.end(),
                     [context](const auto& rail) { return rail->context == context && !rail->lost.load(); });
}

bool Rails::is_lost(const Library& library, Rail& rail, int error) {
  if (rail.lost.load()) return true;
  if (error != EIO && error != ENODEV) return false;
  // The thread that hears of removals may not have come to it yet.
  ibv_device_attr can{};
  if (library.ibv_query_device(rail.context, &can) == 0) return false;
  rail.lost.store(true);
  return true;
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
      if (Rails::is_lost(domain_->library_, *rail, error)) continue;
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

Result<ibv_pd*> VerbsDomain::protection_domain(std::uint32_t rail) {
  const auto devices = rails_->all();
  if (rail >= devices.size() || devices[rail]->lost.load()) return Fault::device_lost;
  const std::scoped_lock lock(mutex_);
  auto& domain = domains_[rail];
  if (!domain) domain = Owned<ibv_pd>(library_.ibv_alloc_pd(devices[rail]->context), Closer{&library_});
  if (!domain) return fault_of(errno);
  return domain.get();
}

Result<Region> VerbsDomain::expose(const Exposable& memory) {
  if (memory.bytes.empty() || memory.bytes.size() > 0xFFFFFFFFU) return Fault::not_registrable;
  if (regions_.load() >= regions_max) return Fault::resources_exhausted;
  auto held = std::make_unique<Held>(shared_from_this());
  std::uint64_t key = 0;
  auto why = Fault::device_lost;
  const auto devices = rails_->all();
  for (std::uint32_t rail = 0; rail < devices.size(); ++rail) {
    const auto domain = protection_domain(rail);
    auto mr =
        domain ? register_memory(library_, **domain, memory.bytes.data(), memory.bytes.size(), IBV_ACCESS_REMOTE_READ)
               : domain.error();
    if (mr) {
      key |= static_cast<std::uint64_t>((*mr)->rkey) << (32 * rail);
      held->add(std::move(*mr), devices[rail]);
    } else {
      why = mr.error();
      if (devices.size() > 1 && !devices[rail]->lost.load())
        log::warn("rdma", "verbs: a region is not readable over rail {}: {}", rail, text(why));
    }
  }
  if (key == 0) return why;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.bytes.data());
  return Region(std::move(held), {address, static_cast<std::uint32_t>(memory.bytes.size()), key});
}

}  // namespace ciuic::rdma::verbs
