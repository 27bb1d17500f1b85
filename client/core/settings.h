#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "ciuic/result.h"
#include "ciuic/types.h"
#include "transport/kafka/compression.h"
#include "transport/kafka/types.h"

namespace ciuic::client::core {

struct Address {
  std::string host{};
  std::uint16_t port = 9092;
  auto operator<=>(const Address&) const = default;
};
/// "host:port" or "[::1]:port". Errors: invalid_config.
[[nodiscard]] Result<Address> parse_address(const std::string& text);

enum class Transport : std::int8_t { automatic, rdma, tcp };
enum class OffsetReset : std::int8_t { earliest, latest, none };
/// Names as librdkafka's `partitioner`.
enum class Partitioner : std::int8_t { murmur2_random, murmur2, consistent_random, consistent, random };

/// What every client needs. Each member is one row of the table in settings.cpp; durations are in ms.
struct CommonSettings {
  std::vector<Address> bootstrap{};
  std::string client_id{};
  std::int64_t request_timeout_ms = 0, connect_timeout_ms = 0, metadata_max_age_ms = 0;
  std::int64_t reconnect_backoff_ms = 0, reconnect_backoff_max_ms = 0, retry_backoff_ms = 0;
  std::int64_t answer_bytes_max = 0;
  bool auto_create_topics = false;
};

struct ConsumerSettings : CommonSettings {
  Transport transport = Transport::automatic;
  std::vector<std::string> providers{};  ///< empty: all of this build
  std::string onesided_source{};         ///< empty: the route decides
  std::string group_id{}, group_instance_id{};
  std::vector<std::string> assignors{};
  std::int64_t session_timeout_ms = 0, heartbeat_interval_ms = 0, max_poll_interval_ms = 0;
  bool auto_commit = false;
  std::int64_t auto_commit_interval_ms = 0;
  OffsetReset offset_reset = OffsetReset::latest;
  kafka::Isolation isolation = kafka::Isolation::read_uncommitted;
  std::int64_t fetch_min_bytes = 0, fetch_max_wait_ms = 0, fetch_max_bytes = 0, partition_fetch_bytes = 0;
  bool check_crcs = true;
  std::int64_t decompressed_batch_bytes_max = 0;
  std::int64_t onesided_read_bytes = 0, onesided_grant_bytes = 0;
};

struct ProducerSettings : CommonSettings {
  std::int16_t acks = -1;
  bool idempotence = true;
  kafka::Codec codec = kafka::Codec::none;
  std::int64_t compression_level = 0;  ///< kafka::default_level: the codec's own
  std::int64_t linger_ms = 0, batch_bytes = 0, buffer_bytes = 0, request_bytes_max = 0;
  std::int64_t max_block_ms = 0, delivery_timeout_ms = 0, in_flight_max = 0;
  Partitioner partitioner = Partitioner::murmur2_random;
};

/// Errors: invalid_config, naming key, value and what is allowed. Unknown keys are errors too, those of the other kind
/// of client are not (one configuration may serve both).
[[nodiscard]] Result<ConsumerSettings> consumer_settings(const Config& config);
[[nodiscard]] Result<ProducerSettings> producer_settings(const Config& config);

}  // namespace ciuic::client::core
