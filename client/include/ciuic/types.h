#pragma once
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ciuic::client {

using Bytes = std::span<const std::byte>;
using Milliseconds = std::chrono::milliseconds;
[[nodiscard]] inline Bytes as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
[[nodiscard]] inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// `key=value` as given, with Kafka's (librdkafka's) names; docs/configuration.md lists them.
using Config = std::vector<std::pair<std::string, std::string>>;

struct TopicPartition {
  std::string topic{};
  std::int32_t partition = 0;
  auto operator<=>(const TopicPartition&) const = default;
};

/// Places that are not numbers.
inline constexpr std::int64_t offset_beginning = -2;  ///< the log start
inline constexpr std::int64_t offset_end = -1;        ///< the readable end by isolation.level
inline constexpr std::int64_t offset_stored = -1000;  ///< the group's committed offset, else auto.offset.reset

struct TopicPartitionOffset {
  std::string topic{};
  std::int32_t partition = 0;
  std::int64_t offset = offset_stored;
  std::string metadata{};  ///< only with commits
};

struct PartitionInfo {
  std::int32_t partition = 0;
  std::int32_t leader = -1;  ///< node id; -1: none now
  std::int32_t leader_epoch = -1;
  std::vector<std::int32_t> replicas{};
  std::vector<std::int32_t> in_sync{};
};
struct TopicInfo {
  std::string topic{};
  std::string topic_id{};  ///< as Kafka prints it; empty on brokers without topic ids
  std::vector<PartitionInfo> partitions{};
};

/// A named number. Counters only grow; a gauge says so in its name's last word.
struct Metric {
  std::string name{};   ///< ciuic_client_…
  std::string label{};  ///< what it is of: a reason, a path, topic/partition; may be empty
  std::int64_t value = 0;
};

}  // namespace ciuic::client
