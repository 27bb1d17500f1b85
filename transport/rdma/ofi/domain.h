#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "transport/rdma/ofi/objects.h"
#include "transport/rdma/provider.h"

namespace ciuic::rdma::ofi {

/// The device that a provider listens on: one, for a span has one key. Any thread.
class Seat {
 public:
  /// False: it is another one already.
  [[nodiscard]] bool take(std::shared_ptr<const Device> device);
  /// Null before the first `take`.
  [[nodiscard]] std::shared_ptr<const Device> device() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Device> device_;
};

/// One principal: a domain of libfabric's, opened when it is first needed.
class OfiDomain final : public Domain, public std::enable_shared_from_this<OfiDomain> {
 public:
  OfiDomain(const Kind& kind, std::shared_ptr<const Seat> seat, std::string principal)
      : kind_(kind), seat_(std::move(seat)), principal_(std::move(principal)) {}
  std::string_view principal() const override { return principal_; }
  bool pins_memory() const override { return kind_.pins_memory; }
  /// At most `regions_max` at a time. Pinning is done without a lock. Before anybody listens: device_lost.
  Result<Region> expose(const Exposable& memory) override;
  /// For the endpoints of its connections. Lives as long as this.
  [[nodiscard]] Result<fid_domain*> opened();

  static constexpr std::size_t regions_max = 1U << 16;

 private:
  class Held;

  const Kind& kind_;
  std::shared_ptr<const Seat> seat_;
  std::string principal_;
  std::mutex mutex_;
  std::shared_ptr<const Device> device_;  // ends after the domain
  Owned<fid_domain> domain_;
  std::atomic<std::size_t> regions_{0};
};

}  // namespace ciuic::rdma::ofi
