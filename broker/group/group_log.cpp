// A coordinator's log over a real partition: records to batches, and everything read back at start.
#include "broker/group/group_log.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "broker/log/stored_batch.h"
#include "transport/base/log.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {

namespace {

constexpr std::uint32_t read_bytes = 1U << 20;

/// Counts the batches of one append; calls back when the last has ended.
struct Appending {
  std::size_t left = 0;
  kafka::ErrorCode error = kafka::ErrorCode::none;
  std::function<void(kafka::ErrorCode)> done;
  void ended(kafka::ErrorCode code) {
    if (error == kafka::ErrorCode::none) error = code;
    if (--left == 0) done(error);
  }
};

}  // namespace

void PartitionGroupLog::append(std::vector<CoordinatorRecord> records, std::function<void(kafka::ErrorCode)> done) {
  if (records.empty()) {
    partition_->executor().post([done = std::move(done)] { done(kafka::ErrorCode::none); });
    return;
  }
  const auto now = clock_.wall_ms();
  const auto limit = static_cast<std::size_t>(std::max(partition_->config().max_message_bytes / 2, 1));
  std::vector<Buffer> batches;
  kafka::RecordBatchBuilder builder;
  const auto cut = [&] {
    // Uncompressed, so there is no way for it to fail.
    if (builder.finish(kafka::BatchHeader{}, batches.emplace_back()).has_error()) batches.pop_back();
    builder.clear();
  };
  for (const auto& record : records) {
    kafka::RecordToWrite write;
    write.timestamp = now;
    write.key = Bytes(record.key);
    if (record.value) write.value = Bytes(*record.value);
    if (!builder.empty() && builder.size() + builder.size_of(write) > limit) cut();
    builder.add(write);
  }
  cut();
  auto appending = std::make_shared<Appending>();
  appending->left = batches.size();
  appending->done = std::move(done);
  AppendOptions options;
  options.origin = AppendOrigin::coordinator;
  options.leader_epoch = kafka::LeaderEpoch(std::max(partition_->latest_leader_epoch().value, 0));
  for (const auto& batch : batches) {
    partition_->append(batch, options, [appending](const ResultOf<AppendResult, AppendError>& result) {
      if (result.has_error() && !result.error().error.text.empty()) {
        log::bounded(log::Level::warn, "group", "append refused code={} reason=\"{}\"",
                     kafka::name(result.error().error.code), result.error().error.text);
      }
      appending->ended(result ? kafka::ErrorCode::none : result.error().error.code);
    });
  }
}

struct PartitionGroupLog::Reading {
  std::shared_ptr<GroupReplay> replay;
  std::function<void(kafka::ErrorCode)> done;
  kafka::Offset at;
  kafka::Offset end;
  Buffer scratch;

  /// False if the bytes are damaged.
  bool take(Bytes span) {
    while (!span.empty()) {
      const auto batch = kafka::RecordBatchView::parse(span);
      if (!batch) return false;
      span = span.subspan(batch->size());
      if (batch->last_offset() < at) continue;
      auto reader = kafka::RecordReader::open(*batch, scratch, stored_batch_unpacked_max);
      if (!reader) return false;
      while (const auto record = reader->next()) {
        if (record->offset < at) continue;
        if (batch->control()) {
          const auto type = kafka::control_type(*record);
          if (type == kafka::ControlType::commit || type == kafka::ControlType::abort) {
            replay->transaction_ended(batch->producer_id(), *type == kafka::ControlType::commit);
          }
        } else if (record->key) {
          replay->record(*record->key, record->value,
                         batch->transactional() ? std::optional(batch->producer_id()) : std::nullopt);
        }
      }
      if (reader->error() != nullptr) return false;
      at = batch->next_offset();
    }
    return true;
  }
};

void PartitionGroupLog::replay(std::shared_ptr<GroupReplay> replay, std::function<void(kafka::ErrorCode)> done) {
  auto reading = std::make_shared<Reading>();
  reading->replay = std::move(replay);
  reading->done = std::move(done);
  reading->at = partition_->log_start_offset();
  reading->end = partition_->high_watermark();
  partition_->executor().post([self = shared_from_this(), reading] { self->read_on(reading); });
}

void PartitionGroupLog::read_on(const std::shared_ptr<Reading>& reading) {
  if (partition_->offline()) return reading->done(kafka::ErrorCode::kafka_storage_error);
  reading->at = std::max(reading->at, partition_->log_start_offset());
  if (reading->at >= reading->end) return reading->done(kafka::ErrorCode::none);
  const auto before = reading->at;
  auto result = partition_->read({reading->at, read_bytes, Isolation::read_uncommitted, true});
  if (!result) return reading->done(result.error().code);
  for (const auto span : result->spans) {
    if (!reading->take(span)) {
      log::bounded(log::Level::error, "group", "damaged record in the group log topic={} partition={} offset={}",
                   partition_->name().topic, partition_->name().partition.value, reading->at.value);
      return reading->done(kafka::ErrorCode::corrupt_message);
    }
  }
  const auto again = [self = shared_from_this(), reading] { self->read_on(reading); };
  if (!result->miss) {
    if (reading->at == before)
      return reading->done(kafka::ErrorCode::none);  // nothing is left below the high watermark
    return partition_->executor().post(again);
  }
  partition_->bring_in(*result->miss, read_bytes, MemoryFor::fetch,
                       [this, again, reading](const ResultOf<std::shared_ptr<Chunk>, kafka::Error>& chunk) {
                         if (chunk) return again();
                         if (chunk.error().code != kafka::ErrorCode::throttling_quota_exceeded)
                           return reading->done(chunk.error().code);
                         partition_->executor().post_at(clock_.now() + Milliseconds(50), again);  // no memory just now
                       });
}

}  // namespace ciuic::broker
