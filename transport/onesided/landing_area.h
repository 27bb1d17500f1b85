#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "transport/device/device.h"
#include "transport/rdma/provider.h"

namespace ciuic::onesided {

/// A program's memory for batches, of the host or of a GPU, cut into pieces. Any thread; calls of the device are one at
/// a time and block.
class LandingArea : public std::enable_shared_from_this<LandingArea> {
 public:
  /// REQUIRES: `memory` is of `device` and outlives the area and all its pieces; `keeps` lives as long.
  LandingArea(std::shared_ptr<device::Device> device, device::Span memory, std::shared_ptr<const void> keeps = nullptr);

  /// A part of the area, free again when it ends. Its `bytes` are addresses of the device.
  class Piece final : public rdma::Landing {
   public:
    Piece(std::shared_ptr<LandingArea> area, device::Span span) : area_(std::move(area)), span_(span) {}
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    ~Piece() override { area_->give_back(span_); }
    MutableBytes bytes() override { return {reinterpret_cast<std::byte*>(span_.address), span_.bytes}; }
    [[nodiscard]] device::Span span() const { return span_; }

   private:
    std::shared_ptr<LandingArea> area_;
    device::Span span_;
  };

  static constexpr std::size_t alignment = 256;  ///< of pieces, from the area's beginning
  /// Null: no piece so long is free. What lies in it may be anything.
  [[nodiscard]] std::unique_ptr<Piece> take(std::size_t bytes);
  /// The longest piece there can be.
  [[nodiscard]] std::size_t capacity() const { return memory_.bytes / alignment * alignment; }
  /// Whether `take` would give such a piece now.
  [[nodiscard]] bool has_room(std::size_t bytes) const;

  [[nodiscard]] const std::string& device_name() const { return device_->name(); }
  [[nodiscard]] bool of_host() const { return device_->is_host(); }
  [[nodiscard]] device::Span memory() const { return memory_; }

  // The device's calls (device.h), one at a time.
  [[nodiscard]] device::Result<void> copy_in(device::Span to, Bytes from);
  [[nodiscard]] device::Result<void> copy_out(MutableBytes to, device::Span from);
  [[nodiscard]] device::Result<void> wipe(device::Span span);
  [[nodiscard]] device::Result<std::size_t> heads(device::Span span, std::span<device::BatchHead> into);
  [[nodiscard]] device::Result<void> checksums(device::Span span, std::span<const device::Slice> slices,
                                               std::span<std::uint32_t> into);
  [[nodiscard]] device::Result<std::unique_ptr<device::Pin>> pin(Bytes host);

  /// For READs of `endpoint` to land in, all of it. Errors: why they cannot, and what to do about it.
  [[nodiscard]] device::Result<std::unique_ptr<rdma::Landing>> register_with(rdma::Endpoint& endpoint);

 private:
  void give_back(device::Span span);

  const std::shared_ptr<const void> keeps_;
  const std::shared_ptr<device::Device> device_;
  const device::Span memory_;
  std::mutex device_mutex_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::size_t> free_;  // by address; neighbours are one
};

}  // namespace ciuic::onesided
