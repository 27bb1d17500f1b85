// v2–v4 a retention of its own · v5 none · v6 leader epoch (KIP-320) · v7 static members (KIP-345) · v8 flexible ·
// v9 GROUP_ID_NOT_FOUND (KIP-848) · v10 topic ids (KIP-848).
#include "transport/kafka/messages/offset_commit.h"

#include <algorithm>

#include "broker/api/group_call.h"

namespace ciuic::broker::api {
namespace {

constexpr std::int16_t by_topic_id = 10;

}  // namespace

Awaitable<kafka::OffsetCommitResponse> offset_commit(RequestContext& context, kafka::OffsetCommitRequest request) {
  using Topic = kafka::OffsetCommitResponse::OffsetCommitResponseTopic;
  kafka::OffsetCommitResponse response;
  const auto refuse = [&response](const auto& topic, ErrorCode code) -> Topic& {
    auto& out = response.topics.emplace_back();
    out.name = topic.name;
    out.topic_id = topic.topic_id;
    for (const auto& partition : topic.partitions) out.partitions.push_back({partition.partition_index, code});
    return out;
  };
  if (!may(context, Operation::read, request.group_id)) {
    for (const auto& topic : request.topics) refuse(topic, ErrorCode::group_authorization_failed);
    co_return response;
  }
  const auto image = context.image();
  kafka::OffsetCommitRequest accepted = request;
  accepted.topics.clear();
  std::vector<Topic> unknown_partitions;
  for (auto& topic : request.topics) {
    const bool by_id = context.version() >= by_topic_id;
    const auto* known = by_id ? image->topic(topic.topic_id) : image->topic(topic.name);
    if (by_id && known != nullptr) topic.name = known->name;
    if (known != nullptr && !context.allowed(Operation::read, Resource::topic, topic.name)) {
      refuse(topic, ErrorCode::topic_authorization_failed);
    } else if (known == nullptr) {
      const bool hidden = !by_id && !context.allowed(Operation::read, Resource::topic, topic.name);
      refuse(topic, hidden  ? ErrorCode::topic_authorization_failed
                    : by_id ? ErrorCode::unknown_topic_id
                            : ErrorCode::unknown_topic_or_partition);
    } else {
      topic.topic_id = known->id;
      std::vector<kafka::OffsetCommitRequest::OffsetCommitRequestPartition> good;
      Topic bad;
      bad.name = topic.name;
      bad.topic_id = topic.topic_id;
      for (auto& partition : topic.partitions) {
        if (known->partition(kafka::PartitionIndex(partition.partition_index)) != nullptr) {
          good.push_back(std::move(partition));
        } else {
          bad.partitions.push_back({partition.partition_index, ErrorCode::unknown_topic_or_partition});
        }
      }
      if (!bad.partitions.empty()) unknown_partitions.push_back(std::move(bad));
      topic.partitions = std::move(good);
      if (!topic.partitions.empty()) accepted.topics.push_back(std::move(topic));
    }
  }
  if (!accepted.topics.empty()) {
    auto done = co_await await_callback<kafka::OffsetCommitResponse>([&context, &accepted](auto answer) {
      context.broker.groups->commit(group_caller(context), std::move(accepted), std::move(answer));
    });
    for (auto& topic : done.topics) response.topics.push_back(std::move(topic));
  }
  for (auto& bad : unknown_partitions) {
    const auto same = [&](const Topic& topic) { return topic.name == bad.name; };
    const auto found = std::find_if(response.topics.begin(), response.topics.end(), same);
    if (found == response.topics.end()) {
      response.topics.push_back(std::move(bad));
    } else {
      found->partitions.insert(found->partitions.end(), bad.partitions.begin(), bad.partitions.end());
    }
  }
  co_return response;
}

}  // namespace ciuic::broker::api
