#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "broker/log/files.h"
#include "broker/log/producer_state.h"
#include "broker/log/segment.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// Reads a segment's file batch by batch through a window of memory. Blocks.
class BatchWalk {
 public:
  /// From `position` (a batch's first byte) to `end`.
  BatchWalk(const File& file, std::uint64_t position, std::uint64_t end) : file_(file), at_(position), end_(end) {}

  enum class Need { header, whole };
  /// The batch at the current position; nothing at the end, or where no whole batch can be (then `stopped_short`).
  /// `header`: at least its header (records of small ones too); the span lasts until the next call.
  [[nodiscard]] IoResult<std::optional<Bytes>> next(Need need);
  /// Position of the batch that `next` gave last, then of the one after it.
  [[nodiscard]] std::uint64_t position() const { return at_ - last_size_; }
  [[nodiscard]] std::uint64_t next_position() const { return at_; }
  [[nodiscard]] bool stopped_short() const { return at_ < end_; }
  /// Gives the last batch back, so that the walk has stopped before it.
  void step_back() {
    at_ -= last_size_;
    last_size_ = 0;
  }

 private:
  [[nodiscard]] IoResult<Bytes> bytes_at(std::uint64_t at, std::size_t count);

  const File& file_;
  std::uint64_t at_;
  std::uint64_t end_;
  std::uint64_t last_size_ = 0;
  Buffer window_;
  std::uint64_t window_at_ = 0;
};

struct ScanResult {
  kafka::Offset next_offset;  ///< after the last good batch
  std::uint64_t good_bytes = 0;
  std::uint64_t file_bytes = 0;
};

/// Reads every batch of the segment, checks its checksum and that offsets only grow, and rebuilds the in-memory indexes
/// and timestamps of `segment`. `each` sees every good batch. Stops at the first that is not: what follows is torn.
[[nodiscard]] IoResult<ScanResult> scan_segment(Segment& segment, std::int32_t index_interval,
                                                const std::function<void(const BatchInfo&)>& each);

/// Opens an active segment that is trusted: indexes from their files, then headers from the last entry on.
/// `good_bytes < file_bytes` in the answer: the files do not agree, scan it.
[[nodiscard]] IoResult<ScanResult> open_active(Segment& segment);

}  // namespace ciuic::broker
