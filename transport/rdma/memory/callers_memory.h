#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// The caller's memory: the host's as it is, a device's through its dma-buf, which is mapped as a card would.
class CallersMemory {
 public:
  [[nodiscard]] static std::shared_ptr<CallersMemory> make(const LandingMemory& memory) {
    auto made = std::make_shared<CallersMemory>();
    made->named_ = made->reached_ = memory.bytes;
    if (memory.of_host) return made;
    const auto before = memory.dma_buf_offset % page_bytes;
    const auto length = memory.bytes.size() + before;
    void* const at = memory.dma_buf < 0 ? MAP_FAILED
                                        : ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, memory.dma_buf,
                                                 static_cast<off_t>(memory.dma_buf_offset - before));
    if (at == MAP_FAILED) return nullptr;
    made->mapped_ = {static_cast<std::byte*>(at), length};
    made->reached_ = made->mapped_.subspan(before);
    return made;
  }
  CallersMemory() = default;
  CallersMemory(const CallersMemory&) = delete;
  CallersMemory& operator=(const CallersMemory&) = delete;
  ~CallersMemory() {
    if (!mapped_.empty()) ::munmap(mapped_.data(), mapped_.size());
  }
  [[nodiscard]] MutableBytes named() const { return named_; }
  /// Where `to` is reached; nothing if it is elsewhere.
  [[nodiscard]] std::optional<MutableBytes> reach(MutableBytes to) const {
    const auto at = reinterpret_cast<std::uintptr_t>(to.data()) - reinterpret_cast<std::uintptr_t>(named_.data());
    if (at > named_.size() || to.size() > named_.size() - at) return std::nullopt;
    return reached_.subspan(at, to.size());
  }

 private:
  static constexpr std::uint64_t page_bytes = 4096;
  MutableBytes named_{}, reached_{}, mapped_{};
};

}  // namespace ciuic::rdma
