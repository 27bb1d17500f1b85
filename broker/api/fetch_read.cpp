// Reading for Fetch: one closure a shard, long poll by the logs' own events. Not here: sessions and the wire
// (fetch.cpp).
#include "broker/api/fetch_read.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <map>

#include "broker/api/async.h"
#include "broker/log_events.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker::api {
namespace {

/// A partition of the request and where its answer goes.
struct Part {
  std::shared_ptr<Partition> partition;
  std::size_t index = 0;
  ReadRequest read;
  kafka::LeaderEpoch leader_epoch;  // ours, by the image
  kafka::LeaderEpoch current;       // the client's
  kafka::LeaderEpoch last_fetched;
  bool watched = false;  // its owner's to set; read when the round is over
};

/// One round over all partitions.
struct Round {
  std::vector<FetchAnswer>* answers = nullptr;
  std::vector<Part> parts;
  FetchLimits limits;
  std::atomic<std::size_t> left{0};
  std::atomic<std::uint64_t> gathered{0};  // bytes found, or being loaded
  std::function<void(bool)> resume;
  LogEvents* events = nullptr;
  LogEvents::Ticket wake;  // null: this round does not wait
  void done() {
    if (left.fetch_sub(1) == 1) resume(true);
  }
};

ErrorCode check_epoch(kafka::LeaderEpoch client, kafka::LeaderEpoch ours) {
  if (client.value < 0 || client == ours) return ErrorCode::none;
  return client < ours ? ErrorCode::fenced_leader_epoch : ErrorCode::unknown_leader_epoch;
}

/// On the partition's shard. Ends by `round->done()`, at once or when the bytes came from disk.
void read_part(const std::shared_ptr<Round>& round, Part& part, bool after_load) {
  auto& answer = (*round->answers)[part.index];
  auto& partition = *part.partition;
  answer.error = check_epoch(part.current, part.leader_epoch);
  if (answer.error != ErrorCode::none) return round->done();
  if (part.last_fetched.value >= 0) {  // KIP-320: does the client's log agree with ours so far?
    const auto end = partition.end_offset_for_epoch(part.last_fetched);
    if (end.leader_epoch.value >= 0 && (end.leader_epoch < part.last_fetched || end.end_offset < part.read.offset)) {
      answer.diverging = end;
      answer.read.high_watermark = partition.high_watermark();
      answer.read.last_stable_offset = partition.last_stable_offset();
      answer.read.log_start_offset = partition.log_start_offset();
      return round->done();
    }
  }
  auto read = partition.read(part.read);
  if (!read) {
    answer.error = read.error().code;
    answer.read.high_watermark = partition.high_watermark();
    answer.read.last_stable_offset = partition.last_stable_offset();
    answer.read.log_start_offset = partition.log_start_offset();
    return round->done();
  }
  const auto limit = static_cast<std::uint64_t>(round->limits.max_bytes);
  if (read->miss && read->bytes == 0 && !after_load && round->gathered.load() < std::max<std::uint64_t>(limit, 1)) {
    const auto wanted = std::max<std::uint32_t>(part.read.max_bytes, 1);
    round->gathered.fetch_add(wanted);  // a response's worth is loaded, not every partition of the request
    partition.bring_in(*read->miss, wanted, MemoryFor::fetch,
                       [round, &part](ResultOf<std::shared_ptr<Chunk>, kafka::Error> chunk) {
                         if (!chunk && chunk.error().code != ErrorCode::throttling_quota_exceeded) {
                           (*round->answers)[part.index].error = chunk.error().code;
                           return round->done();
                         }
                         read_part(round, part, true);  // the callback's `chunk` pins it meanwhile
                       });
    return;
  }
  answer.read = std::move(*read);
  if (!after_load) round->gathered.fetch_add(answer.read.bytes);
  if (round->wake && answer.read.bytes < static_cast<std::uint64_t>(round->limits.min_bytes)) {
    part.watched = true;
    round->events->watch(partition, round->wake);
  }
  round->done();
}

/// Cuts whole batches off the end until at most `limit` bytes are left; the first batch may stay although it is larger.
void trim(ReadResult& read, std::uint64_t limit, bool keep_first) {
  std::vector<Bytes> kept;
  std::uint64_t total = 0;
  bool full = false;
  for (const auto span : read.spans) {
    std::size_t at = 0;
    while (at < span.size()) {
      const auto size = kafka::batch_size(span.subspan(at));
      if (!size) break;
      if (total + *size > limit && !(keep_first && total == 0)) {
        full = true;
        break;
      }
      total += *size;
      at += *size;
    }
    if (at > 0) kept.push_back(span.first(at));
    if (full) break;
  }
  read.spans = std::move(kept);
  read.bytes = total;
}

}  // namespace

Awaitable<std::vector<FetchAnswer>> read_partitions(RequestContext& context,
                                                    const std::vector<FetchPartition>& partitions, FetchLimits limits) {
  std::vector<FetchAnswer> answers(partitions.size());
  const auto& clock = *context.broker.clock;
  const auto deadline = clock.now() + Milliseconds(std::max(limits.max_wait_ms, 0));
  for (;;) {
    const auto image = context.image();
    auto round = std::make_shared<Round>();
    round->answers = &answers;
    round->limits = limits;
    round->events = context.broker.events;
    bool failed = false;
    for (std::size_t i = 0; i < partitions.size(); ++i) {
      const auto& wanted = partitions[i];
      answers[i] = {};
      auto& error = answers[i].error;
      const auto* topic = wanted.topic_id.is_zero() ? image->topic(wanted.topic) : image->topic(wanted.topic_id);
      const auto* state = topic == nullptr ? nullptr : topic->partition(wanted.partition);
      if (topic == nullptr) {
        error = wanted.topic_id.is_zero() ? ErrorCode::unknown_topic_or_partition : ErrorCode::unknown_topic_id;
      } else if (!context.allowed(Operation::read, Resource::topic, topic->name)) {
        error = ErrorCode::topic_authorization_failed;
      } else if (state == nullptr) {
        error = ErrorCode::unknown_topic_or_partition;
      } else if (auto partition = context.broker.partitions->find(topic->id, wanted.partition); !partition) {
        error = ErrorCode::not_leader_or_follower;
      } else {
        Part part;
        part.partition = std::move(partition);
        part.index = i;
        part.read.offset = wanted.fetch_offset;
        part.read.max_bytes = static_cast<std::uint32_t>(std::clamp(wanted.max_bytes, 0, limits.max_bytes));
        part.read.isolation = limits.isolation;
        part.leader_epoch = state->leader_epoch;
        part.current = wanted.current_leader_epoch;
        part.last_fetched = wanted.last_fetched_epoch;
        round->parts.push_back(std::move(part));
      }
      failed = failed || error != ErrorCode::none;
    }

    const auto now = clock.now();
    const bool may_wait = !failed && now < deadline && limits.min_bytes > 0 && !context.connection->is_leaving();
    auto timer = std::make_shared<boost::asio::steady_timer>(context.connection->executor(),
                                                             boost::asio::steady_timer::time_point::max());
    auto woken = std::make_shared<std::atomic<bool>>(false);
    if (may_wait) {
      // Called on a log's shard; the timer belongs to ours.
      round->wake = std::make_shared<std::function<void()>>([timer, woken, &shard = context.shard] {
        if (!woken->exchange(true)) shard.post([timer] { timer->cancel(); });
      });
    }
    if (!round->parts.empty()) {
      std::map<Executor*, std::vector<Part*>> by_owner;
      for (auto& part : round->parts) by_owner[&part.partition->executor()].push_back(&part);
      round->left = round->parts.size();
      co_await await_callback<bool>([&](auto resume) {
        round->resume = std::move(resume);
        for (auto& [owner, mine] : by_owner) {
          auto work = [round, mine = std::move(mine)] {
            for (auto* part : mine) read_part(round, *part, false);
          };
          if (owner->is_current()) {
            work();
          } else {
            owner->post(std::move(work));
          }
        }
      });
    }

    std::uint64_t total = 0;
    bool has_error = failed;
    for (const auto& answer : answers) {
      total += answer.read.bytes;
      has_error = has_error || answer.error != ErrorCode::none || answer.diverging.leader_epoch.value >= 0;
    }
    const bool enough = !may_wait || has_error || total >= static_cast<std::uint64_t>(std::max(limits.min_bytes, 0)) ||
                        total >= static_cast<std::uint64_t>(limits.max_bytes);
    if (!enough && !woken->load() && !context.connection->is_leaving()) {
      boost::system::error_code error;
      timer->expires_at(boost::asio::steady_timer::time_point(
          std::chrono::duration_cast<boost::asio::steady_timer::duration>(deadline.time_since_epoch())));
      if (!woken->load()) co_await timer->async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, error));
    }
    if (round->wake) {
      for (const auto& part : round->parts) {
        if (!part.watched) continue;
        part.partition->executor().post(
            [round, partition = part.partition] { round->events->forget(*partition, round->wake); });
      }
    }
    if (enough || context.connection->is_leaving()) break;
    if (!woken->load() && clock.now() >= deadline) break;
  }

  // Whole-response limit: the first partition with data gets at least one batch, the others what is left.
  auto left = static_cast<std::uint64_t>(std::max(limits.max_bytes, 0));
  bool first = true;
  for (auto& answer : answers) {
    if (answer.read.bytes == 0) continue;
    if (answer.read.bytes > left || (!first && answer.read.bytes > 0 && left == 0)) trim(answer.read, left, first);
    left -= std::min(left, answer.read.bytes);
    if (answer.read.bytes > 0) first = false;
  }
  co_return answers;
}

}  // namespace ciuic::broker::api
