// Senders' side of the producer: topics, room, batches. Nothing here talks to a broker.
#include "client/core/accumulator.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/core/partitioner.h"

namespace ciuic::client::core {
namespace {

/// A topic may still be coming into being (auto-creation, a broker that restarts): as long as that its absence is no
/// error.
constexpr Milliseconds unknown_patience{3000};
/// Longer waits would overflow the clocks below us; nobody sees the difference.
constexpr Milliseconds wait_max = std::chrono::hours(24 * 365);
constexpr std::size_t spare_max = 64;

Error unnamed_topic() { return failure(Trouble::invalid_argument, "a record without a topic: name one"); }

}  // namespace

Accumulator::Accumulator(const ProducerSettings& settings, Loop& loop, std::function<void()> wake)
    : settings_(settings),
      loop_(loop),
      wake_(std::move(wake)),
      batch_bytes_max_(static_cast<std::size_t>(std::min(settings.batch_bytes, settings.request_bytes_max))),
      dice_(std::random_device{}()) {}

// --- Waiting ---

/// Set once, at the first wait: a send that need not wait never asks for the time.
void Accumulator::set_deadline(Clock::TimePoint& deadline, Milliseconds patience) const {
  if (deadline != Clock::TimePoint{}) return;
  // A callback that sends runs on the loop's thread, which is the one that would have to end the wait.
  deadline = loop_.clock().now() + (loop_.is_current() ? Milliseconds(0) : std::min(patience, wait_max));
}

bool Accumulator::want_look(Clock::TimePoint when) {
  if (woken_ || when >= armed_) return false;
  woken_ = true;
  return true;
}

Result<Accumulator::SenderTopic*> Accumulator::usable_topic(Lock& lock, std::string_view name,
                                                            std::optional<std::int32_t> partition,
                                                            Clock::TimePoint& deadline, Milliseconds patience) {
  auto found = topics_.find(name);
  if (found == topics_.end()) {
    found = topics_.emplace(name, std::make_unique<SenderTopic>()).first;
    found->second->name = name;
  }
  auto& topic = *found->second;
  const auto usable = [&] { return topic.partitions > 0 && (!partition || *partition < topic.partitions); };
  if (usable()) return &topic;
  set_deadline(deadline, patience);
  const auto began = loop_.clock().now();
  const auto heard_before = topic.heard;
  while (true) {
    if (refused_) return *refused_;
    if (usable()) return &topic;
    const auto now = loop_.clock().now();
    if (topic.heard > heard_before) {
      if (topic.partitions > 0) {
        return failure(Trouble::invalid_argument,
                       fmt::format("{}-{}: the topic has partitions 0 … {}", name, *partition, topic.partitions - 1));
      }
      const auto code = static_cast<std::int16_t>(kafka::ErrorCode::unknown_topic_or_partition);
      if (topic.error && (!topic.error->retriable ||
                          (topic.error->kafka_code == code && (now >= deadline || now - began >= unknown_patience))))
        return *topic.error;
    }
    if (now >= deadline) {
      const auto why = !metadata_trouble_.empty() ? metadata_trouble_
                       : topic.error              ? topic.error->text
                                                  : std::string("no answer yet");
      return failure(Trouble::timed_out, fmt::format("{}: no metadata in time: {}", name, why), true);
    }
    ++topic.waiters;
    ++topic_waiters_;
    if (want_look(Clock::TimePoint::min())) {
      lock.unlock();
      wake_();
      lock.lock();
    }
    const auto seen = topic.heard;
    topics_changed_.wait_for(lock, std::min<Clock::Duration>(deadline - now, unknown_patience),
                             [&] { return refused_ || usable() || topic.heard != seen; });
    --topic.waiters;
    --topic_waiters_;
  }
}

Result<void> Accumulator::wait_for_room(Lock& lock, std::size_t bytes, Clock::TimePoint& deadline) {
  const auto room = [&] {
    return buffered_ == 0 || buffered_ + bytes <= static_cast<std::size_t>(settings_.buffer_bytes);
  };
  set_deadline(deadline, Milliseconds(settings_.max_block_ms));
  ++memory_waiters_;
  const bool wake = want_look(Clock::TimePoint::min());
  if (wake) {
    lock.unlock();
    wake_();
    lock.lock();
  }
  const auto left = std::max(deadline - loop_.clock().now(), Clock::Duration::zero());
  const bool made = room_made_.wait_for(lock, left, [&] { return refused_ || room(); });
  --memory_waiters_;
  if (made) return {};
  return failure(
      Trouble::queue_full,
      delivery_trouble_.empty()
          ? fmt::format("buffer.memory={} is used up by {} unsent records: raise it or max.block.ms, or send slower",
                        settings_.buffer_bytes, buffered_records_)
          : fmt::format("{} (buffer.memory={} is used up by {} records that wait for it)", delivery_trouble_,
                        settings_.buffer_bytes, buffered_records_),
      true);
}

// --- Appending ---

bool Accumulator::fits(const PartitionQueue& queue, const kafka::RecordToWrite& record) const {
  if (queue.waiting.empty() || queue.waiting.back()->full) return false;
  const auto& builder = *queue.waiting.back()->builder;
  return builder.size() < batch_bytes_max_ && builder.size_of(record) <= batch_bytes_max_ - builder.size();
}

/// Nothing more comes into the last batch. True: the loop must be woken for it.
bool Accumulator::close_last(PartitionQueue& queue) {
  return !queue.waiting.empty() && !std::exchange(queue.waiting.back()->full, true) &&
         want_look(Clock::TimePoint::min());
}

/// Records without a key fill one partition's batch before they turn to another (KIP-480).
std::int32_t Accumulator::stick(SenderTopic& topic, const kafka::RecordToWrite& record, bool& wake) {
  if (topic.sticky >= 0) {
    auto& queue = *topic.queues[static_cast<std::size_t>(topic.sticky)];
    if (fits(queue, record)) return topic.sticky;
    // Nobody may come back to this partition for long: what it has goes now.
    wake = close_last(queue);
  }
  const auto& choices = topic.available;
  const auto count = choices.empty() ? static_cast<std::size_t>(topic.partitions) : choices.size();
  const auto at = [&](std::size_t i) { return choices.empty() ? static_cast<std::int32_t>(i) : choices[i]; };
  auto chosen = dice_() % count;
  if (count > 1 && at(chosen) == topic.sticky) chosen = (chosen + 1 + dice_() % (count - 1)) % count;
  topic.sticky = at(chosen);
  return topic.sticky;
}

Result<void> Accumulator::append(const RecordToSend& record, DeliveryCallback done) {
  if (record.topic.empty()) return unnamed_topic();
  if (record.partition && *record.partition < 0) {
    return failure(Trouble::invalid_argument, fmt::format("{}-{}: no such partition; leave it out to have one chosen",
                                                          record.topic, *record.partition));
  }
  if (record.timestamp && *record.timestamp < 0) {
    return failure(Trouble::invalid_argument,
                   fmt::format("{}: timestamp {}: must be ms since 1970, at least 0", record.topic, *record.timestamp));
  }
  std::vector<kafka::HeaderToWrite> headers;
  headers.reserve(record.headers.size());
  for (const auto& header : record.headers) headers.push_back({header.key, header.value});
  kafka::RecordToWrite write;
  write.timestamp = record.timestamp ? *record.timestamp : loop_.clock().wall_ms();
  write.key = record.key;
  write.value = record.value;
  write.headers = headers;
  const auto record_bytes = kafka::RecordBatchBuilder().size_of(write);
  const auto alone = kafka::batch_header_bytes + record_bytes;
  const auto charge_max = alone + sizeof(ProducerBatch::Waiting);
  if (alone > static_cast<std::size_t>(settings_.request_bytes_max)) {
    return broker_error(
        kafka::ErrorCode::message_too_large, std::string(record.topic),
        fmt::format("a record of {} bytes; max.request.size allows {}", alone, settings_.request_bytes_max));
  }
  if (charge_max > static_cast<std::size_t>(settings_.buffer_bytes)) {
    return broker_error(
        kafka::ErrorCode::message_too_large, std::string(record.topic),
        fmt::format("a record of {} bytes; buffer.memory allows {}", charge_max, settings_.buffer_bytes));
  }

  Clock::TimePoint deadline{};
  Lock lock(mutex_);
  SenderTopic* topic = nullptr;
  while (true) {
    if (refused_) return *refused_;
    auto usable = usable_topic(lock, record.topic, record.partition, deadline, Milliseconds(settings_.max_block_ms));
    if (!usable) return usable.error();
    topic = *usable;
    if (buffered_ == 0 || buffered_ + charge_max <= static_cast<std::size_t>(settings_.buffer_bytes)) break;
    if (auto room = wait_for_room(lock, charge_max, deadline); !room) return room;
  }
  auto chosen =
      record.partition ? record.partition : partition_of(settings_.partitioner, record.key, topic->partitions);
  bool wake = false;
  if (!chosen) chosen = stick(*topic, write, wake);
  auto& queue = *topic->queues[static_cast<std::size_t>(*chosen)];
  if (!fits(queue, write)) {
    wake = close_last(queue) || wake;
    auto batch = std::make_unique<ProducerBatch>();
    batch->queue = &queue;
    batch->ordinal = next_ordinal_++;
    batch->created = loop_.clock().now();
    batch->charged = kafka::batch_header_bytes;
    if (spare_.empty()) {
      batch->builder = std::make_unique<kafka::RecordBatchBuilder>();
    } else {
      batch->builder = std::move(spare_.back());
      spare_.pop_back();
    }
    buffered_ += batch->charged;
    incomplete_.insert(batch->ordinal);
    queue.waiting.push_back(std::move(batch));
    if (!std::exchange(queue.listed, true)) active_.push_back(&queue);
  }
  auto& batch = *queue.waiting.back();
  batch.builder->add(write);
  batch.records.push_back({std::move(done), write.timestamp});
  batch.charged += record_bytes + sizeof(ProducerBatch::Waiting);
  buffered_ += record_bytes + sizeof(ProducerBatch::Waiting);
  ++buffered_records_;
  if (batch.builder->size() >= batch_bytes_max_) batch.full = true;
  if (batch.records.size() == 1 || batch.full) wake = want_look(due(queue)) || wake;
  lock.unlock();
  if (wake) wake_();
  return {};
}

Result<std::int32_t> Accumulator::partition_count(std::string_view topic, Milliseconds timeout) {
  if (topic.empty()) return unnamed_topic();
  Clock::TimePoint deadline{};
  Lock lock(mutex_);
  if (refused_) return *refused_;
  auto usable = usable_topic(lock, topic, std::nullopt, deadline, timeout);
  if (!usable) return usable.error();
  return (*usable)->partitions;
}

Result<void> Accumulator::flush(Milliseconds timeout) {
  Lock lock(mutex_);
  const auto mark = next_ordinal_;
  const auto before = [&] { return incomplete_.empty() || *incomplete_.begin() >= mark; };
  if (before()) return {};
  ++flushing_;
  if (want_look(Clock::TimePoint::min())) {
    lock.unlock();
    wake_();
    lock.lock();
  }
  const bool done = batch_over_.wait_for(lock, std::clamp(timeout, Milliseconds(0), wait_max), before);
  --flushing_;
  if (done) return {};
  return failure(Trouble::timed_out, fmt::format("{} records are not written yet", buffered_records_), true);
}

void Accumulator::delivery_heard(std::string trouble) {
  const std::scoped_lock lock(mutex_);
  delivery_trouble_ = std::move(trouble);
}

void Accumulator::refuse(const Error& why) {
  const std::scoped_lock lock(mutex_);
  if (!refused_) refused_ = why;
  topics_changed_.notify_all();
  room_made_.notify_all();
}

std::optional<Error> Accumulator::refused() const {
  const std::scoped_lock lock(mutex_);
  return refused_;
}

std::size_t Accumulator::buffered_bytes() const {
  const std::scoped_lock lock(mutex_);
  return buffered_;
}

std::size_t Accumulator::buffered_records() const {
  const std::scoped_lock lock(mutex_);
  return buffered_records_;
}

// --- The loop's ---

Clock::TimePoint Accumulator::due(const PartitionQueue& queue) const {
  if (queue.waiting.empty()) return Clock::TimePoint::max();
  if (queue.waiting.size() > 1 || queue.waiting.front()->full || urgent()) return Clock::TimePoint::min();
  return queue.waiting.front()->created + Milliseconds(settings_.linger_ms);
}

std::shared_ptr<ProducerBatch> Accumulator::take(PartitionQueue& queue) {
  std::shared_ptr<ProducerBatch> batch = std::move(queue.waiting.front());
  queue.waiting.pop_front();
  return batch;
}

std::shared_ptr<ProducerBatch> Accumulator::split_off(ProducerBatch& from, std::size_t records) {
  auto part = std::make_shared<ProducerBatch>();
  part->queue = from.queue;
  part->ordinal = from.ordinal;
  part->created = from.created;
  part->charged = from.charged / from.records.size() * records;
  from.charged -= part->charged;
  const auto first = from.records.end() - static_cast<std::ptrdiff_t>(records);
  part->records.assign(std::make_move_iterator(first), std::make_move_iterator(from.records.end()));
  from.records.erase(first, from.records.end());
  const std::scoped_lock lock(mutex_);
  incomplete_.insert(part->ordinal);
  return part;
}

void Accumulator::over(const ProducerBatch& batch) {
  const std::scoped_lock lock(mutex_);
  buffered_ -= batch.charged;
  buffered_records_ -= batch.records.size();
  incomplete_.erase(incomplete_.find(batch.ordinal));
  if (memory_waiters_ > 0) room_made_.notify_all();
  if (flushing_ > 0) batch_over_.notify_all();
}

void Accumulator::recycle(std::unique_ptr<kafka::RecordBatchBuilder> builder) {
  builder->clear();
  const std::scoped_lock lock(mutex_);
  if (spare_.size() < spare_max) spare_.push_back(std::move(builder));
}

std::vector<std::string> Accumulator::topics_to_ask() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, topic] : topics_) {
    if (topic->partitions == 0 && topic->waiters == 0) continue;
    topic->asked = true;
    names.push_back(name);
  }
  return names;
}

Accumulator::Missing Accumulator::missing() const {
  const std::scoped_lock lock(mutex_);
  if (topic_waiters_ == 0) return Missing::nothing;
  auto missing = Missing::nothing;
  for (const auto& [name, topic] : topics_) {
    if (topic->waiters == 0) continue;
    if (!topic->asked) return Missing::never_asked;
    missing = Missing::something;
  }
  return missing;
}

void Accumulator::topic_heard(const std::string& name, std::int32_t partitions, std::vector<std::int32_t> available,
                              std::optional<Error> error) {
  const std::scoped_lock lock(mutex_);
  const auto found = topics_.find(name);
  if (found == topics_.end()) return;
  auto& topic = *found->second;
  ++topic.heard;
  // A broker that lags behind does not unmake a topic whose records wait here.
  if (partitions == 0 && topic.partitions > 0 && error && error->retriable) {
    topic.error = std::move(error);
    return;
  }
  topic.partitions = partitions;
  topic.available = std::move(available);
  topic.error = std::move(error);
  if (topic.sticky >= partitions) topic.sticky = -1;
  // Queues are never taken away: batches of a partition that went away wait for it, and expire.
  while (topic.queues.size() < static_cast<std::size_t>(partitions)) {
    auto queue = std::make_unique<PartitionQueue>();
    queue->topic = name;
    queue->partition = static_cast<std::int32_t>(topic.queues.size());
    topic.queues.push_back(std::move(queue));
  }
}

void Accumulator::metadata_heard(std::string trouble) {
  const std::scoped_lock lock(mutex_);
  metadata_trouble_ = std::move(trouble);
  topics_changed_.notify_all();
}

}  // namespace ciuic::client::core
