#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/rdma/provider.h"

namespace ciuic::onesided {

/// The landings of one endpoint: bytes are handed out where they landed, and the memory comes back for another READ
/// when whoever has them is done. One thread (the endpoint's), but what is lent may come back on any.
class Landings {
 public:
  Landings();
  ~Landings();
  Landings(const Landings&) = delete;
  Landings& operator=(const Landings&) = delete;

  /// Most bytes lent at a time: they stay registered with the device.
  static constexpr std::size_t lent_bytes_max = 64U << 20;

  /// Nothing in it can pass for a batch. Errors: the endpoint's.
  [[nodiscard]] rdma::Result<std::unique_ptr<rdma::Landing>> take(rdma::Endpoint& endpoint, std::size_t bytes);
  /// Keeps `landing` until the last copy of the handle is gone. Its first `checked` bytes are whole checked batches,
  /// and `landed` bytes may hold something. Null, and `landing` stays as it is: too much is lent already.
  [[nodiscard]] std::shared_ptr<const void> lend(std::unique_ptr<rdma::Landing>& landing, std::uint32_t checked,
                                                 std::uint32_t landed);
  /// The endpoint's end, beside which no landing may come back. What is lent stays readable.
  void end(std::unique_ptr<rdma::Endpoint> endpoint);

  /// Leaves nothing in `bytes` that could pass for a batch: the headers of the checked ones go, and all that is behind.
  static void wipe(MutableBytes bytes, std::uint32_t checked, std::uint32_t landed);

 private:
  struct Back;
  std::shared_ptr<Back> back_;
};

}  // namespace ciuic::onesided
