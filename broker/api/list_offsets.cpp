// v1 one offset (KIP-79) · v2 isolation · v4 leader epoch · v7 max timestamp (KIP-734) · v8 local · v9 tiered ·
// v10 timeout (KIP-1075) · v11 earliest pending upload (KIP-1023; as tiered: none here).
#include "transport/kafka/messages/list_offsets.h"

#include <atomic>

#include "broker/api/apis.h"
#include "broker/api/async.h"

namespace ciuic::broker::api {
namespace {
// The answer to both "latest tiered" and "earliest pending upload" of a log without tiers.
constexpr std::int64_t earliest_pending_upload = -6;
constexpr std::int64_t latest_tiered = -5;
}  // namespace

Awaitable<kafka::ListOffsetsResponse> list_offsets(RequestContext& context, kafka::ListOffsetsRequest request) {
  kafka::ListOffsetsResponse response;
  const auto image = context.image();
  const auto isolation =
      request.isolation_level == 1 ? kafka::Isolation::read_committed : kafka::Isolation::read_uncommitted;
  for (const auto& topic : request.topics) {
    auto& topic_answer = response.topics.emplace_back();
    topic_answer.name = topic.name;
    for (const auto& wanted : topic.partitions) {
      auto& answer = topic_answer.partitions.emplace_back();
      answer.partition_index = wanted.partition_index;
      const auto* known = image->topic(topic.name);
      const auto index = kafka::PartitionIndex(wanted.partition_index);
      const auto* state = known == nullptr ? nullptr : known->partition(index);
      const auto partition = state == nullptr ? nullptr : context.broker.partitions->find(known->id, index);
      if (!context.allowed(Operation::describe, Resource::topic, topic.name)) {
        answer.error_code = ErrorCode::topic_authorization_failed;
      } else if (state == nullptr) {
        answer.error_code = ErrorCode::unknown_topic_or_partition;
      } else if (!partition) {
        answer.error_code = ErrorCode::not_leader_or_follower;
      } else if (wanted.current_leader_epoch >= 0 && wanted.current_leader_epoch != state->leader_epoch.value) {
        answer.error_code = wanted.current_leader_epoch < state->leader_epoch.value ? ErrorCode::fenced_leader_epoch
                                                                                    : ErrorCode::unknown_leader_epoch;
      } else if (wanted.timestamp < earliest_pending_upload) {
        answer.error_code = ErrorCode::unsupported_version;
      } else {
        const auto timestamp = wanted.timestamp == earliest_pending_upload ? latest_tiered : wanted.timestamp;
        const auto found = co_await await_callback<ResultOf<OffsetAtTime, kafka::Error>>([&](auto done) {
          partition->executor().post([partition, timestamp, isolation, done = std::move(done)]() mutable {
            partition->offset_for_time(timestamp, isolation, std::move(done));
          });
        });
        if (!found) {
          answer.error_code = found.error().code;
        } else {
          answer.timestamp = found->timestamp;
          answer.offset = found->offset.value;
          answer.leader_epoch = found->leader_epoch.value;
        }
      }
    }
  }
  co_return response;
}

}  // namespace ciuic::broker::api
