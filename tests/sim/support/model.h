#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::sim {

/// What was produced to one partition, and what a reader may therefore see. A batch carries its number as every
/// record's key, and each record its place in the batch as its value.
class Model {
 public:
  struct Batch {
    int records = 0;
    std::optional<std::int64_t> base{};  ///< known once acknowledged, or once seen
    std::optional<kafka::ProducerId> transaction{};
  };
  int add(int records, std::optional<kafka::ProducerId> transaction) {
    batches_.push_back({records, {}, transaction});
    return static_cast<int>(batches_.size()) - 1;
  }
  void acknowledged(int batch, kafka::Offset base) {
    place(batch, base.value);
    acknowledged_end_ = std::max(acknowledged_end_, base.value + batches_[static_cast<std::size_t>(batch)].records);
  }
  void marker_acknowledged(kafka::Offset at) { acknowledged_end_ = std::max(acknowledged_end_, at.value + 1); }
  void transaction_ends(kafka::ProducerId id, bool commit) { committed_[id.value] = commit; }
  [[nodiscard]] std::int64_t acknowledged_end() const { return acknowledged_end_; }

  /// Nothing: the batch is what was produced at its place. Else what is wrong.
  [[nodiscard]] std::optional<std::string> check(const kafka::RecordBatchView& batch) {
    Buffer scratch;
    auto reader = kafka::RecordReader::open(batch, scratch, 1U << 30);
    if (!reader) return "records cannot be read";
    int at = 0;
    while (const auto record = reader->next()) {
      if (record->offset.value != batch.base_offset().value + at) return "an offset inside a batch is wrong";
      if (batch.control()) {
        const auto type = kafka::control_type(*record);
        const auto known = committed_.find(batch.producer_id().value);
        if (!type || known == committed_.end() || known->second != (*type == kafka::ControlType::commit))
          return "a marker says something else than was decided";
        ++at;
        continue;
      }
      if (!record->key || !record->value) return "a record without key or value";
      const auto number = std::stoll("0" + std::string(as_text(*record->key)));
      if (number < 0 || number >= static_cast<std::int64_t>(batches_.size()))
        return "a record that was never produced here";
      const auto& produced = batches_[static_cast<std::size_t>(number)];
      if (std::stoi(std::string(as_text(*record->value))) != at) return "a record at the wrong place of its batch";
      if (produced.transaction.value_or(kafka::no_producer_id) != batch.producer_id())
        return "a batch of the wrong producer";
      if (at == 0 && !place(static_cast<int>(number), record->offset.value))
        return "a batch at two places, or two at one";
      ++at;
    }
    if (reader->error() != nullptr) return reader->error();
    if (at != batch.record_count() || batch.last_offset_delta() + 1 != at) return "records are missing in a batch";
    return std::nullopt;
  }
  [[nodiscard]] std::optional<bool> committed(kafka::ProducerId id) const {
    const auto known = committed_.find(id.value);
    return known == committed_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  bool place(int number, std::int64_t base) {
    auto& batch = batches_[static_cast<std::size_t>(number)];
    const auto [at, fresh] = at_.emplace(base, number);
    if (!fresh && at->second != number) return false;
    if (batch.base && *batch.base != base) return false;
    batch.base = base;
    return true;
  }
  std::vector<Batch> batches_;
  std::map<std::int64_t, int> at_;
  std::map<std::int64_t, bool> committed_;
  std::int64_t acknowledged_end_ = 0;
};

}  // namespace ciuic::sim
