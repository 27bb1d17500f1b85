#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transport/base/bytes.h"

namespace ciuic::fuzz {

/// A broken promise ends the run, so that libFuzzer keeps the input.
inline void must(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: does not hold\n", file, line);
  std::abort();
}

/// A fuzzer's bytes taken from the front; behind the end there are zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(std::as_bytes(std::span(data, size))) {}

  [[nodiscard]] bool empty() const { return left_.empty(); }
  [[nodiscard]] Bytes rest() const { return left_; }
  template <class T>
  [[nodiscard]] T number() {
    T value{};
    const auto from = bytes(sizeof value);
    if (!from.empty()) std::memcpy(&value, from.data(), from.size());
    return value;
  }
  [[nodiscard]] Bytes bytes(std::size_t count) {
    const auto taken = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  /// A length (two bytes), then as many bytes.
  [[nodiscard]] Bytes piece() {
    const auto count = number<std::uint16_t>();
    return bytes(count);
  }

 private:
  Bytes left_;
};

}  // namespace ciuic::fuzz
