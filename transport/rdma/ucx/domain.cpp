// Domains and regions. Not here: connections.
#include "transport/rdma/ucx/domain.h"

#include <sys/random.h>
#include <sys/resource.h>

#include <cstdlib>

#include "transport/base/log.h"

namespace ciuic::rdma::ucx {

Result<std::shared_ptr<const Context>> Seat::context() {
  const std::scoped_lock lock(mutex_);
  if (!context_) {
    auto opened = Context::open(library_, Side::exposing, transports_);
    if (!opened) return opened.error();
    context_ = std::move(*opened);
  }
  return context_;
}

std::uint64_t Seat::add(const Exposed& exposed) {
  const std::scoped_lock lock(mutex_);
  while (true) {
    std::uint64_t key = 0;
    if (::getrandom(&key, sizeof key, 0) != sizeof key) std::abort();  // a guessable key is worse
    if (keys_.try_emplace(key, exposed).second) return key;
  }
}

std::optional<Seat::Exposed> Seat::find(std::uint64_t key, const UcxDomain& domain) const {
  const std::scoped_lock lock(mutex_);
  const auto found = keys_.find(key);
  if (found == keys_.end() || found->second.domain != &domain) return std::nullopt;
  return found->second;
}

void Seat::revoke(std::uint64_t key) {
  {
    const std::scoped_lock lock(mutex_);
    keys_.erase(key);
  }
  const std::scoped_lock lock(listeners_mutex_);
  for (auto* const listener : listeners_) listener->forget(key);
}

std::size_t Seat::size() const {
  const std::scoped_lock lock(mutex_);
  return keys_.size();
}

void Seat::join(Holders& listener) {
  const std::scoped_lock lock(listeners_mutex_);
  listeners_.push_back(&listener);
}

void Seat::leave(Holders& listener) {
  const std::scoped_lock lock(listeners_mutex_);
  std::erase(listeners_, &listener);
}

/// A region, and what it needs to end.
class UcxDomain::Held final : public Registration {
 public:
  Held(std::shared_ptr<Seat> seat, std::shared_ptr<UcxDomain> domain, std::shared_ptr<const Context> context,
       ucp_mem_h memory, std::uint64_t key)
      : seat_(std::move(seat)), domain_(std::move(domain)), context_(std::move(context)), memory_(memory), key_(key) {}

  Result<void> deregister() override {
    // UCX's software serves READs of any address: one of memory that is gone would end this process. So readers are
    // told first, and who does not answer is cut.
    seat_->revoke(key_);
    const auto status = context_->library.mem_unmap(context_->handle, memory_);
    if (status == UCS_OK) return {};
    log::error("rdma", "ucx: a region could not be closed: {}", context_->library.status_string(status));
    return Fault::device_lost;
  }

 private:
  std::shared_ptr<Seat> seat_;
  std::shared_ptr<UcxDomain> domain_;
  std::shared_ptr<const Context> context_;
  ucp_mem_h memory_;
  std::uint64_t key_;
};

Result<Region> UcxDomain::expose(const Exposable& memory) {
  if (memory.bytes.empty() || memory.bytes.size() > 0xFFFFFFFFU) return Fault::not_registrable;
  if (seat_->size() >= regions_max) return Fault::resources_exhausted;
  const auto opened = seat_->context();
  if (!opened) return opened.error();
  const auto& context = *opened;
  const auto& library = context->library;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_PROT;
  params.address = const_cast<std::byte*>(memory.bytes.data());
  params.length = memory.bytes.size();
  params.prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_REMOTE_READ;
  ucp_mem_h mapped = nullptr;
  if (const auto status = library.mem_map(context->handle, &params, &mapped); status != UCS_OK) {
    log::debug("rdma", "ucx: memory is not registered: {}", library.status_string(status));
    if (status == UCS_ERR_INVALID_PARAM || status == UCS_ERR_INVALID_ADDR || status == UCS_ERR_UNSUPPORTED)
      return Fault::not_registrable;
    if (status == UCS_ERR_NO_DEVICE) return Fault::device_lost;
    rlimit limit{};
    const bool limited = ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? Fault::memlock_limit : Fault::resources_exhausted;
  }
  void* packed = nullptr;
  std::size_t bytes = 0;
  if (const auto status = library.rkey_pack(context->handle, mapped, &packed, &bytes); status != UCS_OK) {
    (void)library.mem_unmap(context->handle, mapped);
    return Fault::not_registrable;
  }
  Seat::Exposed exposed;
  exposed.domain = this;
  exposed.address = reinterpret_cast<std::uintptr_t>(memory.bytes.data());
  exposed.length = static_cast<std::uint32_t>(memory.bytes.size());
  const auto told = bytes_of(packed, bytes);
  exposed.packed.assign(told.begin(), told.end());
  library.rkey_buffer_release(packed);
  const RemoteSpan span{exposed.address, exposed.length, seat_->add(exposed)};
  return Region(std::make_unique<Held>(seat_, shared_from_this(), context, mapped, span.key), span);
}

}  // namespace ciuic::rdma::ucx
