#pragma once
#include <cstdint>

#include "broker/settings/broker_config.h"

namespace ciuic::broker {

/// What the group coordinator reads of the broker's settings, with Kafka's defaults.
struct GroupSettings {
  std::int32_t session_timeout_min_ms = 6000;
  std::int32_t session_timeout_max_ms = 1'800'000;
  std::int32_t initial_rebalance_delay_ms = 3000;
  std::int32_t size_max = 0x7FFFFFFF;
  std::int32_t offset_metadata_bytes_max = 4096;
  std::int64_t offsets_retention_ms = 7LL * 24 * 3600 * 1000;
  std::int64_t offsets_retention_check_interval_ms = 600'000;
  /// A new member that waits in JoinGroup is given up after this (Apache's group.consumer… constant: five minutes).
  std::int32_t new_member_join_timeout_ms = 300'000;

  [[nodiscard]] static GroupSettings from(const BrokerConfig& config) {
    GroupSettings settings;
    settings.session_timeout_min_ms = config.group_session_timeout_min_ms;
    settings.session_timeout_max_ms = config.group_session_timeout_max_ms;
    settings.initial_rebalance_delay_ms = config.group_initial_rebalance_delay_ms;
    settings.size_max = config.group_size_max;
    settings.offset_metadata_bytes_max = config.offset_metadata_bytes_max;
    settings.offsets_retention_ms = config.offsets_retention_minutes * 60 * 1000;
    settings.offsets_retention_check_interval_ms = config.offsets_retention_check_interval_ms;
    return settings;
  }
};

}  // namespace ciuic::broker
