#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "ciuic/batch.h"
#include "client/core/lease.h"
#include "transport/onesided/landing_area.h"

namespace ciuic::client::core {

/// What the batches of one poll share: where they lie and what keeps that memory. Counted by hand, for a view must cost
/// no allocation. Any thread.
class Delivery {
 public:
  struct Source {
    std::shared_ptr<const TopicPartition> at{};
    std::shared_ptr<const void> memory{};             ///< keeps the bytes mapped
    std::shared_ptr<Lease> lease{};                   ///< null: the bytes are ours
    std::shared_ptr<onesided::LandingArea> device{};  ///< not null: they are this device's, and the CPU may look at
    std::unique_ptr<std::byte[]> heads{};             ///< these copies of their headers only
    std::size_t unpacked_bytes_max = 0;               ///< of a batch: the consumer's max.decompressed.batch.bytes
    std::int64_t first_offset = 0;                    ///< lowest that its views show
    bool in_place = false;
  };
  /// The caller's reference; give it back by `drop`.
  [[nodiscard]] static Delivery* make(Source source) { return new Delivery(std::move(source)); }
  /// `head` is the batch's header, where the CPU may look.
  [[nodiscard]] static RecordBatch view(Delivery* delivery, Bytes bytes, const std::byte* head, std::int64_t wanted) {
    return {delivery, bytes, head, wanted};
  }

  /// What the records of `batch` may unpack to. REQUIRES: it is not empty.
  [[nodiscard]] static std::size_t unpacked_bytes_max(const RecordBatch& batch) {
    return batch.delivery_->source_.unpacked_bytes_max;
  }

  void keep() { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  [[nodiscard]] const Source& source() const { return source_; }
  [[nodiscard]] bool in_force() const { return !source_.lease || source_.lease->in_force(system_clock().now()); }

 private:
  explicit Delivery(Source source) : source_(std::move(source)) {
    if (source_.lease) source_.lease->hold(source_.first_offset);
  }
  ~Delivery() {
    if (source_.lease) source_.lease->let_go(source_.first_offset);
  }
  std::atomic<int> references_{1};
  const Source source_;
};

}  // namespace ciuic::client::core
