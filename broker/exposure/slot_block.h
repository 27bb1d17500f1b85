#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "broker/exposure/shares.h"
#include "transport/base/clock.h"
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

  /// Nothing when the kernel refuses memory or a descriptor (logged). What is pinned is counted in `shares`.
  [[nodiscard]] static std::shared_ptr<SlotBlock> make(std::shared_ptr<PinnedShares> shares);
  ~SlotBlock();
  SlotBlock(const SlotBlock&) = delete;
  SlotBlock& operator=(const SlotBlock&) = delete;

  [[nodiscard]] MutableBytes slot(std::int32_t partition);
  /// Where a peer of `domain` reads that slot. The first time it registers, which blocks where the domain pins memory;
  /// other domains do not wait for it.
  [[nodiscard]] rdma::Result<rdma::RemoteSpan> remote(const std::shared_ptr<rdma::Domain>& domain,
                                                      std::int32_t partition);
  [[nodiscard]] bool registered(const rdma::Domain* domain);
  /// Ends the domain's registration, which may block likewise. Memory that a device does not give back is kept for
  /// good.
  void drop(const rdma::Domain* domain);
  /// Domains whose principal `may_read` has denied at each call for `patience`.
  [[nodiscard]] std::vector<std::shared_ptr<rdma::Domain>> denied(
      const std::function<bool(const std::string& principal)>& may_read, Clock::TimePoint now,
      Clock::Duration patience);

 private:
  class Memory;
  struct InDomain {
    std::shared_ptr<rdma::Domain> domain;  // outlives the region
    rdma::Region region;
    std::optional<Clock::TimePoint> denied_since{};
  };
  void end(InDomain in);
  SlotBlock(std::shared_ptr<Memory> memory, std::shared_ptr<PinnedShares> shares);
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<PinnedShares> shares_;
  std::mutex mutex_;
  std::map<const rdma::Domain*, InDomain> regions_;
};

}  // namespace ciuic::broker
