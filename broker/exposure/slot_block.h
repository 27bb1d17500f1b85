#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "transport/base/unique_fd.h"
#include "transport/kafka/types.h"
#include "transport/onesided/slot.h"
#include "transport/rdma/provider.h"

namespace ciuic::broker {

/// The slots of up to 1024 partitions of one topic: a memfd that nobody but this mapping can ever write (sealed),
/// exposed once a domain. Stop 5 of docs/tour.md is its writer. Any thread.
class SlotBlock {
 public:
  static constexpr std::size_t bytes = onesided::slots_per_block * onesided::slot_bytes;

  /// Nothing when the kernel refuses memory or a descriptor (logged).
  [[nodiscard]] static std::shared_ptr<SlotBlock> make();
  ~SlotBlock();
  SlotBlock(const SlotBlock&) = delete;
  SlotBlock& operator=(const SlotBlock&) = delete;

  [[nodiscard]] MutableBytes slot(std::int32_t partition);
  /// Where a peer of `domain` reads that slot.
  [[nodiscard]] rdma::Result<rdma::RemoteSpan> remote(const std::shared_ptr<rdma::Domain>& domain,
                                                      std::int32_t partition);
  void drop(const rdma::Domain* domain);

 private:
  class Memory;
  struct InDomain {
    std::shared_ptr<rdma::Domain> domain;  // outlives the region
    rdma::Region region;
  };
  explicit SlotBlock(std::shared_ptr<Memory> memory);
  std::shared_ptr<Memory> memory_;
  std::mutex mutex_;
  std::map<const rdma::Domain*, InDomain> regions_;
};

}  // namespace ciuic::broker
