#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "broker/log/log_config.h"

namespace ciuic::broker {

/// The broker-wide settings as plain values; `settings.h` has the table that fills them. Set at start, then read only.
struct BrokerConfig {
  std::int32_t node_id = 1;
  std::string listeners;
  std::string advertised_listeners;
  std::vector<std::string> log_dirs;
  std::string rack;
  std::string log_level;

  std::int32_t network_threads = 0;  // 0: one a core but one
  std::int32_t io_threads = 2;
  std::int32_t recovery_threads = 2;
  std::int32_t request_bytes_max = 0;
  std::int64_t queued_request_bytes_max = 0;
  std::int32_t connections_max = 0;
  std::int32_t connections_per_ip_max = 0;
  std::int64_t connection_idle_max_ms = 0;

  std::int32_t partitions_default = 1;
  std::int16_t replication_factor_default = 1;
  bool auto_create_topics = true;
  bool delete_topics = true;
  std::int32_t fetch_bytes_max = 0;
  std::int32_t fetch_session_slots = 0;
  std::int64_t retention_check_interval_ms = 0;
  std::int64_t checkpoint_interval_ms = 0;
  std::int64_t cleaner_backoff_ms = 0;
  bool cleaner_enable = true;
  std::int64_t producer_id_expiration_ms = 0;

  std::int32_t group_session_timeout_min_ms = 0;
  std::int32_t group_session_timeout_max_ms = 0;
  std::int32_t group_initial_rebalance_delay_ms = 0;
  std::int32_t group_size_max = 0;
  std::int32_t offset_metadata_bytes_max = 0;
  std::int32_t offsets_partitions = 50;
  std::int16_t offsets_replication_factor = 1;
  std::int32_t offsets_segment_bytes = 0;
  std::int64_t offsets_retention_minutes = 0;
  std::int64_t offsets_retention_check_interval_ms = 0;

  std::int64_t memory_bytes = 0;
  std::int64_t memory_chunk_bytes_max = 0;
  std::int32_t journal_bytes = 0;
  std::int32_t decompressed_batch_bytes_max = 0;
  std::int32_t read_ahead_bytes = 0;
  bool onesided_enable = true;
  std::string onesided_listen;
  std::vector<std::string> onesided_providers;
  bool rdma_trusted_readers = false;
  std::int32_t onesided_lease_ms = 0;
  std::string onesided_runtime_dir;
  std::string onesided_socket_mode;  // octal
  std::int32_t onesided_sessions_per_principal_max = 0;
  std::int32_t onesided_grants_per_session_max = 0;

  /// What a topic without a config of its own has.
  LogConfig log;

  bool operator==(const BrokerConfig&) const = default;
};

}  // namespace ciuic::broker
