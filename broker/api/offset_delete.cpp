// v0 (KIP-496).
#include "transport/kafka/messages/offset_delete.h"

#include "broker/api/group_call.h"

namespace ciuic::broker::api {

Awaitable<kafka::OffsetDeleteResponse> offset_delete(RequestContext& context, kafka::OffsetDeleteRequest request) {
  kafka::OffsetDeleteResponse response;
  if (!may(context, Operation::remove, request.group_id)) {
    response.error_code = ErrorCode::group_authorization_failed;
    co_return response;
  }
  const auto image = context.image();
  std::vector<kafka::OffsetDeleteResponse::OffsetDeleteResponseTopic> refused;
  std::vector<kafka::OffsetDeleteRequest::OffsetDeleteRequestTopic> accepted;
  for (auto& topic : request.topics) {
    const bool allowed = context.allowed(Operation::read, Resource::topic, topic.name);
    const auto* known = allowed ? image->topic(topic.name) : nullptr;
    kafka::OffsetDeleteRequest::OffsetDeleteRequestTopic good;
    kafka::OffsetDeleteResponse::OffsetDeleteResponseTopic bad;
    good.name = bad.name = topic.name;
    for (const auto& partition : topic.partitions) {
      if (known != nullptr && known->partition(kafka::PartitionIndex(partition.partition_index)) != nullptr) {
        good.partitions.push_back(partition);
      } else {
        bad.partitions.push_back({partition.partition_index, allowed ? ErrorCode::unknown_topic_or_partition
                                                                     : ErrorCode::topic_authorization_failed});
      }
    }
    if (!good.partitions.empty()) accepted.push_back(std::move(good));
    if (!bad.partitions.empty()) refused.push_back(std::move(bad));
  }
  request.topics = std::move(accepted);
  response = co_await await_callback<kafka::OffsetDeleteResponse>(
      [&](auto answer) { context.broker.groups->remove_offsets(std::move(request), std::move(answer)); });
  if (response.error_code == ErrorCode::none) {
    for (auto& topic : refused) response.topics.push_back(std::move(topic));
  }
  co_return response;
}

}  // namespace ciuic::broker::api
