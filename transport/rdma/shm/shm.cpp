// The shm provider's domains and regions: keys that name ranges of memfds. Sockets are listener.cpp's and
// endpoint.cpp's.
#include "transport/rdma/shm/shm.h"

#include <sys/random.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "transport/rdma/shm/protocol.h"

namespace ciuic::rdma {

namespace shm {

const Caps& shm_caps() {
  static constexpr Caps caps{.enforces_bounds = false,
                             .enforces_read_only = true,
                             .enforces_revocation = false,
                             .maps_remote = true,
                             .read_bytes_max = 64U << 20,
                             .reads_outstanding_max = 256};
  return caps;
}

}  // namespace shm

namespace {

class ShmDomain final : public shm::KeyTable, public std::enable_shared_from_this<ShmDomain> {
 public:
  explicit ShmDomain(std::string principal) : principal_(std::move(principal)) {}
  std::string_view principal() const override { return principal_; }
  Result<Region> expose(const Exposable& memory) override;
  std::optional<shm::Known> find(std::uint64_t key) const override {
    const std::scoped_lock lock(mutex_);
    const auto found = keys_.find(key);
    if (found == keys_.end()) return std::nullopt;
    return found->second;
  }
  void forget(std::uint64_t key) {
    const std::scoped_lock lock(mutex_);
    keys_.erase(key);
  }

 private:
  std::string principal_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, shm::Known> keys_;
};

class ShmRegistration final : public Registration {
 public:
  ShmRegistration(std::shared_ptr<ShmDomain> domain, std::uint64_t key) : domain_(std::move(domain)), key_(key) {}
  Result<void> deregister() override {
    domain_->forget(key_);
    return {};
  }

 private:
  std::shared_ptr<ShmDomain> domain_;
  std::uint64_t key_;
};

Result<Region> ShmDomain::expose(const Exposable& memory) {
  if (memory.bytes.empty() || memory.bytes.size() > 0xFFFFFFFFU || !memory.backing) return Fault::not_registrable;
  std::uint64_t key = 0;
  // Keys cannot be counted up to; a clash is not worth a loop, the map refuses it.
  if (::getrandom(&key, sizeof key, 0) != static_cast<ssize_t>(sizeof key)) return Fault::resources_exhausted;
  const auto length = static_cast<std::uint32_t>(memory.bytes.size());
  const std::scoped_lock lock(mutex_);
  if (!keys_.emplace(key, shm::Known{memory.backing, memory.backing_offset, length}).second)
    return Fault::resources_exhausted;
  return Region(std::make_unique<ShmRegistration>(shared_from_this(), key), {memory.backing_offset, length, key});
}

class ShmProvider final : public Provider {
 public:
  explicit ShmProvider(const Clock& clock) : clock_(clock) {}
  std::string_view name() const override { return "shm"; }
  const Caps& caps() const override { return shm::shm_caps(); }
  bool crosses_hosts() const override { return false; }
  Result<std::shared_ptr<Domain>> open_domain(std::string principal) override {
    return std::shared_ptr<Domain>(std::make_shared<ShmDomain>(std::move(principal)));
  }
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) override {
    return shm::listen(options, clock_);
  }
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                            const ConnectOptions& options) override {
    return shm::connect(address, token, options, clock_);
  }

 private:
  const Clock& clock_;
};

}  // namespace

std::shared_ptr<Provider> make_shm_provider(const Clock& clock) { return std::make_shared<ShmProvider>(clock); }

}  // namespace ciuic::rdma
