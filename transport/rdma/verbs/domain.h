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

/// A device that the broker listens on. Its context is librdmacm's and lives as long as the process.
struct Rail {
  explicit Rail(ibv_context* of_device) : context(of_device) {}
  ibv_context* context;
  std::atomic<bool> lost{false};  ///< the device was removed: nothing of it can be read or ended any more
};

/// The devices of one provider, in the order in which their keys lie in a span. Any thread.
class Rails {
 public:
  /// Its number; nothing when there are `rails_max` others already.
  [[nodiscard]] std::optional<std::uint32_t> add(ibv_context* context);
  [[nodiscard]] std::optional<std::uint32_t> find(const ibv_context* context) const;
  [[nodiscard]] std::vector<std::shared_ptr<Rail>> all() const;
  [[nodiscard]] bool usable(const ibv_context* context) const;
  /// After a call on the device failed with `error`: whether it is gone, which is noted then.
  [[nodiscard]] static bool is_lost(const Library& library, Rail& rail, int error);

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Rail>> rails_;
};

/// One principal: a protection domain on each rail.
class VerbsDomain final : public Domain, public std::enable_shared_from_this<VerbsDomain> {
 public:
  VerbsDomain(const Library& library, std::shared_ptr<const Rails> rails, std::string principal)
      : library_(library), rails_(std::move(rails)), principal_(std::move(principal)) {}
  std::string_view principal() const override { return principal_; }
  bool pins_memory() const override { return true; }
  /// On every rail that still has its device; one that refuses has no key in the span (0). At most `regions_max` at a
  /// time. Pinning is done without a lock: connections and other chunks do not wait for it. Errors: the last rail's.
  Result<Region> expose(const Exposable& memory) override;
  /// For a queue pair on that rail.
  [[nodiscard]] Result<ibv_pd*> protection_domain(std::uint32_t rail);

  static constexpr std::size_t regions_max = 1U << 16;

 private:
  class Held;

  const Library& library_;
  std::shared_ptr<const Rails> rails_;
  std::string principal_;
  std::mutex mutex_;
  std::array<Owned<ibv_pd>, rails_max> domains_{};
  std::atomic<std::size_t> regions_{0};
};

}  // namespace ciuic::rdma::verbs
