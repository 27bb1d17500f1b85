// KIP-107 · v2 flexible. The log starts later; segments go as retention lets them. timeout_ms is for followers that
// have to agree: a broker alone has none to wait for, and answers 0 ms at once as Apache does.
#include "transport/kafka/messages/delete_records.h"

#include "broker/api/apis.h"
#include "broker/api/async.h"
#include "broker/metadata/internal_topics.h"

namespace ciuic::broker::api {
namespace {

using Moved = ResultOf<kafka::Offset, kafka::Error>;

Awaitable<Moved> move_start(std::shared_ptr<Partition> partition, kafka::Offset before) {
  co_return co_await await_callback<Moved>([&](auto done) {
    partition->executor().post([partition, before, done = std::move(done)]() mutable {
      if (!partition->config().cleanup_delete)
        return done(kafka::Error(ErrorCode::policy_violation, "cleanup.policy of the topic lacks delete"));
      partition->delete_records(before, std::move(done));
    });
  });
}

}  // namespace

Awaitable<kafka::DeleteRecordsResponse> delete_records(RequestContext& context, kafka::DeleteRecordsRequest request) {
  kafka::DeleteRecordsResponse response;
  const auto image = context.image();
  for (const auto& topic : request.topics) {
    auto& topic_answer = response.topics.emplace_back();
    topic_answer.name = topic.name;
    const auto* known = image->topic(topic.name);
    for (const auto& wanted : topic.partitions) {
      auto& answer = topic_answer.partitions.emplace_back();
      answer.partition_index = wanted.partition_index;
      answer.low_watermark = -1;
      const auto index = kafka::PartitionIndex(wanted.partition_index);
      const auto* state = known == nullptr ? nullptr : known->partition(index);
      auto partition = state == nullptr ? nullptr : context.broker.partitions->find(known->id, index);
      if (!context.allowed(Operation::remove, Resource::topic, topic.name)) {
        answer.error_code = ErrorCode::topic_authorization_failed;
      } else if (is_internal_topic(topic.name)) {
        answer.error_code = ErrorCode::invalid_topic_exception;
      } else if (state == nullptr) {
        answer.error_code = ErrorCode::unknown_topic_or_partition;
      } else if (!partition) {
        answer.error_code = ErrorCode::not_leader_or_follower;
      } else {
        const auto moved = co_await move_start(std::move(partition), kafka::Offset(wanted.offset));
        if (moved)
          answer.low_watermark = moved->value;
        else
          answer.error_code = moved.error().code;
      }
    }
  }
  co_return response;
}

}  // namespace ciuic::broker::api
