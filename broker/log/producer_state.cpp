// Producers and transactions of one partition, as Apache's ProducerStateManager keeps them. Not here: who may append at
// all, and the files (partition.cpp writes snapshots, recovery.cpp reads them).
#include "broker/log/producer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "broker/log/text_lines.h"
#include "transport/base/crc32c.h"
#include "transport/kafka/wire.h"

namespace ciuic::broker {

namespace {

constexpr std::int32_t sequence_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int16_t snapshot_version = 1;
constexpr std::size_t snapshot_header_bytes = 10;  // version, crc, count
constexpr std::size_t snapshot_entry_bytes = 46;

/// What a batch that was really appended says: its first offset and first sequence number exist.
bool sane(const ProducerState::Batch& batch) {
  return batch.last_sequence >= 0 && batch.offset_delta >= 0 && batch.last_offset.value >= batch.offset_delta;
}

bool follows(std::int32_t last, std::int32_t next) { return last == sequence_max ? next == 0 : next == last + 1; }

}  // namespace

std::int32_t ProducerState::Batch::first_sequence() const {
  if (last_sequence < 0) return -1;
  // Sequences wrap from 2^31 - 1 to 0.
  return offset_delta <= last_sequence ? last_sequence - offset_delta
                                       : sequence_max - (offset_delta - last_sequence) + 1;
}

ResultOf<ProducerState::Verdict, kafka::Error> ProducerState::check_client(const BatchInfo& batch) const {
  using kafka::ErrorCode;
  if (batch.producer_id < kafka::ProducerId(0)) return Verdict{};
  const auto known = producers_.find(batch.producer_id);
  if (known == producers_.end()) return Verdict{};
  const auto& producer = known->second;
  if (producer.epoch == batch.producer_epoch)
    for (const auto& one : producer.batches)
      if (one.first_sequence() == batch.base_sequence && one.last_sequence == batch.last_sequence) return Verdict{one};
  if (batch.producer_epoch < producer.epoch)
    return kafka::Error(ErrorCode::invalid_producer_epoch,
                        fmt::format("Epoch of producer {} is {}, which is smaller than the last seen epoch {}",
                                    batch.producer_id.value, batch.producer_epoch.value, producer.epoch.value));
  if (batch.producer_epoch != producer.epoch) {
    if (batch.base_sequence != 0 && producer.epoch != kafka::ProducerEpoch(-1))
      return kafka::Error(
          ErrorCode::out_of_order_sequence_number,
          fmt::format("Invalid sequence number for new epoch of producer {}: {} (request epoch), {} (seq. "
                      "number), {} (current producer epoch)",
                      batch.producer_id.value, batch.producer_epoch.value, batch.base_sequence, producer.epoch.value));
  } else {
    const auto last = producer.batches.empty() ? -1 : producer.batches.back().last_sequence;
    if (producer.epoch != kafka::ProducerEpoch(-1) && !follows(last, batch.base_sequence))
      return kafka::Error(ErrorCode::out_of_order_sequence_number,
                          fmt::format("Out of order sequence number for producer {}: {} (incoming seq. number), {} "
                                      "(current end sequence number)",
                                      batch.producer_id.value, batch.base_sequence, last));
  }
  if (producer.transaction_first && !batch.transactional && producer.epoch == batch.producer_epoch)
    return kafka::Error(ErrorCode::invalid_txn_state,
                        fmt::format("Expected transactional write from producer {}", batch.producer_id.value));
  return Verdict{};
}

ResultOf<void, kafka::Error> ProducerState::check_coordinator(const BatchInfo& batch) const {
  if (batch.producer_id < kafka::ProducerId(0)) return {};
  const auto known = producers_.find(batch.producer_id);
  if (known == producers_.end()) return {};
  if (batch.producer_epoch < known->second.epoch)
    return kafka::Error(kafka::ErrorCode::invalid_producer_epoch,
                        fmt::format("Epoch of producer {} is {}, which is smaller than the last seen epoch {}",
                                    batch.producer_id.value, batch.producer_epoch.value, known->second.epoch.value));
  if (batch.marker && batch.marker->coordinator_epoch < known->second.coordinator_epoch)
    return kafka::Error(
        kafka::ErrorCode::transaction_coordinator_fenced,
        fmt::format("Invalid coordinator epoch for producer {}: {} (zombie), {} (current)", batch.producer_id.value,
                    batch.marker->coordinator_epoch, known->second.coordinator_epoch));
  return {};
}

void ProducerState::begin_or_continue(Producer& producer, const BatchInfo& batch) {
  if (producer.epoch != batch.producer_epoch) {
    producer.epoch = batch.producer_epoch;
    producer.batches.clear();
  }
  if (producer.batches.size() == batches_remembered) producer.batches.erase(producer.batches.begin());
  producer.batches.push_back({batch.last_sequence, batch.last_offset,
                              static_cast<std::int32_t>(batch.last_offset - batch.base_offset), batch.max_timestamp});
  producer.last_timestamp = batch.max_timestamp;
  if (batch.transactional && !producer.transaction_first) {
    producer.transaction_first = batch.base_offset;
    open_[batch.base_offset] = batch.producer_id;
  }
}

std::optional<AbortedRange> ProducerState::appended(const BatchInfo& batch) {
  if (batch.producer_id < kafka::ProducerId(0)) return std::nullopt;
  if (batch.control && !batch.marker) return std::nullopt;
  auto& producer = producers_[batch.producer_id];
  if (!batch.control) {
    begin_or_continue(producer, batch);
    return std::nullopt;
  }
  if (producer.epoch != batch.producer_epoch) {
    producer.epoch = batch.producer_epoch;
    producer.batches.clear();
  }
  producer.coordinator_epoch = batch.marker->coordinator_epoch;
  producer.last_timestamp = batch.max_timestamp;
  if (!producer.transaction_first) return std::nullopt;
  const auto first = *producer.transaction_first;
  producer.transaction_first.reset();
  open_.erase(first);
  // The last stable offset as it is once this marker counts: what the index entry says so that a reader may stop there.
  const auto stable = open_.empty() ? batch.last_offset + 1 : open_.begin()->first;
  ended_[first] = batch.last_offset;
  if (batch.marker->commit) return std::nullopt;
  return AbortedRange{batch.producer_id, first, batch.last_offset, stable};
}

std::optional<kafka::Offset> ProducerState::first_unstable(kafka::Offset high_watermark) const {
  std::optional<kafka::Offset> first;
  if (!open_.empty()) first = open_.begin()->first;
  for (const auto& [start, marker] : ended_) {
    if (marker < high_watermark) continue;
    if (!first || start < *first) first = start;
    break;
  }
  return first;
}

void ProducerState::high_watermark_moved(kafka::Offset high_watermark) {
  std::erase_if(ended_, [high_watermark](const auto& one) { return one.second < high_watermark; });
}

void ProducerState::expire(std::int64_t now_ms, std::int64_t expiration_ms) {
  std::erase_if(producers_, [=](const auto& one) {
    // Not a difference: a timestamp may be any number.
    return !one.second.transaction_first && one.second.last_timestamp <= now_ms - expiration_ms;
  });
}

void ProducerState::log_start_moved(kafka::Offset log_start) {
  std::erase_if(ended_, [log_start](const auto& one) { return one.second < log_start; });
}

void ProducerState::clear() {
  producers_.clear();
  open_.clear();
  ended_.clear();
}

std::optional<kafka::Offset> ProducerState::earliest_open_transaction() const {
  if (open_.empty()) return std::nullopt;
  return open_.begin()->first;
}

Buffer ProducerState::to_snapshot() const {
  Buffer bytes;
  bytes.reserve(snapshot_header_bytes + producers_.size() * snapshot_entry_bytes);
  kafka::WireWriter out(bytes);
  out.number(snapshot_version);
  out.number(std::uint32_t{0});
  out.number(static_cast<std::int32_t>(producers_.size()));
  for (const auto& [id, producer] : producers_) {
    const auto last = producer.batches.empty() ? Batch{-1, kafka::Offset(-1), 0, -1} : producer.batches.back();
    out.number(id.value);
    out.number(producer.epoch.value);
    out.number(last.last_sequence);
    out.number(last.last_offset.value);
    out.number(last.offset_delta);
    out.number(producer.last_timestamp);
    out.number(producer.coordinator_epoch);
    out.number(producer.transaction_first ? producer.transaction_first->value : std::int64_t{-1});
  }
  kafka::store_be(bytes.data() + 2, crc32c(Bytes(bytes).subspan(6)));
  return bytes;
}

bool ProducerState::load_snapshot(Bytes bytes) {
  clear();
  kafka::WireReader in(bytes);
  const auto version = in.number<std::int16_t>();
  const auto crc = in.number<std::uint32_t>();
  if (!in.ok() || version != snapshot_version || crc != crc32c(in.rest())) return false;
  const auto count = in.number<std::int32_t>();
  if (!in.ok() || count < 0 || static_cast<std::size_t>(count) > in.left() / snapshot_entry_bytes) return false;
  const auto refuse = [this] {
    clear();
    return false;
  };
  for (std::int32_t i = 0; i < count; ++i) {
    const kafka::ProducerId id(in.number<std::int64_t>());
    Producer producer;
    producer.epoch = kafka::ProducerEpoch(in.number<std::int16_t>());
    Batch last;
    last.last_sequence = in.number<std::int32_t>();
    last.last_offset = kafka::Offset(in.number<std::int64_t>());
    last.offset_delta = in.number<std::int32_t>();
    last.timestamp = producer.last_timestamp = in.number<std::int64_t>();
    producer.coordinator_epoch = in.number<std::int32_t>();
    const auto first = in.number<std::int64_t>();
    if (last.last_sequence >= 0) {
      if (!sane(last)) return refuse();
      producer.batches.push_back(last);
    }
    if (first >= 0) {
      producer.transaction_first = kafka::Offset(first);
      if (!open_.emplace(first, id).second) return refuse();
    }
    if (!producers_.emplace(id, std::move(producer)).second) return refuse();
  }
  return true;
}

std::string ProducerState::recent_batches_text() const {
  std::string text = "0\n";
  for (const auto& [id, producer] : producers_)
    for (const auto& batch : producer.batches)
      text += fmt::format("{} {} {} {} {} {}\n", id.value, producer.epoch.value, batch.last_sequence,
                          batch.last_offset.value, batch.offset_delta, batch.timestamp);
  return text;
}

void ProducerState::load_recent_batches(std::string_view text) {
  TextLines lines(text);
  if (lines.line() != "0") return;
  std::unordered_map<kafka::ProducerId, std::vector<Batch>> found;
  while (!lines.at_end()) {
    const auto words = lines.words();
    if (words.size() != 6) return;
    const auto id = number<std::int64_t>(words[0]);
    const auto epoch = number<std::int16_t>(words[1]);
    const auto sequence = number<std::int32_t>(words[2]);
    const auto offset = number<std::int64_t>(words[3]);
    const auto delta = number<std::int32_t>(words[4]);
    const auto timestamp = number<std::int64_t>(words[5]);
    if (!id || !epoch || !sequence || !offset || !delta || !timestamp) return;
    const Batch batch{*sequence, kafka::Offset(*offset), *delta, *timestamp};
    if (!sane(batch)) return;
    const auto producer = producers_.find(kafka::ProducerId(*id));
    if (producer == producers_.end() || producer->second.epoch != kafka::ProducerEpoch(*epoch)) continue;
    found[producer->first].push_back(batch);
  }
  for (auto& [id, batches] : found) {
    auto& producer = producers_[id];
    const bool agrees = !producer.batches.empty() && batches.size() <= batches_remembered &&
                        batches.back().last_sequence == producer.batches.back().last_sequence &&
                        batches.back().last_offset == producer.batches.back().last_offset;
    if (agrees) producer.batches = std::move(batches);
  }
}

}  // namespace ciuic::broker
