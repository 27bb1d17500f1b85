#pragma once
#include <cstdint>
#include <limits>
#include <optional>

namespace ciuic::broker {

enum class TimestampType : std::int8_t { create_time = 0, log_append_time = 1 };
/// Topic key `compression.type`; `producer` keeps what arrives.
enum class LogCompression : std::int8_t { producer = -1, uncompressed = 0, gzip = 1, snappy = 2, lz4 = 3, zstd = 4 };

/// Kafka's topic-level keys as plain values with Kafka's defaults. The table of keys, ranges and texts is elsewhere; a
/// partition takes a changed one live (`Partition::set_config`).
struct LogConfig {
  static constexpr std::int64_t unlimited = -1;

  std::int32_t segment_bytes = 1 << 30;
  std::int64_t segment_ms = 7LL * 24 * 3600 * 1000;
  std::int64_t segment_jitter_ms = 0;
  std::int32_t segment_index_bytes = 10 << 20;
  std::int32_t index_interval_bytes = 4096;
  std::int64_t retention_bytes = unlimited;
  std::int64_t retention_ms = 7LL * 24 * 3600 * 1000;
  std::int32_t max_message_bytes = 1048588;
  std::int64_t flush_messages = std::numeric_limits<std::int64_t>::max();
  std::int64_t flush_ms = std::numeric_limits<std::int64_t>::max();
  bool cleanup_delete = true;
  bool cleanup_compact = false;
  LogCompression compression_type = LogCompression::producer;
  std::int32_t compression_gzip_level = -1;
  std::int32_t compression_lz4_level = 9;
  std::int32_t compression_zstd_level = 3;
  TimestampType timestamp_type = TimestampType::create_time;
  std::int64_t timestamp_before_max_ms = std::numeric_limits<std::int64_t>::max();
  std::int64_t timestamp_after_max_ms = 3600 * 1000;
  std::int64_t min_compaction_lag_ms = 0;
  std::int64_t max_compaction_lag_ms = std::numeric_limits<std::int64_t>::max();
  std::int64_t delete_retention_ms = 24LL * 3600 * 1000;
  double min_cleanable_dirty_ratio = 0.5;
  std::int64_t file_delete_delay_ms = 60'000;
  std::int32_t min_insync_replicas = 1;
  bool preallocate = false;                     ///< accepted, without effect: a file never ends in zeros
  bool unclean_leader_election_enable = false;  ///< replication's; the log does not look at it

  bool operator==(const LogConfig&) const = default;
};

/// Broker-wide settings of the log.
struct LogLimits {
  std::int64_t producer_id_expiration_ms = 24LL * 3600 * 1000;  ///< `producer.id.expiration.ms`
  std::uint64_t unwritten_bytes_max = 64ULL
                                      << 20;  ///< a partition's bytes not yet in its file; appends above it are refused
  /// `max.decompressed.batch.bytes`; a topic's max.message.bytes where that is more. What is stored stays readable when
  /// it falls: `stored_batch_unpacked_max` holds for that.
  std::size_t decompressed_batch_bytes_max = 64ULL << 20;
  std::uint64_t journal_bytes = 16ULL << 20;  ///< `log.journal.bytes`, one ring's; 0: no journal
  std::uint32_t read_ahead_bytes = 1U << 20;  ///< loaded from a segment at once when reading sequentially
};

}  // namespace ciuic::broker
