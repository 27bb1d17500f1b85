// Batches into the program's memory. Not here: what is read, and when (consumer_poll.cpp).
#include "client/core/destination.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "client/core/error.h"
#include "transport/base/log.h"
#include "transport/device/cuda.h"
#include "transport/device/host.h"

namespace ciuic::client::core {

using onesided::LandingArea;

namespace {

constexpr std::size_t smallest = 4096;

/// Host memory that READs land in and a device copies from: pinned for both.
struct Bounce {
  Bounce(std::size_t size, std::shared_ptr<LandingArea> copied_to) : target(std::move(copied_to)), bytes(size) {
    void* const got = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return;
    at = static_cast<std::byte*>(got);
    ::madvise(at, size, MADV_HUGEPAGE);
  }
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;
  ~Bounce() {
    pin.reset();
    if (at != nullptr) ::munmap(at, bytes);
  }
  std::shared_ptr<LandingArea> target;  // its device pins
  std::byte* at = nullptr;
  std::size_t bytes;
  std::unique_ptr<device::Pin> pin{};
};

}  // namespace

Destination::Destination(std::shared_ptr<device::Device> device, device::Span memory)
    : area_(std::make_shared<LandingArea>(std::move(device), memory)) {}

Result<std::shared_ptr<Destination>> Destination::open(const LandingBuffer& buffer) {
  if (buffer.at == nullptr || buffer.bytes < smallest)
    return failure(Trouble::invalid_argument,
                   fmt::format("a landing buffer of {} bytes at {}: at least {} bytes of memory are needed",
                               buffer.bytes, buffer.at, smallest));
  const device::Span memory{reinterpret_cast<std::uintptr_t>(buffer.at), buffer.bytes};
  if (buffer.memory == Memory::host) return std::make_shared<Destination>(device::make_host(), memory);
  auto device = device::open_cuda(memory);
  if (!device) return failure(Trouble::unsupported, "landing in CUDA memory: " + device.error().text);
  return std::make_shared<Destination>(*std::move(device), memory);
}

Destination::Way Destination::attach(onesided::ReadQueue& queue, std::size_t read_bytes) {
  auto& endpoint = queue.endpoint();
  if (endpoint.mapper() != nullptr)
    return {false, fmt::format("copied: from the broker's memory on this host into {}", area_->device_name())};
  std::string why = "the device failed at reading directly before";
  if (!direct_refused_.load(std::memory_order_relaxed)) {
    auto registered = area_->register_with(endpoint);
    if (registered) {
      queue.landings().use(area_, *std::move(registered), onesided::Landings::Longer::refused);
      return {true, fmt::format("direct: READs land in {}", area_->device_name())};
    }
    why = registered.error().text;
  }
  if (!area_->of_host()) {
    // READs land where the device's copy engine fetches them; where that cannot be, the endpoint's own memory does.
    constexpr std::size_t reads = 4, huge_page_bytes = 2U << 20;
    const auto size = (reads * read_bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
    auto bounce = std::make_shared<Bounce>(size, area_);
    auto pinned = bounce->at == nullptr ? device::Result<std::unique_ptr<device::Pin>>(device::Error{"no memory"})
                                        : area_->pin({bounce->at, size});
    if (pinned) {
      bounce->pin = *std::move(pinned);
      const device::Span span{reinterpret_cast<std::uintptr_t>(bounce->at), size};
      auto area = std::make_shared<LandingArea>(device::make_host(), span, bounce);
      if (auto registered = area->register_with(endpoint))
        queue.landings().use(std::move(area), *std::move(registered), onesided::Landings::Longer::own_memory);
    } else {
      why += "; nor does the driver pin host memory to copy from: " + pinned.error().text;
    }
  }
  return {false, fmt::format("copied: into {} through host memory: {}", area_->device_name(), why)};
}

void Destination::give_up_direct() { direct_refused_.store(true, std::memory_order_relaxed); }

Error Destination::too_large(std::size_t bytes) const {
  return failure(Trouble::queue_full,
                 fmt::format("{} bytes of batches do not fit the landing buffer of {} bytes: land in a "
                             "larger one",
                             bytes, area_->memory().bytes));
}

Result<std::optional<Destination::Placed>> Destination::place(std::span<const Bytes> batches) {
  const auto total = std::accumulate(batches.begin(), batches.end(), std::size_t{0},
                                     [](auto sum, auto one) { return sum + one.size(); });
  if (total > area_->capacity()) return too_large(total);
  auto piece = area_->take(total);
  if (!piece) return std::optional<Placed>();
  Placed placed;
  placed.batches.reserve(batches.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < batches.size();) {
    // Batches that lie one behind the other go at one time.
    auto run = batches[i];
    const auto first = i;
    for (++i; i < batches.size() && batches[i].data() == run.data() + run.size(); ++i)
      run = Bytes(run.data(), run.size() + batches[i].size());
    const auto to = piece->span().sub(at, run.size());
    if (const auto done = area_->copy_in(to, run); !done)
      return failure(Trouble::fatal, fmt::format("landing in {} failed: {}", area_->device_name(), done.error().text));
    for (auto each = first; each < i; ++each) {
      placed.batches.emplace_back(reinterpret_cast<const std::byte*>(piece->span().address + at), batches[each].size());
      at += batches[each].size();
    }
  }
  placed.memory = std::shared_ptr<const void>(std::move(piece));
  return std::optional<Placed>(std::move(placed));
}

std::unique_ptr<device::Pin> Destination::pin(Bytes host) {
  auto pinned = area_->pin(host);
  if (pinned) return *std::move(pinned);
  if (!pin_refusal_told_.exchange(true))
    log::info("client", "the broker's memory is copied to {} without being pinned, which is slower: {}",
              area_->device_name(), pinned.error().text);
  return nullptr;
}

void ChunkPin::hold(Destination& destination, Bytes mapping) {
  if (destination.area()->of_host() || at_ == mapping.data()) return;
  pin_.reset();
  at_ = mapping.data();
  pin_ = destination.pin(mapping);
}

}  // namespace ciuic::client::core
