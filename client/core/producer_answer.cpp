// What becomes of a batch: written, sent again, split, given up; and the bytes it is sent as.
#include <fmt/format.h>

#include <algorithm>

#include "client/core/find_from.h"
#include "client/core/producer_impl.h"
#include "transport/base/log.h"
#include "transport/kafka/wire.h"

namespace ciuic::client {

using core::failure;
using core::PartitionQueue;
using core::ProducerBatch;
using core::ProducerIdentity;
using kafka::ErrorCode;

namespace {

std::string to_text(const PartitionQueue& queue) { return fmt::format("{}-{}", queue.topic, queue.partition); }

ErrorCode code_of(const Error& error) {
  return error.trouble == Trouble::broker ? static_cast<ErrorCode>(error.kafka_code) : ErrorCode::none;
}

/// Somebody else has our id, or we may not write at all: nothing that is sent again can succeed.
bool ends_producer(ErrorCode code) {
  return code == ErrorCode::invalid_producer_epoch || code == ErrorCode::producer_fenced ||
         code == ErrorCode::invalid_producer_id_mapping || code == ErrorCode::cluster_authorization_failed;
}

}  // namespace

// --- Bytes ---

/// Any thread: the batch is the caller's alone. Leaves `bytes` empty where the codec fails.
void Producer::Impl::finish(ProducerBatch& batch) const {
  if (batch.bytes) return;
  auto bytes = std::make_shared<Buffer>();
  if (settings_.codec == kafka::Codec::none) bytes->reserve(batch.builder->size());
  kafka::BatchHeader header;
  header.codec = settings_.codec;
  header.level = static_cast<int>(settings_.compression_level);
  if (batch.builder->finish(header, *bytes)) batch.bytes = std::move(bytes);
}

void Producer::Impl::stamp(ProducerBatch& batch) const {
  if (!settings_.idempotence) return;
  const MutableBytes bytes(*batch.bytes);
  const auto& identity = *batch.queue->identity;
  kafka::store_be(bytes.data() + kafka::batch_at::producer_id, identity.id);
  kafka::store_be(bytes.data() + kafka::batch_at::producer_epoch, identity.epoch);
  kafka::store_be(bytes.data() + kafka::batch_at::base_sequence, batch.base_sequence);
  kafka::set_crc(bytes);
}

/// REQUIRES: nothing of the partition is in flight.
void Producer::Impl::count_anew(PartitionQueue& queue, ProducerIdentity identity) {
  queue.identity = identity;
  queue.next_sequence = 0;
  for (const auto& batch : queue.unacked) {
    batch->base_sequence = queue.next_sequence;
    queue.next_sequence = core::sequence_after(queue.next_sequence, batch->records.size());
    stamp(*batch);
  }
}

/// Two batches out of one, in its place, with its sequences. False: it does not come apart.
bool Producer::Impl::split(const Batch& batch) {
  const auto count = batch->records.size();
  const auto view = kafka::RecordBatchView::parse(*batch->bytes);
  if (count < 2 || !view) return false;
  Buffer scratch;
  auto reader = kafka::RecordReader::open(*view, scratch, std::numeric_limits<std::int32_t>::max());
  if (!reader) return false;
  const auto half = count / 2;
  std::array<kafka::RecordBatchBuilder, 2> builders;
  std::vector<kafka::HeaderToWrite> headers;
  for (std::size_t i = 0; i < count; ++i) {
    const auto record = reader->next();
    if (!record) return false;
    headers.clear();
    auto encoded = record->headers;
    while (const auto header = kafka::next_header(encoded)) headers.push_back({header->key, header->value});
    kafka::RecordToWrite write;
    write.timestamp = record->timestamp;
    write.key = record->key;
    write.value = record->value;
    write.headers = headers;
    builders[i < half ? 0 : 1].add(write);
  }
  const auto second = accumulator_.split_off(*batch, count - half);
  if (settings_.idempotence) second->base_sequence = core::sequence_after(batch->base_sequence, half);
  batch->bytes.reset();
  auto& unacked = batch->queue->unacked;
  unacked.insert(std::find(unacked.begin(), unacked.end(), batch) + 1, second);
  batch->builder = std::make_unique<kafka::RecordBatchBuilder>(std::move(builders[0]));
  second->builder = std::make_unique<kafka::RecordBatchBuilder>(std::move(builders[1]));
  counters_.splits.fetch_add(1, std::memory_order_relaxed);
  for (const auto& part : {batch, second}) {
    finish(*part);
    part->builder.reset();
    if (!part->bytes) {
      give_up(part, failure(Trouble::invalid_state, "the batch could not be compressed: no memory"));
    } else {
      stamp(*part);
    }
  }
  return true;
}

// --- Fates ---

void Producer::Impl::answered(const Batches& batches, const kafka::ProduceResponse& response) {
  std::size_t in_topics = 0, in_partitions = 0;
  for (const auto& batch : batches) {
    const Answered* found = nullptr;
    const auto* const topic = core::find_from(response.responses, in_topics,
                                              [&](const auto& one) { return one.name == batch->queue->topic; });
    if (topic != nullptr)
      found = core::find_from(topic->partition_responses, in_partitions,
                              [&](const auto& one) { return one.index == batch->queue->partition; });
    if (found == nullptr) {
      failed(batch,
             failure(Trouble::disconnected, to_text(*batch->queue) + ": the broker's answer leaves it out", true));
    } else if (found->error_code == ErrorCode::none) {
      written(batch, found->base_offset, found->log_append_time_ms);
    } else if (found->error_code == ErrorCode::duplicate_sequence_number) {
      written(batch, -1, -1);  // written before, by a request whose answer was lost
    } else {
      auto words = found->error_message.value_or("");
      for (const auto& record : found->record_errors) {
        if (record.batch_index_error_message)
          words += fmt::format("{}record {}: {}", words.empty() ? "" : "; ", record.batch_index,
                               *record.batch_index_error_message);
      }
      failed(batch, core::broker_error(found->error_code, to_text(*batch->queue), words));
    }
  }
}

void Producer::Impl::remove(const Batch& batch) {
  auto& unacked = batch->queue->unacked;
  if (const auto at = std::find(unacked.begin(), unacked.end(), batch); at != unacked.end()) unacked.erase(at);
}

void Producer::Impl::tell(ProducerBatch& batch, const Error* error, std::int64_t base_offset,
                          std::int64_t append_time) {
  batch.over = true;
  if (error != nullptr) {
    counters_.failed_records.fetch_add(static_cast<std::int64_t>(batch.records.size()), std::memory_order_relaxed);
    const Result<Written> result(*error);
    for (auto& record : batch.records) {
      if (record.done) record.done(result);
    }
  } else {
    counters_.records.fetch_add(static_cast<std::int64_t>(batch.records.size()), std::memory_order_relaxed);
    counters_.batches.fetch_add(1, std::memory_order_relaxed);
    counters_.bytes.fetch_add(static_cast<std::int64_t>(batch.bytes->size()), std::memory_order_relaxed);
    std::int64_t offset = base_offset;
    for (auto& record : batch.records) {
      if (record.done) {
        Written at;
        at.partition = batch.queue->partition;
        at.offset = offset;
        at.timestamp = append_time >= 0 ? append_time : record.timestamp;
        record.done(Result<Written>(at));
      }
      if (offset >= 0) ++offset;
    }
  }
  accumulator_.over(batch);
  batch.records.clear();
}

void Producer::Impl::written(const Batch& batch, std::int64_t base_offset, std::int64_t append_time) {
  batch->in_flight = false;
  accumulator_.delivery_heard({});
  remove(batch);
  if (!batch->over) tell(*batch, nullptr, base_offset, append_time);
}

void Producer::Impl::failed(const Batch& batch, const Error& error) {
  auto& queue = *batch->queue;
  const auto code = code_of(error);
  batch->in_flight = false;
  if (batch->over) {
    // Its fate stays unknown, and so does where the sequences stand.
    remove(batch);
    if (queue.unacked.empty()) queue.new_epoch_wanted = settings_.idempotence;
    return;
  }
  if (error.retriable) cluster_.mark_stale();
  if (code == ErrorCode::message_too_large && batch->records.size() > 1 && split(batch)) return;
  if (settings_.idempotence &&
      (code == ErrorCode::out_of_order_sequence_number || code == ErrorCode::unknown_producer_id)) {
    // A follower of one that failed takes its turn. Where it is the first, the broker has a gap or has forgotten us.
    if (queue.unacked.front() == batch) queue.new_epoch_wanted = true;
    return retry(batch, error);
  }
  if (ends_producer(code)) return fatal(error);
  if (error.retriable) return retry(batch, error);
  give_up(batch, error);
}

void Producer::Impl::retry(const Batch& batch, const Error& error) {
  batch->last_error = error.text;
  accumulator_.delivery_heard(error.text);
  batch->not_before = loop_.clock().now() + Milliseconds(settings_.retry_backoff_ms);
  counters_.retries.fetch_add(1, std::memory_order_relaxed);
  log::debug("client", "batch is sent again topic={} partition={} records={} error={}", batch->queue->topic,
             batch->queue->partition, batch->records.size(), error.text);
}

void Producer::Impl::give_up(const Batch& batch, const Error& error) {
  // In flight it stays in line until its answer comes: what follows must know whether it was written.
  if (!batch->in_flight) {
    remove(batch);
    // While others of its line are of unknown fate too, they go again under their old sequences: a new epoch would
    // write them twice. The broker's answer to the foremost says whether there is a gap.
    if (batch->base_sequence >= 0 && batch->queue->unacked.empty()) batch->queue->new_epoch_wanted = true;
  }
  if (!batch->over) tell(*batch, &error, -1, -1);
}

void Producer::Impl::expire(const Batch& batch) {
  auto why = batch->last_error;
  if (why.empty() && cluster_.leader(batch->queue->topic, batch->queue->partition) < 0) why = "no leader is known";
  if (why.empty() && batch->in_flight) why = "no answer yet";
  if (why.empty()) why = trouble_.empty() ? "it waited its turn" : trouble_;
  give_up(batch, failure(Trouble::timed_out,
                         fmt::format("{}: not written within delivery.timeout.ms={}: {}", to_text(*batch->queue),
                                     settings_.delivery_timeout_ms, why),
                         true));
}

void Producer::Impl::fail_all(const Error& error) {
  Batches all;
  accumulator_.walk([&](PartitionQueue& queue) {
    all.insert(all.end(), queue.unacked.begin(), queue.unacked.end());
    while (!queue.waiting.empty()) all.push_back(core::Accumulator::take(queue));
    return true;
  });
  for (const auto& batch : all) give_up(batch, error);
}

void Producer::Impl::fatal(Error error) {
  error.trouble = Trouble::fatal;
  error.retriable = false;
  error.text += "; open another producer";
  log::warn("client", "the producer cannot go on error={}", error.text);
  accumulator_.refuse(error);
  fail_all(error);
}

}  // namespace ciuic::client
