// Committed offsets of one group. Not here: when they expire (group_shard_upkeep.cpp), how they are written
// (group_records.cpp).
#include "broker/group/group_offsets.h"

#include <algorithm>
#include <utility>

namespace ciuic::broker {

void GroupOffsets::end(const kafka::TopicPartition& at, std::optional<CommittedOffset> stored) {
  const auto found = entries_.find(at);
  if (found == entries_.end()) return;
  auto& entry = found->second;
  if (entry.in_flight > 0) --entry.in_flight;
  if (stored) entry.value = std::move(stored);
  if (!entry.value && entry.in_flight == 0) entries_.erase(found);
}

void GroupOffsets::erase(const kafka::TopicPartition& at) {
  const auto found = entries_.find(at);
  if (found == entries_.end()) return;
  found->second.value.reset();
  if (found->second.in_flight == 0) entries_.erase(found);
}

const CommittedOffset* GroupOffsets::find(const kafka::TopicPartition& at) const {
  const auto found = entries_.find(at);
  return found != entries_.end() && found->second.value ? &*found->second.value : nullptr;
}

void GroupOffsets::each(const std::function<void(const kafka::TopicPartition&, const CommittedOffset&)>& call) const {
  for (const auto& [at, entry] : entries_) {
    if (entry.value) call(at, *entry.value);
  }
}

std::vector<kafka::TopicPartition> GroupOffsets::all() const {
  std::vector<kafka::TopicPartition> every;
  every.reserve(entries_.size());
  for (const auto& [at, entry] : entries_) every.push_back(at);
  return every;
}

bool GroupOffsets::in_flight(const kafka::TopicPartition& at) const {
  const auto found = entries_.find(at);
  return found != entries_.end() && found->second.in_flight > 0;
}

void GroupOffsets::set_pending(kafka::ProducerId producer, const kafka::TopicPartition& at, CommittedOffset offset) {
  pending_[producer][at] = std::move(offset);
}

void GroupOffsets::end_transaction(kafka::ProducerId producer, bool committed) {
  const auto found = pending_.find(producer);
  if (found == pending_.end()) return;
  if (committed) {
    for (auto& [at, offset] : found->second) set(at, std::move(offset));
  }
  pending_.erase(found);
}

bool GroupOffsets::unstable(const kafka::TopicPartition& at) const {
  return std::any_of(pending_.begin(), pending_.end(), [&](const auto& open) { return open.second.count(at) != 0; });
}

}  // namespace ciuic::broker
