// __consumer_offsets' records to bytes and back. Not here: batches (group_log.cpp) and what the records do.
#include "broker/group/group_records.h"

#include <utility>

#include "transport/kafka/codec.h"
#include "transport/kafka/wire.h"

namespace ciuic::broker {
namespace {

constexpr std::int16_t group_value_version = 3;
constexpr std::int16_t offset_value_version = 3;
constexpr std::int16_t offset_value_version_with_expiry = 1;
constexpr std::int16_t legacy_offset_key = 0;  // Kafka before 0.9; the same fields as 1

/// A type or version in front of a message's bytes.
template <class M>
Buffer tagged(std::int16_t tag, const M& message, std::int16_t version) {
  Buffer out;
  kafka::WireWriter(out).number(tag);
  const auto body = kafka::encode(message, version).flatten();
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

Buffer offset_key(const std::string& group, const kafka::TopicPartition& at) {
  kafka::OffsetCommitKey key;
  key.group = group;
  key.topic = at.topic;
  key.partition = at.partition.value;
  return tagged(kafka::OffsetCommitKey::api_key, key, 0);
}

Buffer group_key(const std::string& group) {
  kafka::GroupMetadataKey key;
  key.group = group;
  return tagged(kafka::GroupMetadataKey::api_key, key, 0);
}

/// A value behind its version; nothing if it is not one.
template <class M>
std::optional<M> read_value(Bytes bytes) {
  kafka::WireReader in(bytes);
  const auto version = in.number<std::int16_t>();
  if (!in.ok() || !M::valid_versions.holds(version)) return std::nullopt;
  auto value = kafka::decode<M>(in.rest(), version);
  return value ? std::optional<M>(std::move(*value)) : std::nullopt;
}

}  // namespace

CoordinatorRecord offset_record(const std::string& group, const kafka::TopicPartition& at,
                                const CommittedOffset& offset) {
  kafka::OffsetCommitValue value;
  value.offset = offset.offset.value;
  value.leader_epoch = offset.leader_epoch.value;
  value.metadata = offset.metadata;
  value.commit_timestamp = offset.commit_ms;
  value.expire_timestamp = offset.expire_ms.value_or(-1);
  value.topic_id = offset.topic_id;
  const auto version = offset.expire_ms ? offset_value_version_with_expiry : offset_value_version;
  return {offset_key(group, at), tagged(version, value, version)};
}

CoordinatorRecord offset_tombstone(const std::string& group, const kafka::TopicPartition& at) {
  return {offset_key(group, at), std::nullopt};
}

CoordinatorRecord group_record(const std::string& group, const kafka::GroupMetadataValue& value) {
  return {group_key(group), tagged(group_value_version, value, group_value_version)};
}

CoordinatorRecord group_tombstone(const std::string& group) { return {group_key(group), std::nullopt}; }

std::optional<std::variant<OffsetRead, GroupRead, OtherRead>> read_record(Bytes key, std::optional<Bytes> value) {
  kafka::WireReader in(key);
  const auto type = in.number<std::int16_t>();
  if (!in.ok()) return std::nullopt;
  if (type == kafka::OffsetCommitKey::api_key || type == legacy_offset_key) {
    auto parsed = kafka::decode<kafka::OffsetCommitKey>(in.rest(), 0);
    if (!parsed) return std::nullopt;
    OffsetRead out{
        std::move(parsed->group), {std::move(parsed->topic), kafka::PartitionIndex(parsed->partition)}, std::nullopt};
    if (!value) return out;
    auto stored = read_value<kafka::OffsetCommitValue>(*value);
    if (!stored) return std::nullopt;
    CommittedOffset offset;
    offset.offset = kafka::Offset(stored->offset);
    offset.leader_epoch = kafka::LeaderEpoch(stored->leader_epoch);
    offset.metadata = std::move(stored->metadata);
    offset.commit_ms = stored->commit_timestamp;
    if (stored->expire_timestamp != -1) offset.expire_ms = stored->expire_timestamp;
    offset.topic_id = stored->topic_id;
    out.offset = std::move(offset);
    return out;
  }
  if (type == kafka::GroupMetadataKey::api_key) {
    auto parsed = kafka::decode<kafka::GroupMetadataKey>(in.rest(), 0);
    if (!parsed) return std::nullopt;
    GroupRead out{std::move(parsed->group), std::nullopt};
    if (!value) return out;
    out.value = read_value<kafka::GroupMetadataValue>(*value);
    if (!out.value) return std::nullopt;
    return out;
  }
  return OtherRead{};
}

}  // namespace ciuic::broker
