#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ciuic/consumer.h"
#include "transport/onesided/reader.h"

namespace ciuic::client::core {

/// The program's memory that batches are put into (`Consumer::land_in`): READs go straight there where card and memory
/// have a way to each other; else bytes are checked in host memory and copied.
class Destination {
 public:
  /// Errors: invalid_argument (no memory, too little, not the device's), unsupported (no driver).
  [[nodiscard]] static Result<std::shared_ptr<Destination>> open(const LandingBuffer& buffer);
  Destination(std::shared_ptr<device::Device> device, device::Span memory);

  [[nodiscard]] const std::shared_ptr<onesided::LandingArea>& area() const { return area_; }
  /// Of several batches no more than this are put there at a time: room is left for others.
  [[nodiscard]] std::size_t bytes_at_a_time() const { return std::max<std::size_t>(area_->memory().bytes / 4, 1); }

  /// How the batches of a session get there.
  struct Way {
    bool direct = false;
    std::string text{};  ///< for people: "direct (verbs into cuda:0)", "copied: …"
  };
  /// Settles it, before the queue's first READ. `read_bytes` is of one READ. Blocks: memory is pinned. Any thread.
  [[nodiscard]] Way attach(onesided::ReadQueue& queue, std::size_t read_bytes);
  /// No direct READs from now on: the device does not do what it said. Any thread.
  void give_up_direct();

  struct Placed {
    std::shared_ptr<const void> memory{};  ///< keeps them there
    std::vector<Bytes> batches{};          ///< addresses of the device
  };
  /// Copies checked batches into one piece. Nothing: no room now. Errors: queue_full (never will be: larger than all of
  /// the memory), fatal (the device failed).
  [[nodiscard]] Result<std::optional<Placed>> place(std::span<const Bytes> batches);
  [[nodiscard]] Error too_large(std::size_t bytes) const;
  /// Null: the driver refuses.
  [[nodiscard]] std::unique_ptr<device::Pin> pin(Bytes host);

 private:
  std::shared_ptr<onesided::LandingArea> area_;
  std::atomic<bool> direct_refused_{false}, pin_refusal_told_{false};
};

/// The chunk of the broker's memory that is read under a grant, for a device's copy engine to read it by itself. Ends
/// with the grant: after it the broker may give the pages back, and what is mapped there then are others, while a pin
/// holds on to those it found. One thread.
class ChunkPin {
 public:
  /// Another chunk ends the pin of the one before. REQUIRES: `mapping` stays mapped while this lives. What is refused
  /// is copied all the same, at less speed; that is said once.
  void hold(Destination& destination, Bytes mapping);

 private:
  const std::byte* at_ = nullptr;  // tried
  std::unique_ptr<device::Pin> pin_{};
};

}  // namespace ciuic::client::core
