#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/base/clock.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// What a consumer asks of one partition; with a session it is remembered between requests (KIP-227).
struct FetchPartition {
  std::string topic;
  kafka::TopicId topic_id;
  kafka::PartitionIndex partition{};
  kafka::Offset fetch_offset{};
  kafka::LeaderEpoch current_leader_epoch{-1};
  kafka::LeaderEpoch last_fetched_epoch{-1};
  std::int32_t max_bytes = 0;
  // What the client was told last: a session answers only what changed.
  kafka::Offset told_high_watermark{-1};
  kafka::Offset told_last_stable{-1};
  kafka::Offset told_log_start{-1};
  kafka::ErrorCode told_error = kafka::ErrorCode::none;
};

/// One client's session. Used by one request at a time (its epoch sees to that); guarded by `mutex` all the same.
struct FetchSession {
  std::mutex mutex;
  std::int32_t id = 0;
  std::int32_t next_epoch = 1;
  bool by_topic_id = false;
  bool privileged = false;
  std::vector<FetchPartition> partitions;  // in the order of answering; rotated, so that none is starved
  Clock::TimePoint last_used{};
};

/// All sessions, at most `max.incremental.fetch.session.cache.slots`; the longest unused one makes room once it was
/// idle for two minutes. Any thread.
class FetchSessions {
 public:
  FetchSessions(std::size_t slots, const Clock& clock) : slots_(slots), clock_(clock) {}
  /// A new session with these partitions; null when all slots are in use.
  [[nodiscard]] std::shared_ptr<FetchSession> create(std::vector<FetchPartition> partitions, bool by_topic_id);
  [[nodiscard]] std::shared_ptr<FetchSession> find(std::int32_t id);
  void remove(std::int32_t id);
  [[nodiscard]] std::size_t size() const;

 private:
  std::size_t slots_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::unordered_map<std::int32_t, std::shared_ptr<FetchSession>> sessions_;
};

}  // namespace ciuic::broker
