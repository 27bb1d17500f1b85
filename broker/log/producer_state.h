#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/result.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// What the log must know of a batch, read from its header (and, for a marker, its one record).
struct BatchInfo {
  kafka::Offset base_offset;
  kafka::Offset last_offset;
  std::uint32_t bytes = 0;
  kafka::LeaderEpoch leader_epoch{-1};
  std::int64_t max_timestamp = -1;
  std::int64_t first_timestamp = -1;
  kafka::ProducerId producer_id{-1};
  kafka::ProducerEpoch producer_epoch{-1};
  std::int32_t base_sequence = -1;
  std::int32_t last_sequence = -1;
  std::int32_t record_count = 0;
  bool transactional = false;
  bool control = false;
  struct Marker {
    bool commit = false;
    std::int32_t coordinator_epoch = -1;
  };
  std::optional<Marker> marker;  ///< of a control batch that ends a transaction
};

/// A transaction that was aborted: an entry of .txnindex.
struct AbortedRange {
  kafka::ProducerId producer_id;
  kafka::Offset first_offset;
  kafka::Offset last_offset;         ///< of the abort marker
  kafka::Offset last_stable_offset;  ///< when it was aborted
  auto operator<=>(const AbortedRange&) const = default;
};

/// What each idempotent producer last wrote here, and which transactions are open (Apache's ProducerStateManager).
/// A value rebuilt from snapshot and log; owner's thread.
class ProducerState {
 public:
  static constexpr std::size_t batches_remembered = 5;

  struct Batch {
    std::int32_t last_sequence = -1;
    kafka::Offset last_offset;
    std::int32_t offset_delta = 0;
    std::int64_t timestamp = -1;
    [[nodiscard]] std::int32_t first_sequence() const;
    [[nodiscard]] kafka::Offset first_offset() const { return last_offset - offset_delta; }
  };
  struct Producer {
    kafka::ProducerEpoch epoch{-1};
    std::vector<Batch> batches;  // oldest first, at most batches_remembered
    std::int64_t last_timestamp = -1;
    std::int32_t coordinator_epoch = -1;
    std::optional<kafka::Offset> transaction_first;
  };

  /// What to do with a client's batch: append it, or answer with the offsets of the one it repeats.
  struct Verdict {
    std::optional<Batch> duplicate;
  };
  /// Checks epoch, sequence and transaction of a batch before it is appended. Batches without producer id pass.
  [[nodiscard]] ResultOf<Verdict, kafka::Error> check_client(const BatchInfo& batch) const;
  /// Checks a coordinator's batch (epoch fencing of markers).
  [[nodiscard]] ResultOf<void, kafka::Error> check_coordinator(const BatchInfo& batch) const;

  /// Takes in a batch that is now at the log end (append, replay). Gives the aborted transaction a marker ended.
  std::optional<AbortedRange> appended(const BatchInfo& batch);

  /// First offset of the earliest transaction that is open, or ended by a marker at or above `high_watermark`.
  [[nodiscard]] std::optional<kafka::Offset> first_unstable(kafka::Offset high_watermark) const;
  /// Forgets transactions that ended below the high watermark.
  void high_watermark_moved(kafka::Offset high_watermark);
  /// Forgets producers without an open transaction that were silent for `expiration_ms`.
  void expire(std::int64_t now_ms, std::int64_t expiration_ms);
  /// Log start moved: ended transactions below it are gone. An open one goes on: what is left of it is not decided yet.
  void log_start_moved(kafka::Offset log_start);
  void clear();

  [[nodiscard]] const std::unordered_map<kafka::ProducerId, Producer>& producers() const { return producers_; }
  [[nodiscard]] bool empty() const { return producers_.empty(); }
  [[nodiscard]] std::optional<kafka::Offset> earliest_open_transaction() const;

  /// Apache's .snapshot bytes (version 1: the last batch of each producer).
  [[nodiscard]] Buffer to_snapshot() const;
  /// False if the bytes are no snapshot (wrong CRC, version, lengths; a producer twice, a batch that cannot be); the
  /// state is then empty.
  [[nodiscard]] bool load_snapshot(Bytes bytes);
  /// All remembered batches, which Apache's snapshot has no room for: text kept beside it at a clean stop.
  [[nodiscard]] std::string recent_batches_text() const;
  /// Takes what agrees with the loaded snapshot; anything else is ignored.
  void load_recent_batches(std::string_view text);

 private:
  struct Ended {
    kafka::Offset first;
    kafka::Offset last;
  };
  void begin_or_continue(Producer& producer, const BatchInfo& batch);

  std::unordered_map<kafka::ProducerId, Producer> producers_;
  std::map<kafka::Offset, kafka::ProducerId> open_;  // transactions by first offset
  std::map<kafka::Offset, kafka::Offset> ended_;     // first offset -> marker's offset, until the marker is committed
};

}  // namespace ciuic::broker
