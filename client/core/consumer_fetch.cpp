// Fetch over TCP: one request a broker at a time, answers read where the socket put them.
#include <fmt/format.h>

#include <algorithm>

#include "client/core/consumer_impl.h"
#include "client/core/find_from.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::client {

using core::Assigned;
using core::Co;
using core::failure;
using core::Lane;
using kafka::ErrorCode;

Co<void> Consumer::Impl::fetch(std::int32_t node, std::vector<ReadPlan> plan) {
  bool ids = false;
  std::optional<Error> trouble;
  auto connection = co_await cluster_.connection(node, Lane::fetch);
  core::Answer<kafka::FetchResponse> answer;
  if (connection) {
    kafka::FetchRequest request;
    request.max_wait_ms = static_cast<std::int32_t>(settings_.fetch_max_wait_ms);
    request.min_bytes = static_cast<std::int32_t>(settings_.fetch_min_bytes);
    request.max_bytes = static_cast<std::int32_t>(settings_.fetch_max_bytes);
    request.isolation_level = static_cast<std::int8_t>(settings_.isolation);
    for (const auto& one : plan) {
      auto topic = std::find_if(request.topics.begin(), request.topics.end(),
                                [&](const auto& each) { return each.topic == one.key.first.topic; });
      if (topic == request.topics.end()) {
        topic = request.topics.emplace(request.topics.end());
        topic->topic = one.key.first.topic;
        topic->topic_id = one.topic_id;
      }
      auto& partition = topic->partitions.emplace_back();
      partition.partition = one.key.first.partition;
      partition.fetch_offset = one.offset;
      partition.partition_max_bytes = static_cast<std::int32_t>(settings_.partition_fetch_bytes);
    }
    // From version 13 topics are named by id alone.
    constexpr std::int16_t by_name = 12, by_id = 17;
    const auto newest =
        (*connection)->version(kafka::FetchRequest::api_key, {kafka::FetchRequest::valid_versions.min, by_id});
    ids = newest.value_or(0) > by_name &&
          std::all_of(plan.begin(), plan.end(), [](const ReadPlan& one) { return !one.topic_id.is_zero(); });
    counters_.fetches.fetch_add(1, std::memory_order_relaxed);
    const auto timeout = Milliseconds(settings_.request_timeout_ms + settings_.fetch_max_wait_ms);
    auto got = co_await (*connection)->call<kafka::FetchResponse>(std::move(request), timeout, ids ? by_id : by_name);
    if (got) {
      answer = std::move(*got);
      if (answer.body.error_code != ErrorCode::none)
        trouble = core::broker_error(answer.body.error_code, fmt::format("Fetch from broker {}", node));
    } else {
      trouble = got.error();
    }
  } else {
    trouble = connection.error();
  }
  nodes_[node].fetching = false;
  {
    const std::scoped_lock lock(mutex_);
    std::size_t in_topics = 0, in_partitions = 0;
    for (const auto& asked : plan) {
      auto* const one = find(asked.key);
      if (one == nullptr) continue;
      one->asking = false;
      if (trouble) {
        partition_failed(*one, *trouble);
        continue;
      }
      auto* const topic = core::find_from(answer.body.responses, in_topics, [&](const auto& here) {
        return ids ? here.topic_id == asked.topic_id : here.topic == asked.key.first.topic;
      });
      if (topic == nullptr) continue;
      auto* const data = core::find_from(topic->partitions, in_partitions, [&](const auto& here) {
        return here.partition_index == asked.key.first.partition;
      });
      if (data != nullptr) take_answer(*one, *data, answer.memory);
    }
    wake_poll();
  }
  plan_again_.notify();
}

void Consumer::Impl::take_answer(Assigned& one, kafka::FetchResponse::PartitionData& data,
                                 const std::shared_ptr<const std::byte[]>& memory) {
  switch (data.error_code) {
    case ErrorCode::none:
      break;
    case ErrorCode::offset_out_of_range:
      return reset_offset(one, "the broker answers OFFSET_OUT_OF_RANGE");
    default:
      return partition_failed(one, core::broker_error(data.error_code, core::to_text(one.at)));
  }
  one.high_watermark = data.high_watermark;
  one.last_stable_offset = data.last_stable_offset;
  core::Fetched fetched;
  fetched.next_offset = one.fetch_position;
  auto rest = data.records.single();
  while (!rest.empty()) {
    const auto batch = kafka::RecordBatchView::parse(rest);
    if (!batch) {
      if (batch.error().code == ErrorCode::unsupported_for_message_format) {
        one.error = failure(Trouble::unsupported,
                            core::to_text(one.at) +
                                fmt::format(" at offset {}: records in a format before magic 2", one.fetch_position));
        one.not_before = loop_.clock().now() + Milliseconds(1000);
      }
      break;  // the last batch may be cut by the size asked for
    }
    const bool sane = batch->last_offset_delta() >= 0 && batch->last_offset().value >= batch->base_offset().value &&
                      batch->next_offset().value > 0;
    if (!sane || (settings_.check_crcs && !batch->crc_valid())) {
      one.error = failure(Trouble::corrupt,
                          core::to_text(one.at) +
                              fmt::format(" at offset {}: the batch does not match its checksum; asking for it again",
                                          batch->base_offset().value),
                          true);
      one.not_before = loop_.clock().now() + Milliseconds(settings_.retry_backoff_ms);
      break;
    }
    if (batch->last_offset().value >= one.fetch_position) {
      fetched.batches.push_back(batch->bytes());
      fetched.bytes += batch->size();
      fetched.next_offset = batch->next_offset().value;
    }
    rest = rest.subspan(batch->size());
  }
  if (fetched.batches.empty()) return;
  if (settings_.isolation == kafka::Isolation::read_committed && data.aborted_transactions) {
    for (const auto& one_aborted : *data.aborted_transactions) {
      fetched.aborted.push_back({kafka::ProducerId(one_aborted.producer_id), kafka::Offset(one_aborted.first_offset)});
    }
  }
  fetched.memory = memory;
  one.served = ++answers_;
  one.fetch_position = fetched.next_offset;
  one.fetched_bytes += fetched.bytes;
  one.fetched.push_back(std::move(fetched));
}

}  // namespace ciuic::client
