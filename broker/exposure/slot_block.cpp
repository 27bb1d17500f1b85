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

std::shared_ptr<SlotBlock> SlotBlock::make() {
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
      new SlotBlock(std::make_shared<Memory>(std::move(memfd), static_cast<std::byte*>(at))));
}

SlotBlock::SlotBlock(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
SlotBlock::~SlotBlock() = default;

MutableBytes SlotBlock::slot(std::int32_t partition) {
  const auto index = static_cast<std::size_t>(partition % onesided::slots_per_block);
  return {memory_->at() + index * onesided::slot_bytes, onesided::slot_bytes};
}

rdma::Result<rdma::RemoteSpan> SlotBlock::remote(const std::shared_ptr<rdma::Domain>& domain, std::int32_t partition) {
  const std::scoped_lock lock(mutex_);
  auto found = regions_.find(domain.get());
  if (found == regions_.end()) {
    auto region = domain->expose({Bytes(memory_->at(), bytes), memory_, 0});
    if (!region) return region.error();
    found = regions_.emplace(domain.get(), InDomain{domain, std::move(*region)}).first;
  }
  const auto index = static_cast<std::uint32_t>(partition % onesided::slots_per_block);
  return *found->second.region.remote().sub(index * static_cast<std::uint32_t>(onesided::slot_bytes),
                                            onesided::slot_bytes);
}

void SlotBlock::drop(const rdma::Domain* domain) {
  const std::scoped_lock lock(mutex_);
  regions_.erase(domain);
}

}  // namespace ciuic::broker
