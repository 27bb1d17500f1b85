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
  void lost(const ibv_context* context);

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
  /// On every rail that still has its device. At most `regions_max` at a time.
  Result<Region> expose(const Exposable& memory) override;
  /// For a queue pair on that rail.
  [[nodiscard]] Result<ibv_pd*> protection_domain(std::uint32_t rail);

  static constexpr std::size_t regions_max = 1U << 16;

 private:
  class Held;
  [[nodiscard]] Result<ibv_pd*> protection_domain_locked(std::uint32_t rail, const Rail& device);

  const Library& library_;
  std::shared_ptr<const Rails> rails_;
  std::string principal_;
  std::mutex mutex_;
  std::array<Owned<ibv_pd>, rails_max> domains_{};
  std::atomic<std::size_t> regions_{0};
};

}  // namespace ciuic::rdma::verbs
