#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/bytes.h"
#include "transport/base/strong.h"
#include "transport/kafka/error_code.h"

namespace ciuic::kafka {

using Offset = Strong<std::int64_t, struct OffsetTag>;
using LeaderEpoch = Strong<std::int32_t, struct LeaderEpochTag>;
using ProducerId = Strong<std::int64_t, struct ProducerIdTag>;
using ProducerEpoch = Strong<std::int16_t, struct ProducerEpochTag>;
using PartitionIndex = Strong<std::int32_t, struct PartitionIndexTag>;

inline constexpr Offset no_offset{-1};
inline constexpr LeaderEpoch no_leader_epoch{-1};
inline constexpr ProducerId no_producer_id{-1};

/// 16 bytes, big-endian as on the wire. All zero: none (Kafka's ZERO_UUID).
struct Uuid {
  std::array<std::uint8_t, 16> bytes{};

  auto operator<=>(const Uuid&) const = default;
  [[nodiscard]] bool is_zero() const { return *this == Uuid{}; }
  /// URL-safe base64 without padding, 22 characters, as Kafka prints ids.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] static std::optional<Uuid> parse(std::string_view text);
  /// Random (RFC 4122 version 4), from the kernel; never zero, never starting with '-' when printed, as Kafka's.
  [[nodiscard]] static Uuid random();
};
using TopicId = Uuid;

struct TopicPartition {
  std::string topic{};
  PartitionIndex partition{};
  auto operator<=>(const TopicPartition&) const = default;
};

struct PartitionId {
  TopicId topic{};
  PartitionIndex partition{};
  auto operator<=>(const PartitionId&) const = default;
};

enum class Isolation : std::int8_t { read_uncommitted = 0, read_committed = 1 };

}  // namespace ciuic::kafka

template <>
struct std::hash<ciuic::kafka::Uuid> {
  std::size_t operator()(const ciuic::kafka::Uuid& id) const noexcept;
};
template <>
struct std::hash<ciuic::kafka::TopicPartition> {
  std::size_t operator()(const ciuic::kafka::TopicPartition& at) const noexcept {
    return std::hash<std::string>{}(at.topic) * 31 + static_cast<std::size_t>(at.partition.value);
  }
};
template <>
struct std::hash<ciuic::kafka::PartitionId> {
  std::size_t operator()(const ciuic::kafka::PartitionId& at) const noexcept {
    return std::hash<ciuic::kafka::Uuid>{}(at.topic) * 31 + static_cast<std::size_t>(at.partition.value);
  }
};
