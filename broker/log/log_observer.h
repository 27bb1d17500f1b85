#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "broker/log/chunk.h"
#include "transport/base/executor.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

class Partition;

/// Where a partition stands after its high watermark (or log start, or last stable offset) moved.
struct Committed {
  std::uint64_t chunk_sequence = 0;  ///< of the chunk that holds the last committed byte; 0: none in memory
  std::uint32_t chunk_length = 0;    ///< committed bytes of that chunk; all earlier chunks are committed whole
  kafka::Offset high_watermark;
  kafka::Offset last_stable_offset;
  kafka::Offset log_start_offset;
  kafka::LeaderEpoch leader_epoch;
};

enum class LayoutChange { truncated, segment_rolled, segments_deleted, segment_replaced, partition_closed };

/// What exposure hears about a partition, always on the partition's executor.
/// No call of an observer may call back into the partition inside the call except its const getters.
class LogObserver {
 public:
  virtual ~LogObserver() = default;
  /// A chunk may be granted from now on: the active one (open), or one brought in from disk (sealed).
  virtual void chunk_opened(Partition& partition, const std::shared_ptr<Chunk>& chunk) = 0;
  /// Its bytes and length are final.
  virtual void chunk_sealed(Partition& partition, const std::shared_ptr<Chunk>& chunk) = 0;
  /// Give it up: no new grants; when leases are over and registrations gone, call `done` once, on any thread (inside
  /// this call too). Until then its bytes stay as they are.
  virtual void chunk_wanted_back(Partition& partition, const std::shared_ptr<Chunk>& chunk, Task done) = 0;
  /// Called after high watermark, last stable offset or log start moved; the bytes told are in the kernel.
  virtual void committed(Partition& partition, const Committed& position) = 0;
  /// Chunks a reader knows of may be gone or stand elsewhere; `chunk_wanted_back` follows for each.
  virtual void layout_changed(Partition& partition, LayoutChange change) = 0;
};

}  // namespace ciuic::broker
