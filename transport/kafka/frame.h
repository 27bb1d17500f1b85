#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "transport/base/bytes.h"

namespace ciuic::kafka {

/// Encoded bytes ready to be written: a head of our own, cut by spans of records that stay where they are.
class Frame {
 public:
  /// `at`: where in the head the span is spliced in.
  struct Splice {
    std::size_t at;
    Bytes bytes;
  };

  [[nodiscard]] std::size_t size() const {
    std::size_t total = head.size();
    for (const auto& splice : splices) total += splice.bytes.size();
    return total;
  }
  /// The pieces in order of writing. Valid while the frame is neither changed nor moved from.
  [[nodiscard]] std::vector<Bytes> gather() const;
  /// One copy of everything, for tests and small messages.
  [[nodiscard]] Buffer flatten() const;

  Buffer head{};
  std::vector<Splice> splices{};
  std::vector<std::shared_ptr<const void>> pins{};
};

}  // namespace ciuic::kafka
