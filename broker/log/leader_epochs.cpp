// Leader epochs of a partition: a short sorted list. Not here: the file (segment writers call to_text).
#include "broker/log/leader_epochs.h"

#include <fmt/format.h>

#include <algorithm>

#include "broker/log/text_lines.h"

namespace ciuic::broker {

bool LeaderEpochs::assign(kafka::LeaderEpoch epoch, kafka::Offset start) {
  if (epoch < kafka::LeaderEpoch(0) || (!entries_.empty() && epoch <= entries_.back().epoch)) return false;
  // An epoch that began where nothing was written is superseded.
  while (!entries_.empty() && entries_.back().start >= start) entries_.pop_back();
  entries_.push_back({epoch, start});
  return true;
}

kafka::LeaderEpoch LeaderEpochs::latest() const {
  return entries_.empty() ? kafka::no_leader_epoch : entries_.back().epoch;
}

kafka::LeaderEpoch LeaderEpochs::epoch_of(kafka::Offset offset) const {
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), offset,
                                      [](kafka::Offset at, const Entry& entry) { return at < entry.start; });
  return after == entries_.begin() ? kafka::no_leader_epoch : std::prev(after)->epoch;
}

std::optional<LeaderEpochs::Entry> LeaderEpochs::end_of(kafka::LeaderEpoch epoch, kafka::Offset log_end) const {
  if (epoch < kafka::LeaderEpoch(0) || entries_.empty() || epoch > entries_.back().epoch) return std::nullopt;
  if (epoch == entries_.back().epoch) return Entry{epoch, log_end};
  const auto higher = std::upper_bound(entries_.begin(), entries_.end(), epoch,
                                       [](kafka::LeaderEpoch at, const Entry& entry) { return at < entry.epoch; });
  if (higher == entries_.begin()) return Entry{epoch, higher->start};
  return Entry{std::prev(higher)->epoch, higher->start};
}

bool LeaderEpochs::truncate_from_end(kafka::Offset end) {
  const auto before = entries_.size();
  while (!entries_.empty() && entries_.back().start >= end) entries_.pop_back();
  return entries_.size() != before;
}

bool LeaderEpochs::truncate_from_start(kafka::Offset start) {
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), start,
                                      [](kafka::Offset at, const Entry& entry) { return at < entry.start; });
  if (after == entries_.begin()) return false;
  const auto holds = std::prev(after);
  if (holds == entries_.begin() && holds->start == start) return false;
  if (holds == entries_.begin() && holds->start > start) return false;
  holds->start = start;
  entries_.erase(entries_.begin(), holds);
  return true;
}

std::string LeaderEpochs::to_text() const {
  auto text = fmt::format("0\n{}\n", entries_.size());
  for (const auto& entry : entries_) text += fmt::format("{} {}\n", entry.epoch.value, entry.start.value);
  return text;
}

std::optional<LeaderEpochs> LeaderEpochs::parse(std::string_view text) {
  TextLines lines(text);
  const auto version = lines.number<int>();
  const auto count = lines.number<std::size_t>();
  if (version != 0 || !count) return std::nullopt;
  LeaderEpochs epochs;
  for (std::size_t i = 0; i < *count; ++i) {
    const auto words = lines.words();
    if (words.size() != 2) return std::nullopt;
    const auto epoch = number<std::int32_t>(words[0]);
    const auto start = number<std::int64_t>(words[1]);
    if (!epoch || !start) return std::nullopt;
    epochs.assign(kafka::LeaderEpoch(*epoch), kafka::Offset(*start));
  }
  return epochs;
}

}  // namespace ciuic::broker
