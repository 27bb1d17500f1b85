#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/rdma/provider.h"
#include "transport/rdma/verbs/objects.h"
#include "transport/rdma/verbs/protocol.h"

namespace ciuic::rdma::verbs {

/// A device that the broker listens on. Who has anything on its context has the rail, and ends the rail last.
struct Rail {
  /// `id` is bound to the device (`keep_device`).
  Rail(Owned<rdma_cm_id> id, std::uint32_t of_keys) : kept(std::move(id)), context(kept->verbs), number(of_keys) {}
  Owned<rdma_cm_id> kept;
  ibv_context* context;
  std::uint32_t number;           ///< which of a span's keys is its
  std::atomic<bool> lost{false};  ///< the device was removed or failed: no reader comes by it any more
};
using RailSet = std::array<std::shared_ptr<Rail>, rails_max>;

/// The devices of one provider that are there now, in the order in which their keys lie in a span. Any thread.
class Rails {
 public:
  /// The rail of the device that the id is bound to; null when there are `rails_max` others.
  [[nodiscard]] std::shared_ptr<Rail> add(Owned<rdma_cm_id> kept);
  /// Marks it, and leaves its number to the next device.
  void lose(const ibv_context* context);
  [[nodiscard]] RailSet now() const;
  [[nodiscard]] bool usable(const ibv_context* context) const;
  /// After a call on the device failed with `error`: whether that was because it is gone.
  [[nodiscard]] static bool is_gone(const Library& library, const Rail& rail, int error);

 private:
  mutable std::mutex mutex_;
  RailSet rails_{};
};

/// One principal: a protection domain on each rail. Its rails are those that were there when it first exposed: on a
/// device that came later it has no protection domain, so that none of its keys opens anything there.
class VerbsDomain final : public Domain, public std::enable_shared_from_this<VerbsDomain> {
 public:
  VerbsDomain(const Library& library, std::shared_ptr<const Rails> rails, std::string principal)
      : library_(library), present_(std::move(rails)), principal_(std::move(principal)) {}
  std::string_view principal() const override { return principal_; }
  bool pins_memory() const override { return true; }
  bool current() override;
  /// On every rail that still has its device; one that refuses has no key in the span (0). At most `regions_max` at a
  /// time. Pinning is done without a lock: connections and other chunks do not wait for it. Errors: the last rail's.
  Result<Region> expose(const Exposable& memory) override;
  /// For a queue pair on that rail. Errors: device_lost (lost, or not of this domain's), resources_exhausted.
  [[nodiscard]] Result<ibv_pd*> protection_domain(const std::shared_ptr<Rail>& rail);
  [[nodiscard]] RailSet rails();

  static constexpr std::size_t regions_max = 1U << 16;

 private:
  class Held;
  void take_rails();  // behind mutex_

  const Library& library_;
  std::shared_ptr<const Rails> present_;
  std::string principal_;
  std::mutex mutex_;
  RailSet rails_{};
  std::array<Owned<ibv_pd>, rails_max> domains_{};
  std::atomic<std::size_t> regions_{0};
};

}  // namespace ciuic::rdma::verbs
