// Appending: validate, give offsets, copy once into the open chunk. Not here: writing to the file and acknowledging
// (partition_write.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "broker/log/partition.h"
#include "broker/log/stored_batch.h"
#include "transport/base/log.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {
/// Unpacked bytes that the owner's thread looks through itself, a few milliseconds' work. It is what a batch of the
/// default max.message.bytes has without compression.
constexpr std::size_t checked_here_bytes_max = 1U << 20;
constexpr std::size_t buffer_kept_max = 2 * checked_here_bytes_max;
}  // namespace

void Partition::refuse(AppendCallback callback, kafka::Error why, std::vector<RecordError> records) {
  AppendError error(std::move(why), log_start_);
  error.records = std::move(records);
  parts_.executor->post(
      [callback = std::move(callback), error = std::move(error)]() mutable { callback(std::move(error)); });
}

std::optional<kafka::Error> Partition::closed_to_appends() const {
  if (offline() || closed_)
    return kafka::Error(ErrorCode::kafka_storage_error, "The partition is offline; the broker's log says why");
  if (unwritten_bytes_ > parts_.limits.unwritten_bytes_max)
    return kafka::Error(ErrorCode::not_enough_replicas,
                        fmt::format("{} bytes wait for the disk; retry", unwritten_bytes_));
  if (truncating_) return kafka::Error(ErrorCode::not_leader_or_follower, "The log is being truncated");
  return std::nullopt;
}

void Partition::append(Bytes records, const AppendOptions& options, AppendCallback callback) {
  if (arriving_.empty() && append_here(records, options, callback)) return;
  Arrival arrival{records, {}, options, std::move(callback)};
  if (options.origin == AppendOrigin::coordinator) {
    arrival.own.assign(records.begin(), records.end());
    arrival.records = arrival.own;
  }
  arriving_.push_back(std::move(arrival));
  if (arriving_.size() == 1) check_first();
}

std::size_t Partition::unpacked_bytes_max() const {
  return std::max(parts_.limits.decompressed_batch_bytes_max,
                  static_cast<std::size_t>(std::max(config_.max_message_bytes, 0)));
}

/// By its size alone; one that unpacks to more than it looks is found while it does.
bool Partition::large(Bytes records) const {
  if (records.size() <= checked_here_bytes_max / 2) return false;
  const auto batch = kafka::RecordBatchView::parse(records);
  if (!batch || batch->size() > static_cast<std::size_t>(std::max(config_.max_message_bytes, 0))) return false;
  return batch->codec() != kafka::Codec::none || batch->payload().size() > checked_here_bytes_max;
}

/// False, with nothing done: the batch is too much for the owner's thread.
bool Partition::append_here(Bytes records, const AppendOptions& options, AppendCallback& callback) {
  if (auto why = closed_to_appends()) {
    refuse(std::move(callback), std::move(*why));
    return true;
  }
  const bool elsewhere = parts_.checks != nullptr && options.origin == AppendOrigin::client;
  if (elsewhere && large(records)) return false;
  const auto most = unpacked_bytes_max();
  const auto here = elsewhere ? std::min(most, checked_here_bytes_max) : most;
  const auto now_ms = parts_.clock->wall_ms();
  auto valid = validate_batch(records, options.origin, config_, here, now_ms, scratch_, repacked_);
  const bool undecided = !valid && valid.error().unpacks_beyond && here < most;
  if (!undecided) finish_append(std::move(valid), options, now_ms, std::move(callback));
  for (auto* const buffer : {&scratch_, &repacked_})
    if (buffer->capacity() > buffer_kept_max) Buffer().swap(*buffer);
  return !undecided;
}

struct Partition::Check {
  Bytes records;
  LogConfig config;
  std::size_t unpacked_bytes_max;
  std::int64_t now_ms;
  Buffer repacked{};
  std::optional<ResultOf<ValidBatch, BatchRefusal>> result{};
};

void Partition::check_first() {
  auto check =
      std::make_shared<Check>(Check{arriving_.front().records, config_, unpacked_bytes_max(), parts_.clock->wall_ms()});
  parts_.checks->submit(check_queue_, [self = shared_from_this(), check = std::move(check)]() mutable {
    {
      // Address space alone, until it is written to: grown step by step it would lie twice in memory for a while, and
      // from the heap of this thread, which keeps it.
      Buffer scratch;
      scratch.reserve(check->unpacked_bytes_max);
      check->result.emplace(validate_batch(check->records, AppendOrigin::client, check->config,
                                           check->unpacked_bytes_max, check->now_ms, scratch, check->repacked));
    }
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), check = std::move(check)] { self->checked(*check); });
  });
}

void Partition::checked(Check& check) {
  auto first = std::move(arriving_.front());
  arriving_.pop_front();
  if (auto why = closed_to_appends())
    refuse(std::move(first.callback), std::move(*why));
  else
    finish_append(std::move(*check.result), first.options, check.now_ms, std::move(first.callback));
  while (!arriving_.empty()) {
    auto& next = arriving_.front();
    if (!append_here(next.records, next.options, next.callback)) return check_first();
    arriving_.pop_front();
  }
}

void Partition::finish_append(ResultOf<ValidBatch, BatchRefusal> valid, const AppendOptions& options,
                              std::int64_t now_ms, AppendCallback callback) {
  if (!valid) return refuse(std::move(callback), std::move(valid.error().error), std::move(valid.error().records));
  if (valid->bytes.size() > static_cast<std::size_t>(config_.segment_bytes))
    return refuse(std::move(callback),
                  {ErrorCode::record_list_too_large,
                   fmt::format("Message batch size is {} bytes, which exceeds the maximum configured "
                               "segment size of {}",
                               valid->bytes.size(), config_.segment_bytes)});

  if (options.origin == AppendOrigin::client) {
    const auto verdict = producers_.check_client(valid->info);
    if (!verdict) return refuse(std::move(callback), verdict.error());
    if (verdict->duplicate) return answer_duplicate(*verdict->duplicate, std::move(callback));
  } else if (const auto allowed = producers_.check_coordinator(valid->info); !allowed) {
    return refuse(std::move(callback), allowed.error());
  }

  const auto epoch = std::max(options.leader_epoch, epochs_.latest());
  valid->info.base_offset = log_end_;
  valid->info.last_offset = log_end_ + (valid->info.record_count - 1);
  if (config_.timestamp_type == TimestampType::log_append_time) valid->max_timestamp = now_ms;
  valid->info.max_timestamp = valid->max_timestamp;
  valid->info.leader_epoch = epoch;
  if (should_roll(valid->info)) roll(log_end_);
  if (!make_room(static_cast<std::uint32_t>(valid->bytes.size())))
    return refuse(std::move(callback), {ErrorCode::kafka_storage_error, "No memory for a chunk of the log"});
  name_epoch(epoch, log_end_);
  put(*valid, epoch, now_ms);
  AppendResult result;
  result.base_offset = valid->info.base_offset;
  result.last_offset = valid->info.last_offset;
  if (config_.timestamp_type == TimestampType::log_append_time) result.log_append_time_ms = now_ms;
  result.log_start_offset = log_start_;
  waiters_.push_back({log_end_, result, std::move(callback)});
  write_soon();
}

void Partition::answer_duplicate(const ProducerState::Batch& original, AppendCallback callback) {
  AppendResult result;
  result.base_offset = original.first_offset();
  result.last_offset = original.last_offset;
  if (config_.timestamp_type == TimestampType::log_append_time) result.log_append_time_ms = original.timestamp;
  result.log_start_offset = log_start_;
  result.duplicate = true;
  wait_for(original.last_offset + 1, result, std::move(callback));
}

/// Answers when everything below `end` is written. An original still under way must not be acknowledged by its retry.
void Partition::wait_for(kafka::Offset end, AppendResult result, AppendCallback callback) {
  if (end <= written_end_) {
    parts_.executor->post([callback = std::move(callback), result]() { callback(result); });
    return;
  }
  // Waiters stand in the order of their ends, so that one pass from the front answers them.
  const auto after = std::upper_bound(waiters_.begin(), waiters_.end(), end,
                                      [](kafka::Offset at, const Waiter& waiter) { return at < waiter.end; });
  waiters_.insert(after, {end, result, std::move(callback)});
}

bool Partition::should_roll(const BatchInfo& batch) const {
  const auto& segment = *active_;
  if (segment.bytes == 0) return false;
  const auto limit = static_cast<std::uint32_t>(config_.segment_bytes);
  if (segment.bytes > limit || batch.bytes > limit - segment.bytes) return true;
  const auto waited = batch.max_timestamp >= 0 && segment.first_timestamp >= 0
                          ? batch.max_timestamp - segment.first_timestamp
                          : parts_.clock->wall_ms() - segment.created_ms;
  if (waited > config_.segment_ms - std::min(segment_jitter_ms_, config_.segment_ms)) return true;
  const auto index_bytes = static_cast<std::size_t>(config_.segment_index_bytes);
  if (segment.indexes->offsets.size() >= index_bytes / OffsetEntry::bytes_on_disk) return true;
  if (segment.indexes->times.size() >= index_bytes / TimeEntry::bytes_on_disk) return true;
  return batch.last_offset - segment.base > std::numeric_limits<std::int32_t>::max();
}

void Partition::seal_open_chunk() {
  if (!open_chunk_) return;
  const auto chunk = std::exchange(open_chunk_, nullptr);
  chunk->on(ChunkEvent::full);
  if (parts_.observer) parts_.observer->chunk_sealed(*this, chunk);
}

bool Partition::make_room(std::uint32_t bytes) {
  if (open_chunk_ && open_chunk_->room() >= bytes) return true;
  const auto& arena = parts_.arena->config();
  const auto now = parts_.clock->now();
  // A chunk that filled within seconds asks for larger ones; a quiet partition falls back step by step. No partition's
  // chunk takes more than a thirty-second part of the budget, so that eviction has a choice.
  const auto largest = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(arena.budget_bytes / 32, arena.chunk_bytes_min, arena.chunk_bytes_max));
  if (chunk_bytes_next_ == 0) {
    chunk_bytes_next_ = arena.chunk_bytes_min;
  } else if (open_chunk_) {
    const auto lived = now - chunk_opened_at_;
    if (lived < std::chrono::seconds(2))
      chunk_bytes_next_ = std::min(largest, chunk_bytes_next_ * 4);
    else if (lived < std::chrono::seconds(10))
      chunk_bytes_next_ = std::min(largest, chunk_bytes_next_ * 2);
    else if (lived > std::chrono::seconds(60))
      chunk_bytes_next_ = std::max(arena.chunk_bytes_min, chunk_bytes_next_ / 2);
  }
  seal_open_chunk();
  const auto range = memory_->allocate(std::max(bytes, chunk_bytes_next_), MemoryFor::append);
  if (!range) return false;
  open_chunk_ =
      std::make_shared<Chunk>(memory_, *range, next_chunk_sequence_++, active_->base, active_->bytes, log_end_);
  chunk_opened_at_ = now;
  admit(active_, open_chunk_);
  return true;
}

/// Before the first batch that carries it.
void Partition::name_epoch(kafka::LeaderEpoch epoch, kafka::Offset start) {
  const bool news = epochs_.assign(epoch, start);
  if (news || epoch_unnamed_) write_epochs();
}

void Partition::become_leader(kafka::LeaderEpoch epoch) {
  if (offline() || closed_) return;
  // Named on disk with its first batch. A broker begins an epoch in every partition it leads when it starts: ten
  // thousand files replaced for epochs of which most never have a record, and those a start forgets.
  if (epochs_.assign(epoch, log_end_)) epoch_unnamed_ = true;
}

/// REQUIRES: `make_room` said yes.
void Partition::put(const ValidBatch& batch, kafka::LeaderEpoch epoch, std::int64_t now_ms) {
  const auto size = static_cast<std::uint32_t>(batch.bytes.size());
  std::array<std::byte, kafka::batch_header_bytes> header;
  std::memcpy(header.data(), batch.bytes.data(), header.size());
  kafka::set_base_offset(header, batch.info.base_offset);
  kafka::set_leader_epoch(header, epoch);
  const auto to = open_chunk_->append(header, batch.bytes.subspan(header.size()));
  if (config_.timestamp_type == TimestampType::log_append_time)
    kafka::set_log_append_time(to, now_ms);
  else
    kafka::set_create_time(to, batch.max_timestamp);
  const auto from = open_chunk_->length();
  open_chunk_->grown(size, batch.info.base_offset, batch.info.last_offset + 1);
  open_chunk_->touch(parts_.arena->tick());

  active_->index_batch(batch.info, active_->bytes, config_.index_interval_bytes);
  active_->bytes += size;
  if (auto aborted = producers_.appended(batch.info)) active_->aborted.push_back(*aborted);
  log_end_ = batch.info.last_offset + 1;
  unwritten_bytes_ += size;
  log_bytes_ += size;
  messages_since_flush_ += static_cast<std::uint64_t>(batch.info.record_count);
  if (!dirty_.empty() && dirty_.back().chunk == open_chunk_ && dirty_.back().to == from)
    dirty_.back().to += size;
  else
    dirty_.push_back({active_, open_chunk_, from, from + size});
  dirty_bytes_ += size;
}

void Partition::roll(kafka::Offset base) {
  seal_open_chunk();
  const auto old = active_;
  old->finish_time_index();
  old->nothing_from = base;
  // A start after a crash looks at this segment again until its index files are on the device.
  if (old->bytes > 0) flushed_end_ = std::min(flushed_end_, base - 1);
  submit_write();
  active_ = std::make_shared<Segment>(parts_.io->files(), parts_.path, base);
  active_->created_ms = parts_.clock->wall_ms();
  active_->indexes.emplace();
  active_->max_timestamp = -1;
  segments_[base] = active_;
  finish_segment(old, *active_);
  segment_jitter_ms_ = 0;
  if (config_.segment_jitter_ms > 0) {
    // Spreads rolls of partitions that began together; any well-mixed number does.
    auto mixed = static_cast<std::uint64_t>(base.value) * 0x9E3779B97F4A7C15ULL ^
                 std::hash<kafka::TopicPartition>{}(parts_.name);
    mixed ^= mixed >> 29;
    segment_jitter_ms_ = static_cast<std::int64_t>(mixed % static_cast<std::uint64_t>(config_.segment_jitter_ms));
  }
  log::debug("log", "segment rolled topic={} partition={} base_offset={}", parts_.name.topic,
             parts_.name.partition.value, base.value);
  if (parts_.observer) parts_.observer->layout_changed(*this, LayoutChange::segment_rolled);
}

}  // namespace ciuic::broker
