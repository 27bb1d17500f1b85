#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "transport/base/bytes.h"

namespace ciuic::kafka {

/// A `records` field: zero or more record batches as spans that are never copied. Decoding gives one span into the
/// frame that was decoded; a Fetch answer is a list of spans into log chunks, each kept alive by its pin.
class Records {
 public:
  Records() = default;  // null on the wire where that is allowed
  explicit Records(Bytes borrowed) : present_(true) {
    if (!borrowed.empty()) pieces_.push_back(borrowed);
  }

  [[nodiscard]] bool is_null() const { return !present_; }
  [[nodiscard]] std::size_t size() const { return size_of(pieces_); }
  [[nodiscard]] bool empty() const { return pieces_.empty(); }
  [[nodiscard]] const std::vector<Bytes>& pieces() const { return pieces_; }
  [[nodiscard]] const std::vector<std::shared_ptr<const void>>& pins() const { return pins_; }
  /// The only piece, or nothing: what decoding gives.
  [[nodiscard]] Bytes single() const { return pieces_.size() == 1 ? pieces_.front() : Bytes{}; }

  /// Appends a span; `pin` (may be null) keeps its memory until the answer has been written.
  void add(Bytes piece, std::shared_ptr<const void> pin) {
    present_ = true;
    if (!piece.empty()) pieces_.push_back(piece);
    if (pin) pins_.push_back(std::move(pin));
  }
  /// Same bytes, however they are cut.
  friend bool operator==(const Records& a, const Records& b);
  /// Present and empty, as Kafka answers where there is nothing to read.
  [[nodiscard]] static Records none() { return Records(Bytes{}); }

 private:
  static std::size_t size_of(const std::vector<Bytes>& pieces) {
    std::size_t total = 0;
    for (const auto piece : pieces) total += piece.size();
    return total;
  }
  bool present_ = false;
  std::vector<Bytes> pieces_{};
  std::vector<std::shared_ptr<const void>> pins_{};
};

}  // namespace ciuic::kafka
