// Pieces of a program's memory, and the device's calls in turn. Not here: what lands in them (reader.cpp, client/core).
#include "transport/onesided/landing_area.h"

#include <algorithm>
#include <array>

namespace ciuic::onesided {

namespace {
constexpr std::size_t rounded(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + LandingArea::alignment - 1) / LandingArea::alignment *
         LandingArea::alignment;
}
}  // namespace

LandingArea::LandingArea(std::shared_ptr<device::Device> device, device::Span memory, std::shared_ptr<const void> keeps)
    : keeps_(std::move(keeps)), device_(std::move(device)), memory_(memory) {
  if (capacity() > 0) free_.emplace(memory.address, capacity());
}

std::unique_ptr<LandingArea::Piece> LandingArea::take(std::size_t bytes) {
  const auto size = rounded(bytes);
  device::Span span{0, bytes};
  {
    const std::lock_guard lock(mutex_);
    // The smallest that fits: long ones stay for long batches.
    auto best = free_.end();
    for (auto at = free_.begin(); at != free_.end(); ++at)
      if (at->second >= size && (best == free_.end() || at->second < best->second)) best = at;
    if (best == free_.end()) return nullptr;
    span.address = best->first;
    const auto left = best->second - size;
    free_.erase(best);
    if (left > 0) free_.emplace(span.address + size, left);
  }
  return std::make_unique<Piece>(shared_from_this(), span);
}

bool LandingArea::has_room(std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(free_.begin(), free_.end(),
                     [size = rounded(bytes)](const auto& one) { return one.second >= size; });
}

void LandingArea::give_back(device::Span span) {
  const std::lock_guard lock(mutex_);
  auto [at, added] = free_.emplace(span.address, rounded(span.bytes));
  const auto next = std::next(at);
  if (next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  const auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  free_.erase(at);
}

device::Result<void> LandingArea::copy_in(device::Span to, Bytes from) {
  const std::lock_guard lock(device_mutex_);
  return device_->copy_in(to, from);
}
device::Result<void> LandingArea::copy_out(MutableBytes to, device::Span from) {
  const std::lock_guard lock(device_mutex_);
  return device_->copy_out(to, from);
}
device::Result<void> LandingArea::wipe(device::Span span) {
  const std::lock_guard lock(device_mutex_);
  return device_->wipe(span);
}
device::Result<std::size_t> LandingArea::heads(device::Span span, std::span<device::BatchHead> into) {
  const std::lock_guard lock(device_mutex_);
  return device_->heads(span, into);
}
device::Result<void> LandingArea::checksums(device::Span span, std::span<const device::Slice> slices,
                                            std::span<std::uint32_t> into) {
  const std::lock_guard lock(device_mutex_);
  return device_->checksums(span, slices, into);
}
device::Result<std::unique_ptr<device::Pin>> LandingArea::pin(Bytes host) {
  const std::lock_guard lock(device_mutex_);
  return device_->pin(host);
}

device::Result<std::unique_ptr<rdma::Landing>> LandingArea::register_with(rdma::Endpoint& endpoint) {
  rdma::LandingMemory wanted;
  wanted.bytes = {reinterpret_cast<std::byte*>(memory_.address), memory_.bytes};
  wanted.of_host = device_->is_host();
  device::DmaBuf shared;
  std::string no_dma_buf;
  if (!wanted.of_host) {
    // A device that finds and checks no batches leaves nothing to believe in what a card wrote.
    std::array<device::BatchHead, 1> head;
    std::array<std::uint32_t, 1> sum{};
    const std::array slice{
        device::Slice{0, static_cast<std::uint32_t>(std::min<std::size_t>(memory_.bytes, alignment))}};
    const std::lock_guard lock(device_mutex_);
    const auto probe = memory_.sub(0, slice[0].bytes);
    if (auto done = device_->heads(probe, head); !done) return done.error();
    if (auto done = device_->checksums(probe, slice, sum); !done) return done.error();
    if (auto got = device_->dma_buf(memory_)) {
      shared = std::move(*got);
      wanted.dma_buf = shared.descriptor.get();
      wanted.dma_buf_offset = shared.offset;
    } else {
      no_dma_buf = "; " + got.error().text;
    }
  }
  auto landing = endpoint.register_landing(wanted);
  if (landing) return std::move(*landing);
  const auto fault = landing.error();
  if (fault == rdma::Fault::not_registrable)
    return device::Error{wanted.of_host
                             ? "this provider does not read into a program's memory"
                             : "card and device have no direct way: neither a dma-buf nor peer memory of the "
                               "device is taken by the card, its driver or its provider" +
                                   no_dma_buf};
  return device::Error{std::string(rdma::text(fault)) + "; " + std::string(rdma::remedy(fault))};
}

}  // namespace ciuic::onesided
