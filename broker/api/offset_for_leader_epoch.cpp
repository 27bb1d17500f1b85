// v2 current leader epoch (KIP-320) · v3 replica id · v4 flexible.
#include "transport/kafka/messages/offset_for_leader_epoch.h"

#include "broker/api/apis.h"
#include "broker/api/async.h"

namespace ciuic::broker::api {

Awaitable<kafka::OffsetForLeaderEpochResponse> offset_for_leader_epoch(RequestContext& context,
                                                                       kafka::OffsetForLeaderEpochRequest request) {
  kafka::OffsetForLeaderEpochResponse response;
  const auto image = context.image();
  for (const auto& topic : request.topics) {
    auto& topic_answer = response.topics.emplace_back();
    topic_answer.topic = topic.topic;
    const auto* known = image->topic(topic.topic);
    for (const auto& wanted : topic.partitions) {
      auto& answer = topic_answer.partitions.emplace_back();
      answer.partition = wanted.partition;
      const auto index = kafka::PartitionIndex(wanted.partition);
      const auto* state = known == nullptr ? nullptr : known->partition(index);
      const auto partition = state == nullptr ? nullptr : context.broker.partitions->find(known->id, index);
      if (!context.allowed(Operation::describe, Resource::topic, topic.topic)) {
        answer.error_code = ErrorCode::topic_authorization_failed;
      } else if (state == nullptr) {
        answer.error_code = ErrorCode::unknown_topic_or_partition;
      } else if (!partition) {
        answer.error_code = ErrorCode::not_leader_or_follower;
      } else if (partition->offline()) {
        answer.error_code = ErrorCode::kafka_storage_error;
      } else if (wanted.current_leader_epoch >= 0 && wanted.current_leader_epoch != state->leader_epoch.value) {
        answer.error_code = wanted.current_leader_epoch < state->leader_epoch.value ? ErrorCode::fenced_leader_epoch
                                                                                    : ErrorCode::unknown_leader_epoch;
      } else {
        const auto end = co_await await_callback<EpochEnd>([&](auto done) {
          partition->executor().post(
              [partition, epoch = kafka::LeaderEpoch(wanted.leader_epoch), done = std::move(done)]() mutable {
                done(partition->end_offset_for_epoch(epoch));
              });
        });
        answer.leader_epoch = end.leader_epoch.value;
        answer.end_offset = end.end_offset.value;
      }
    }
  }
  co_return response;
}

}  // namespace ciuic::broker::api
