// The loop's look over the partitions, and requests to their leaders.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "client/core/find_from.h"
#include "client/core/producer_impl.h"
#include "transport/base/log.h"
#include "transport/kafka/messages/init_producer_id.h"

namespace ciuic::client {

using core::Accumulator;
using core::Co;
using core::failure;
using core::PartitionQueue;
using core::ProducerIdentity;
using kafka::ErrorCode;

namespace {
constexpr auto never = Clock::TimePoint::max();
constexpr Milliseconds unsent_look{1};  // acks=0 has no answer: so often we look whether the kernel has it all
constexpr std::int16_t by_name = 12;    // the newest version that names topics; records follow a topic made anew
}  // namespace

// --- Looking ---

/// Soon, once, however many ask.
void Producer::Impl::again() {
  if (std::exchange(look_posted_, true)) return;
  loop_.post([this] {
    look_posted_ = false;
    look();
  });
}

void Producer::Impl::arm(Clock::TimePoint when) {
  if (when == never || (!timers_.empty() && *timers_.begin() <= when)) return;
  timers_.insert(when);
  loop_.post_at(when, [this] { look(); });
}

/// When a batch of this partition may be sent; `never`: an answer must come first.
Clock::TimePoint Producer::Impl::sendable_at(const PartitionQueue& queue) const {
  if (settings_.idempotence && !queue.identity && !identity_) return never;
  const auto& unacked = queue.unacked;
  if (unacked.empty()) return accumulator_.due(queue);
  const auto again = std::find_if(unacked.begin(), unacked.end(), [](const Batch& one) { return !one->in_flight; });
  if (again == unacked.begin()) {
    const bool flying = std::any_of(unacked.begin(), unacked.end(), [](const Batch& one) { return one->in_flight; });
    return queue.new_epoch_wanted && flying ? never : (*again)->not_before;
  }
  if (again != unacked.end() || queue.new_epoch_wanted) return never;
  // A broker remembers five batches of a producer; and with one request at a time order is promised without sequences.
  if (unacked.size() >= static_cast<std::size_t>(settings_.in_flight_max)) return never;
  return accumulator_.due(queue);
}

/// Gives when the partition wants to be looked at again, sending aside.
Clock::TimePoint Producer::Impl::look_at(PartitionQueue& queue, Clock::TimePoint now, Batches& expired) const {
  const auto patience = Milliseconds(settings_.delivery_timeout_ms);
  auto next = never;
  for (const auto& batch : queue.unacked) {
    if (batch->over) continue;
    if (batch->created + patience <= now) {
      expired.push_back(batch);
    } else {
      next = std::min(next, batch->created + patience);
    }
  }
  while (!queue.waiting.empty() && queue.waiting.front()->created + patience <= now)
    expired.push_back(Accumulator::take(queue));
  if (!queue.waiting.empty()) next = std::min(next, queue.waiting.front()->created + patience);
  return next;
}

void Producer::Impl::look() {
  if (ended_) return;
  const auto now = loop_.clock().now();
  timers_.erase(timers_.begin(), timers_.upper_bound(now));
  Batches expired;
  std::set<std::int32_t> leaders;
  bool leaderless = false;
  bool busy = false;
  auto next = accumulator_.look([&](PartitionQueue& queue) {
    const auto wanted = look_at(queue, now, expired);
    busy = true;
    const auto at = sendable_at(queue);
    const auto leader = cluster_.leader(queue.topic, queue.partition);
    if (leader < 0) leaderless = true;
    if (at > now) return std::min(wanted, at);
    if (leader >= 0) leaders.insert(leader);
    return wanted;
  });
  for (const auto& batch : expired) expire(batch);
  if (ended_) return;
  next = std::min({next, look_at_metadata(leaderless, busy), look_at_identity(busy)});
  for (const auto id : leaders) {
    auto& node = nodes_[id];
    if (node.pumping || node.in_flight >= settings_.in_flight_max) continue;
    if (node.not_before > now) {
      next = std::min(next, node.not_before);
    } else {
      loop_.spawn(pump(id));
    }
  }
  arm(next);
}

// --- Metadata and identity ---

Clock::TimePoint Producer::Impl::look_at_metadata(bool leaderless, bool busy) {
  if (refreshing_) return never;
  const auto now = loop_.clock().now();
  const auto missing = accumulator_.missing();
  const auto heard = cluster_.refreshed_at();
  const auto old_at = heard == Clock::TimePoint{} ? never : heard + Milliseconds(settings_.metadata_max_age_ms);
  const bool wanted =
      leaderless || missing != Accumulator::Missing::nothing || (busy && cluster_.stale()) || now >= old_at;
  if (!wanted) return old_at;
  if (now < next_refresh_ && missing != Accumulator::Missing::never_asked) return next_refresh_;
  loop_.spawn(refresh());
  return never;
}

Co<void> Producer::Impl::refresh() {
  refreshing_ = true;
  auto names = accumulator_.topics_to_ask();
  cluster_.keep_only({names.begin(), names.end()});
  const auto asked = names;
  auto refreshed = co_await cluster_.refresh(std::move(names));
  refreshing_ = false;
  next_refresh_ = loop_.clock().now() + Milliseconds(settings_.retry_backoff_ms);
  if (!refreshed) {
    trouble_ = refreshed.error().text;
    log::debug("client", "metadata could not be read error={}", trouble_);
  }
  for (const auto& name : asked) {
    const auto* const topic = refreshed ? cluster_.topic(name) : nullptr;
    if (topic == nullptr) continue;
    std::vector<std::int32_t> available;
    for (std::size_t i = 0; i < topic->partitions.size(); ++i) {
      if (topic->partitions[i].leader >= 0) available.push_back(static_cast<std::int32_t>(i));
    }
    auto code = topic->error;
    if (code == ErrorCode::none && topic->partitions.empty()) code = ErrorCode::leader_not_available;
    std::optional<Error> error;
    if (code != ErrorCode::none) error = core::broker_error(code, name);
    accumulator_.topic_heard(name, static_cast<std::int32_t>(topic->partitions.size()), std::move(available),
                             std::move(error));
  }
  accumulator_.metadata_heard(refreshed ? std::string() : refreshed.error().text);
  again();
}

Clock::TimePoint Producer::Impl::look_at_identity(bool busy) {
  if (!settings_.idempotence || identity_ || asking_identity_ || !busy) return never;
  if (loop_.clock().now() < next_identity_) return next_identity_;
  loop_.spawn(ask_identity());
  return never;
}

Co<void> Producer::Impl::ask_identity() {
  asking_identity_ = true;
  kafka::InitProducerIdRequest request;
  request.transactional_id.reset();
  request.transaction_timeout_ms = std::numeric_limits<std::int32_t>::max();  // as Java's: it means nothing here
  Error error;
  if (auto connection = co_await cluster_.any(); connection) {
    auto answer =
        co_await (*connection)
            ->call<kafka::InitProducerIdResponse>(std::move(request), Milliseconds(settings_.request_timeout_ms));
    if (!answer) {
      error = answer.error();
    } else if (answer->body.error_code != ErrorCode::none) {
      error = core::broker_error(answer->body.error_code, "producer id");
    } else {
      identity_ = ProducerIdentity{answer->body.producer_id, answer->body.producer_epoch};
    }
  } else {
    error = connection.error();
  }
  asking_identity_ = false;
  if (!identity_ && !ended_) {
    trouble_ = error.text;
    next_identity_ = loop_.clock().now() + Milliseconds(settings_.retry_backoff_ms);
    if (!error.retriable) {
      error.text = "no producer id, which enable.idempotence needs: " + error.text;
      fatal(error);
    }
  }
  again();
}

/// The partition's batches may be stamped; false: not yet, an id must be asked for first.
bool Producer::Impl::ready_identity(PartitionQueue& queue) {
  if (!settings_.idempotence) return true;
  if (queue.identity && std::exchange(queue.new_epoch_wanted, false)) {
    counters_.new_epochs.fetch_add(1, std::memory_order_relaxed);
    if (queue.identity->epoch < std::numeric_limits<std::int16_t>::max()) {
      count_anew(queue, {queue.identity->id, static_cast<std::int16_t>(queue.identity->epoch + 1)});
    } else {
      // All epochs of this id are used up: a new one.
      if (identity_ && identity_->id == queue.identity->id) identity_.reset();
      queue.identity.reset();
    }
  }
  if (queue.identity) return true;
  if (!identity_) return false;
  count_anew(queue, *identity_);
  return true;
}

// --- Requests ---

/// Sends to one broker as long as something is due and requests may be in flight. One runs a broker, so that what was
/// taken first is sent first.
Co<void> Producer::Impl::pump(std::int32_t id) {
  auto& node = nodes_[id];
  node.pumping = true;
  while (!ended_ && node.in_flight < settings_.in_flight_max) {
    auto connection = co_await cluster_.connection(id, core::Lane::produce);
    if (ended_) break;
    if (!connection) {
      trouble_ = connection.error().text;
      accumulator_.delivery_heard(trouble_);
      node.not_before = loop_.clock().now() + Milliseconds(settings_.retry_backoff_ms);
      break;
    }
    auto batches = drain(id);
    if (batches.empty()) break;
    if (settings_.codec == kafka::Codec::none) {
      for (const auto& batch : batches) finish(*batch);
    } else {
      std::function<bool()> work = [this, &batches] {
        for (const auto& batch : batches) finish(*batch);
        return true;
      };
      (void)co_await loop_.offload<bool>(std::move(work));
    }
    std::erase_if(batches, [this](const Batch& batch) {
      if (batch->builder) accumulator_.recycle(std::move(batch->builder));
      if (batch->bytes) {
        stamp(*batch);
        return false;
      }
      batch->in_flight = false;
      give_up(batch, failure(Trouble::invalid_state, "the batch could not be compressed: no memory"));
      return true;
    });
    if (batches.empty()) continue;
    ++node.in_flight;
    loop_.spawn(exchange(id, *connection, std::move(batches)));
  }
  node.pumping = false;
  again();
}

Producer::Impl::Batches Producer::Impl::drain(std::int32_t id) {
  const auto now = loop_.clock().now();
  Batches out;
  std::size_t bytes = 0;
  accumulator_.walk([&](PartitionQueue& queue) {
    if (cluster_.leader(queue.topic, queue.partition) != id || sendable_at(queue) > now) return true;
    const bool fresh = queue.unacked.empty() || queue.unacked.front()->in_flight;
    const auto size = fresh ? queue.waiting.front()->builder->size() : queue.unacked.front()->bytes->size();
    if (!out.empty() && bytes + size > static_cast<std::size_t>(settings_.request_bytes_max)) return false;
    if (!ready_identity(queue)) return true;
    bytes += size;
    if (fresh) {
      queue.unacked.push_back(Accumulator::take(queue));
      auto& batch = *queue.unacked.back();
      if (settings_.idempotence) {
        batch.base_sequence = queue.next_sequence;
        queue.next_sequence = core::sequence_after(queue.next_sequence, batch.records.size());
      }
    }
    const auto& batch = fresh ? queue.unacked.back() : queue.unacked.front();
    batch->in_flight = true;
    out.push_back(batch);
    return true;
  });
  return out;
}

kafka::ProduceRequest Producer::Impl::request_of(const Batches& batches) const {
  kafka::ProduceRequest request;
  request.acks = settings_.acks;
  request.timeout_ms = static_cast<std::int32_t>(settings_.request_timeout_ms);
  std::size_t in_topics = 0;
  for (const auto& batch : batches) {
    auto& topics = request.topic_data;
    auto* at = core::find_from(topics, in_topics, [&](const auto& one) { return one.name == batch->queue->topic; });
    if (at == nullptr) {
      at = &topics.emplace_back();
      at->name = batch->queue->topic;
    }
    auto& partition = at->partition_data.emplace_back();
    partition.index = batch->queue->partition;
    partition.records.add(*batch->bytes, batch->bytes);
  }
  return request;
}

Co<void> Producer::Impl::exchange(std::int32_t id, std::shared_ptr<core::Connection> connection, Batches batches) {
  auto request = request_of(batches);
  counters_.requests.fetch_add(1, std::memory_order_relaxed);
  std::optional<Error> error;
  if (settings_.acks == 0) {
    const auto sent = connection->send_only(request, by_name);
    // In the kernel is all that we can know; a connection that broke before may have lost it.
    while (sent && connection->usable() && connection->unsent() > 0 && !loop_.closing())
      (void)co_await loop_.sleep(unsent_look);
    if (!sent) error = sent.error();
    if (sent && !connection->usable())
      error = failure(Trouble::disconnected, "the connection broke before everything was sent", true);
    if (!error) {
      for (const auto& batch : batches) written(batch, -1, -1);
    }
  } else {
    auto answer = co_await connection->call<kafka::ProduceResponse>(
        std::move(request), Milliseconds(settings_.request_timeout_ms), by_name);
    if (answer) {
      answered(batches, answer->body);
    } else {
      error = answer.error();
    }
  }
  if (error) {
    trouble_ = error->text;
    cluster_.mark_stale();
    for (const auto& batch : batches) failed(batch, *error);
  }
  --nodes_[id].in_flight;
  again();
}

}  // namespace ciuic::client
