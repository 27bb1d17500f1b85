// Protection domains and regions: one registration of a span a rail. Not here: queue pairs.
#include "transport/rdma/verbs/domain.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/base/log.h"

namespace ciuic::rdma::verbs {

std::shared_ptr<Rail> Rails::add(Owned<rdma_cm_id> kept) {
  const std::scoped_lock lock(mutex_);
  for (const auto& rail : rails_)
    if (rail && rail->context == kept->verbs) return rail;
  for (std::uint32_t number = 0; number < rails_max; ++number) {
    auto& rail = rails_.at(number);
    if (rail) continue;
    rail = std::make_shared<Rail>(std::move(kept), number);
    return rail;
  }
  return nullptr;
}

void Rails::lose(const ibv_context* context) {
  std::shared_ptr<Rail> lost;  // ends outside the lock
  const std::scoped_lock lock(mutex_);
  for (auto& rail : rails_) {
    if (!rail || rail->context != context) continue;
    rail->lost.store(true);
    lost = std::move(rail);
  }
}

RailSet Rails::now() const {
  const std::scoped_lock lock(mutex_);
  return rails_;
}

bool Rails::usable(const ibv_context* context) const {
  const std::scoped_lock lock(mutex_);
  return std::any_of(rails_.begin(), rails_.end(),
                     [context](const auto& rail) { return rail && rail->context == context; });
}

bool Rails::is_gone(const Library& library, const Rail& rail, int error) {
  if (error != EIO && error != ENODEV) return false;
  // The thread that hears of removals may not have come to it yet; and one that failed may still read memory.
  ibv_device_attr can{};
  return library.ibv_query_device(rail.context, &can) != 0;
}

/// A span's registrations, and what they need to end.
class VerbsDomain::Held final : public Registration {
 public:
  explicit Held(std::shared_ptr<VerbsDomain> domain) : domain_(std::move(domain)) { ++domain_->regions_; }
  ~Held() override { --domain_->regions_; }
  void add(Owned<ibv_mr> mr, std::shared_ptr<Rail> rail) { parts_.push_back({std::move(rail), std::move(mr)}); }

  Result<void> deregister() override {
    bool all = true;
    for (auto& [rail, mr] : parts_) {
      const int error = domain_->library_.ibv_dereg_mr(mr.get());
      // Whatever became of it, a second try is no help: a window that is bound to it is a bug of ours.
      (void)mr.release();
      if (error == 0) continue;
      // A removed device reads nothing any more; the kernel took its registrations away with it.
      if (Rails::is_gone(domain_->library_, *rail, error)) continue;
      log::error("rdma", "verbs: a region could not be deregistered device={}: {}",
                 domain_->library_.ibv_get_device_name(rail->context->device), std::strerror(error));
      all = false;
    }
    parts_.clear();
    return all ? Result<void>() : Result<void>(Fault::device_lost);
  }

 private:
  struct Part {
    std::shared_ptr<Rail> rail;
    Owned<ibv_mr> mr;
  };
  std::shared_ptr<VerbsDomain> domain_;
  std::vector<Part> parts_;
};

/// All regions have keys of the same rails: a reader who comes by one can read everything.
void VerbsDomain::take_rails() {
  if (regions_.load() > 0) return;
  const auto present = present_->now();
  for (std::uint32_t i = 0; i < rails_max; ++i)
    if (!rails_.at(i)) rails_.at(i) = present.at(i);
}

RailSet VerbsDomain::rails() {
  const std::scoped_lock lock(mutex_);
  take_rails();
  return rails_;
}

bool VerbsDomain::current() { return rails() == present_->now(); }

Result<ibv_pd*> VerbsDomain::protection_domain(const std::shared_ptr<Rail>& rail) {
  const std::scoped_lock lock(mutex_);
  take_rails();
  if (rails_.at(rail->number) != rail || rail->lost.load()) return Fault::device_lost;
  auto& domain = domains_.at(rail->number);
  if (!domain) domain = Owned<ibv_pd>(library_.ibv_alloc_pd(rail->context), Closer{&library_});
  if (!domain) return fault_of(errno);
  return domain.get();
}

Result<Region> VerbsDomain::expose(const Exposable& memory) {
  if (memory.bytes.empty() || memory.bytes.size() > 0xFFFFFFFFU) return Fault::not_registrable;
  if (regions_.load() >= regions_max) return Fault::resources_exhausted;
  RailSet devices;
  std::unique_ptr<Held> held;
  {
    const std::scoped_lock lock(mutex_);
    take_rails();
    devices = rails_;
    held = std::make_unique<Held>(shared_from_this());
  }
  std::uint64_t key = 0;
  auto why = Fault::device_lost;
  for (const auto& rail : devices) {
    if (!rail) continue;
    const auto domain = protection_domain(rail);
    auto mr =
        domain ? register_memory(library_, **domain, memory.bytes.data(), memory.bytes.size(), IBV_ACCESS_REMOTE_READ)
               : domain.error();
    if (mr) {
      key |= static_cast<std::uint64_t>((*mr)->rkey) << (32 * rail->number);
      held->add(std::move(*mr), rail);
    } else if (!rail->lost.load()) {
      why = mr.error();
      if (devices[0] && devices[1])
        log::bounded(log::Level::warn, "rdma", "verbs: a region is not readable over rail {}: {}", rail->number,
                     text(why));
    }
  }
  if (key == 0) return why;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.bytes.data());
  return Region(std::move(held), {address, static_cast<std::uint32_t>(memory.bytes.size()), key});
}

}  // namespace ciuic::rdma::verbs
