// v3 headers · v7 zstd · v8 record errors (KIP-467) · v9 flexible · v13 topic ids (KIP-516). v0–2 were removed with
// message formats 0 and 1. Stop 3 of docs/tour.md; next: broker/log/partition.h
#include "transport/kafka/messages/produce.h"

#include <atomic>

#include "broker/api/apis.h"
#include "broker/api/async.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker::api {
namespace {

using Response = kafka::ProduceResponse;
using PartitionAnswer = Response::PartitionProduceResponse;

/// One request's appends: each partition answers on its own shard, the last one resumes the request.
struct Job {
  Response response;
  std::atomic<std::size_t> left{1};  // one for the request itself, so that it cannot end while parts are being started
  std::function<void(bool)> resume;
  std::shared_ptr<const kafka::net::RequestBytes> bytes;  // the batches lie in them until they are appended

  void part_done() {
    if (left.fetch_sub(1) == 1) resume(true);
  }
};

void refuse(PartitionAnswer& answer, ErrorCode code, std::string text = {}) {
  answer.error_code = code;
  answer.base_offset = -1;
  if (!text.empty()) answer.error_message = std::move(text);
}

void appended(PartitionAnswer& answer, const ResultOf<AppendResult, AppendError>& result) {
  if (result) {
    answer.base_offset = result->base_offset.value;
    answer.log_append_time_ms = result->log_append_time_ms;
    answer.log_start_offset = result->log_start_offset.value;
    return;
  }
  const AppendError error = result.error();
  refuse(answer, error.error.code, error.error.text);
  answer.log_start_offset = error.log_start_offset.value;
  for (const auto& record : error.records) answer.record_errors.push_back({record.batch_index, record.text});
}

/// A batch with the transactional bit; whether it is a good one is seen later.
bool transactional(const kafka::Records& records) {
  if (records.is_null() || records.empty()) return false;
  const auto batch = kafka::RecordBatchView::parse(records.single());
  return batch && batch->transactional();
}

}  // namespace

Awaitable<std::optional<Response>> produce(RequestContext& context, kafka::ProduceRequest request) {
  const auto image = context.image();
  auto job = std::make_shared<Job>();
  job->bytes = context.bytes;
  const bool acks_known = request.acks >= -1 && request.acks <= 1;
  const auto version = context.version();

  // All answers are laid out first: parts hold pointers into them.
  struct Part {
    std::shared_ptr<Partition> partition;
    kafka::LeaderEpoch leader_epoch;
    Bytes batch;
    PartitionAnswer* answer;
  };
  std::vector<Part> parts;
  job->response.responses.reserve(request.topic_data.size());
  for (auto& topic_data : request.topic_data) {
    auto& topic_answer = job->response.responses.emplace_back();
    topic_answer.name = topic_data.name;
    topic_answer.topic_id = topic_data.topic_id;
    const auto* topic = version >= 13 ? image->topic(topic_data.topic_id) : image->topic(topic_data.name);
    topic_answer.partition_responses.reserve(topic_data.partition_data.size());
    for (auto& data : topic_data.partition_data) {
      auto& answer = topic_answer.partition_responses.emplace_back();
      answer.index = data.index;
      if (!acks_known) {
        refuse(answer, ErrorCode::invalid_required_acks);
      } else if (topic == nullptr) {
        refuse(answer, version >= 13 ? ErrorCode::unknown_topic_id : ErrorCode::unknown_topic_or_partition);
      } else if (!context.allowed(Operation::write, Resource::topic, topic->name)) {
        refuse(answer, ErrorCode::topic_authorization_failed);
      } else if (const auto* state = topic->partition(kafka::PartitionIndex(data.index)); state == nullptr) {
        refuse(answer, ErrorCode::unknown_topic_or_partition);
      } else if (auto partition = context.broker.partitions->find(topic->id, kafka::PartitionIndex(data.index));
                 !partition) {
        refuse(answer, ErrorCode::not_leader_or_follower);
      } else if (transactional(data.records)) {
        // As InitProducerId says it. Appended, it would hold the last stable offset for ever: nobody ends it.
        refuse(answer, ErrorCode::transactional_id_authorization_failed);
      } else if (data.records.is_null() || data.records.empty()) {
        refuse(answer, ErrorCode::invalid_record, "a produce request has no record batch for this partition");
      } else if (const auto batch = data.records.single();
                 version < 7 && kafka::magic_of(batch) == 2 && batch.size() > kafka::batch_at::attributes + 1 &&
                 (static_cast<int>(batch[kafka::batch_at::attributes + 1]) & 7) ==
                     static_cast<int>(kafka::Codec::zstd)) {
        refuse(answer, ErrorCode::unsupported_compression_type,
               "zstd needs Produce version 7 or later; use a newer client");
      } else {
        parts.push_back({std::move(partition), state->leader_epoch, batch, &answer});
      }
    }
  }
  if (!parts.empty()) {
    // Every append is on its way to its owner before this coroutine first suspends: a connection's next request
    // cannot overtake it (pitfall: several batches in flight processed in parallel).
    job->left.fetch_add(parts.size());
    co_await await_callback<bool>([&job, &parts, &request](auto resume) {
      job->resume = std::move(resume);
      for (auto& part : parts) {
        auto& owner = part.partition->executor();
        auto append = [job, part = std::move(part), acks = request.acks] {
          const auto needed = part.partition->config().min_insync_replicas;
          if (acks == -1 && needed > 1) {  // a broker alone is the whole ISR
            refuse(*part.answer, ErrorCode::not_enough_replicas);
            return job->part_done();
          }
          part.partition->append(part.batch, {AppendOrigin::client, part.leader_epoch},
                                 [job, answer = part.answer](ResultOf<AppendResult, AppendError> result) {
                                   appended(*answer, result);
                                   job->part_done();
                                 });
        };
        owner.post(std::move(append));
      }
      job->part_done();
    });
  }
  if (request.acks == 0) {
    // No answer can tell of an error; a closed connection makes the client look again (as Apache does).
    for (const auto& topic : job->response.responses) {
      for (const auto& answer : topic.partition_responses) {
        if (answer.error_code != ErrorCode::none) {
          log::bounded(log::Level::info, "api",
                       "produce with acks=0 failed, connection closed peer={} topic={} partition={} error={}",
                       context.connection->peer(), topic.name, answer.index, kafka::name(answer.error_code));
          context.connection->close();
          co_return std::nullopt;
        }
      }
    }
    co_return std::nullopt;
  }
  co_return std::move(job->response);
}

}  // namespace ciuic::broker::api
