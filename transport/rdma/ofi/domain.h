#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "transport/rdma/ofi/reach.h"
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
  /// Of a kind without connections: the endpoint that readers come to, and what they read there first.
  struct Door {
    Reach reach;
    alignas(64) std::array<std::byte, 32> sample{};
    RemoteSpan sample_span{};
    Owned<fid_mr> sample_region;  // ends before what it may be bound to
  };
  /// Lives as long as this. Error beside those of libfabric: not_registrable.
  [[nodiscard]] Result<Door*> door();

  static constexpr std::size_t regions_max = 1U << 16;

 private:
  class Held;
  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<std::unique_ptr<Door>> open_door(fid_domain& domain) const;

  const Kind& kind_;
  std::shared_ptr<const Seat> seat_;
  std::string principal_;
  std::mutex mutex_;
  std::shared_ptr<const Device> device_;  // ends after the domain
  Owned<fid_domain> domain_;
  std::unique_ptr<Door> door_;
  std::atomic<std::size_t> regions_{0};
};

}  // namespace ciuic::rdma::ofi
