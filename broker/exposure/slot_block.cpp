// The memory of slots, and its registrations.
#include "broker/exposure/slot_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "transport/base/log.h"

namespace ciuic::broker {

class SlotBlock::Memory final : public rdma::Backing {
 public:
  Memory(UniqueFd memfd, std::byte* at) : memfd_(std::move(memfd)), at_(at) {}
  ~Memory() override { ::munmap(at_, bytes); }
  std::uint64_t id() const override { return id_; }
  UniqueFd read_only_descriptor() const override {
    return UniqueFd(::open(("/proc/self/fd/" + std::to_string(memfd_.get())).c_str(), O_RDONLY | O_CLOEXEC));
  }
  [[nodiscard]] std::byte* at() const { return at_; }

 private:
  // Partitions' memory counts from 1 upwards: the upper half is ours.
  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> ids{1ULL << 63};
    return ids.fetch_add(1);
  }
  UniqueFd memfd_;
  std::byte* at_;
  std::uint64_t id_ = next_id();
};

std::shared_ptr<SlotBlock> SlotBlock::make(std::shared_ptr<PinnedShares> shares) {
  UniqueFd memfd(::memfd_create("ciuic-slots", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  void* at = MAP_FAILED;
  if (memfd && ::fchmod(memfd.get(), 0400) == 0 && ::ftruncate(memfd.get(), bytes) == 0)
    at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  // The seal on writing comes after our own mapping, which stays: no other writable one is possible, for root neither.
  if (at == MAP_FAILED ||
      ::fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    log::error("exposure", "no memory for slots: {}; raise `ulimit -n` or the memory limit", std::strerror(errno));
    if (at != MAP_FAILED) ::munmap(at, bytes);
    return nullptr;
  }
  return std::shared_ptr<SlotBlock>(
      new SlotBlock(std::make_shared<Memory>(std::move(memfd), static_cast<std::byte*>(at)), std::move(shares)));
}

SlotBlock::SlotBlock(std::shared_ptr<Memory> memory, std::shared_ptr<PinnedShares> shares)
    : memory_(std::move(memory)), shares_(std::move(shares)) {}
SlotBlock::~SlotBlock() {
  for (auto& [domain, in] : regions_) end(std::move(in));
}

MutableBytes SlotBlock::slot(std::int32_t partition) {
  const auto index = static_cast<std::size_t>(partition % onesided::slots_per_block);
  return {memory_->at() + index * onesided::slot_bytes, onesided::slot_bytes};
}

rdma::Result<rdma::RemoteSpan> SlotBlock::remote(const std::shared_ptr<rdma::Domain>& domain, std::int32_t partition) {
  const auto at = static_cast<std::uint32_t>(partition % onesided::slots_per_block) *
                  static_cast<std::uint32_t>(onesided::slot_bytes);
  if (!registered(domain.get())) {
    auto region = domain->expose({Bytes(memory_->at(), bytes), memory_, 0});
    if (!region) return region.error();
    InDomain in{domain, std::move(*region)};
    if (domain->pins_memory()) shares_->add(domain->principal(), bytes);
    bool made = false;
    {
      const std::scoped_lock lock(mutex_);
      made = regions_.try_emplace(domain.get(), std::move(in)).second;
    }
    if (!made) end(std::move(in));  // another partition of the block was quicker
  }
  const std::scoped_lock lock(mutex_);
  const auto found = regions_.find(domain.get());
  if (found == regions_.end()) return rdma::Fault::refused;  // dropped meanwhile: its principal goes
  return *found->second.region.remote().sub(at, onesided::slot_bytes);
}

bool SlotBlock::registered(const rdma::Domain* domain) {
  const std::scoped_lock lock(mutex_);
  return regions_.contains(domain);
}

void SlotBlock::drop(const rdma::Domain* domain) {
  std::unique_lock lock(mutex_);
  auto in = regions_.extract(domain);
  lock.unlock();
  if (in) end(std::move(in.mapped()));
}

void SlotBlock::end(InDomain in) {
  const auto revoked = in.region.revoke();
  if (in.domain->pins_memory()) shares_->remove(in.domain->principal(), bytes);
  if (revoked) return;
  log::error("exposure", "slots could not be deregistered, their memory is lost until restart: {}",
             rdma::text(revoked.error()));
  static std::mutex mutex;
  static std::vector<std::shared_ptr<Memory>> for_good;
  const std::scoped_lock lock(mutex);
  for_good.push_back(memory_);
}

std::vector<std::shared_ptr<rdma::Domain>> SlotBlock::denied(
    const std::function<bool(const std::string& principal)>& may_read, Clock::TimePoint now, Clock::Duration patience) {
  std::vector<std::shared_ptr<rdma::Domain>> due;
  const std::scoped_lock lock(mutex_);
  for (auto& [domain, in] : regions_) {
    if (may_read(std::string(domain->principal())))
      in.denied_since.reset();
    else if (!in.denied_since)
      in.denied_since = now;
    else if (now - *in.denied_since >= patience)
      due.push_back(in.domain);
  }
  return due;
}

}  // namespace ciuic::broker
