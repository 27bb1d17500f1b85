#pragma once
#include <optional>
#include <string>
#include <vector>

#include "transport/kafka/types.h"

namespace ciuic::broker {

/// Which leader epoch began at which offset: `leader-epoch-checkpoint` of a partition. A value; owner's thread.
class LeaderEpochs {
 public:
  struct Entry {
    kafka::LeaderEpoch epoch;
    kafka::Offset start;
    auto operator<=>(const Entry&) const = default;
  };

  /// Notes that `epoch` begins at `start`. True if that was news (and the checkpoint must be written again).
  bool assign(kafka::LeaderEpoch epoch, kafka::Offset start);
  [[nodiscard]] kafka::LeaderEpoch latest() const;
  /// Epoch of the batch at `offset`; -1 if unknown.
  [[nodiscard]] kafka::LeaderEpoch epoch_of(kafka::Offset offset) const;
  /// The largest epoch not above `epoch` and where it ends (KIP-101/279); nothing if `epoch` is unknown here.
  [[nodiscard]] std::optional<Entry> end_of(kafka::LeaderEpoch epoch, kafka::Offset log_end) const;
  /// The log now ends at `end`. True if entries went.
  bool truncate_from_end(kafka::Offset end);
  /// The log now starts at `start`. True if entries changed.
  bool truncate_from_start(kafka::Offset start);
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  /// Apache's text: version 0, count, `epoch startOffset` lines.
  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static std::optional<LeaderEpochs> parse(std::string_view text);

 private:
  std::vector<Entry> entries_;
};

}  // namespace ciuic::broker
