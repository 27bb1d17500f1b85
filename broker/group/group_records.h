#pragma once
#include <optional>
#include <string>
#include <variant>

#include "broker/group/group_log.h"
#include "broker/group/group_offsets.h"
#include "transport/kafka/messages/coordinator_records.h"

/// __consumer_offsets' records as Apache writes them: the key begins with the record's type (1 an offset, 2 a group),
/// the value with its version. Versions written are Apache 4.x's: group 3, offset 3, or 1 with a retention of its own.
namespace ciuic::broker {

[[nodiscard]] CoordinatorRecord offset_record(const std::string& group, const kafka::TopicPartition& at,
                                              const CommittedOffset& offset);
[[nodiscard]] CoordinatorRecord offset_tombstone(const std::string& group, const kafka::TopicPartition& at);
[[nodiscard]] CoordinatorRecord group_record(const std::string& group, const kafka::GroupMetadataValue& value);
[[nodiscard]] CoordinatorRecord group_tombstone(const std::string& group);

/// A record read back. A value of nothing is a tombstone.
struct OffsetRead {
  std::string group;
  kafka::TopicPartition at;
  std::optional<CommittedOffset> offset;
};
struct GroupRead {
  std::string group;
  std::optional<kafka::GroupMetadataValue> value;
};
/// Of a type that classic groups do not have (KIP-848, share groups, or of a later Kafka).
struct OtherRead {};
/// Nothing: the bytes are no record of this log.
[[nodiscard]] std::optional<std::variant<OffsetRead, GroupRead, OtherRead>> read_record(Bytes key,
                                                                                        std::optional<Bytes> value);

}  // namespace ciuic::broker
