#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/onesided/landing_area.h"
#include "transport/rdma/provider.h"

namespace ciuic::onesided {

/// The landings of one endpoint: bytes are handed out where they landed, and the memory comes back for another READ
/// when whoever has them is done. The endpoint's own memory, or pieces of a program's. One thread (the endpoint's), but
/// what is lent may come back on any.
class Landings {
 public:
  Landings();
  ~Landings();
  Landings(const Landings&) = delete;
  Landings& operator=(const Landings&) = delete;

  /// Most bytes lent at a time: they stay registered with the device.
  static constexpr std::size_t lent_bytes_max = 64U << 20;

  /// What is longer than all of an area: goes to the endpoint's own memory (REQUIRES: the area is of the host, and
  /// `lend` is not called), or is refused.
  enum class Longer : std::uint8_t { refused, own_memory };
  /// From now on pieces of `area`, of which `registered` is the whole. REQUIRES: none was taken before.
  void use(std::shared_ptr<LandingArea> area, std::unique_ptr<rdma::Landing> registered, Longer longer);
  /// Null: the endpoint's own memory is used.
  [[nodiscard]] LandingArea* area() const { return area_.get(); }

  /// Nothing in it can pass for a batch. Errors: the endpoint's; landing_full, landing_failed of an area.
  [[nodiscard]] rdma::Result<std::unique_ptr<rdma::Landing>> take(rdma::Endpoint& endpoint, std::size_t bytes);
  /// Keeps `landing` until the last copy of the handle is gone. Its first `checked` bytes are whole checked batches,
  /// and `landed` bytes may hold something. Null, and `landing` stays as it is: too much is lent already (never of
  /// an area, which has an end of its own).
  [[nodiscard]] std::shared_ptr<const void> lend(std::unique_ptr<rdma::Landing>& landing, std::uint32_t checked,
                                                 std::uint32_t landed);
  /// The endpoint's end, beside which no landing may come back. What is lent stays readable.
  void end(std::unique_ptr<rdma::Endpoint> endpoint);

  /// Leaves nothing in `bytes` that could pass for a batch: the headers of the checked ones go, and all that is behind.
  static void wipe(MutableBytes bytes, std::uint32_t checked, std::uint32_t landed);

 private:
  struct Back;
  std::shared_ptr<Back> back_;
  std::shared_ptr<LandingArea> area_;
  std::unique_ptr<rdma::Landing> registered_;
  Longer longer_ = Longer::refused;
};

}  // namespace ciuic::onesided
