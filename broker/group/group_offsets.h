#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/kafka/types.h"

namespace ciuic::broker {

struct CommittedOffset {
  kafka::Offset offset{};
  kafka::LeaderEpoch leader_epoch = kafka::no_leader_epoch;
  std::string metadata{};
  std::int64_t commit_ms = 0;
  std::optional<std::int64_t> expire_ms{};  ///< an old client's own retention
  kafka::TopicId topic_id{};
};

/// The committed offsets of one group, with what is being appended and what open transactions hold back.
class GroupOffsets {
 public:
  /// A commit (or tombstone) for `at` is on its way to the log …
  void begin(const kafka::TopicPartition& at) { ++entries_[at].in_flight; }
  /// … and ended there: applied in log order, so the last write wins. `stored` nothing: the append failed.
  void end(const kafka::TopicPartition& at, std::optional<CommittedOffset> stored);

  void set(const kafka::TopicPartition& at, CommittedOffset offset) { entries_[at].value = std::move(offset); }
  void erase(const kafka::TopicPartition& at);
  [[nodiscard]] const CommittedOffset* find(const kafka::TopicPartition& at) const;
  /// True if nothing is committed, on its way, or pending in a transaction.
  [[nodiscard]] bool empty() const { return entries_.empty() && pending_.empty(); }
  /// Every committed offset, by topic, then partition.
  void each(const std::function<void(const kafka::TopicPartition&, const CommittedOffset&)>& call) const;
  /// What a tombstone must name so that nothing comes back: committed or on its way.
  [[nodiscard]] std::vector<kafka::TopicPartition> all() const;
  [[nodiscard]] bool in_flight(const kafka::TopicPartition& at) const;

  // Transactional commits, as read back from the log (KIP-98).
  void set_pending(kafka::ProducerId producer, const kafka::TopicPartition& at, CommittedOffset offset);
  void end_transaction(kafka::ProducerId producer, bool committed);
  /// True where an open transaction will change the offset (require_stable).
  [[nodiscard]] bool unstable(const kafka::TopicPartition& at) const;
  [[nodiscard]] bool any_pending() const { return !pending_.empty(); }

 private:
  struct Entry {
    std::optional<CommittedOffset> value{};
    int in_flight = 0;
  };
  std::map<kafka::TopicPartition, Entry> entries_;
  std::map<kafka::ProducerId, std::map<kafka::TopicPartition, CommittedOffset>> pending_;
};

}  // namespace ciuic::broker
