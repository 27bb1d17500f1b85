#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "transport/kafka/records.h"
#include "transport/kafka/types.h"

namespace ciuic::kafka::testing {

/// A fourth reader of a message's walk: puts random values into every field that the version carries.
class Filler {
 public:
  explicit Filler(std::mt19937_64& dice) : dice_(dice) {}

  template <class T>
  void number(T& value) {
    if constexpr (std::is_same_v<T, Uuid>) {
      for (auto& byte : value.bytes) byte = static_cast<std::uint8_t>(dice_());
    } else if constexpr (std::is_same_v<T, bool>) {
      value = hits(2);
    } else {
      value = static_cast<T>(hits(3) ? dice_() % 4 : dice_());
    }
  }
  void string(std::string& s, bool) { fill(s); }
  void string(std::optional<std::string>& s, bool, bool nullable) { optional(s, nullable); }
  void bytes(Buffer& b, bool) { fill(b); }
  void bytes(std::optional<Buffer>& b, bool, bool nullable) { optional(b, nullable); }
  void records(Records& r, bool, bool nullable) {
    r = Records();
    if (nullable && hits(4)) return;
    for (auto pieces = dice_() % 3 + 1; pieces > 0; --pieces) {
      const auto owned = std::make_shared<Buffer>();
      fill(*owned);
      r.add(*owned, owned);
    }
  }
  template <class V, class F>
  void array(V& v, bool, std::size_t, F&& each) {
    v.clear();
    ++depth_;
    for (auto left = dice_() % (hits(8) && depth_ == 1 ? 200 : depth_ > 2 ? 2 : 4); left > 0; --left)
      each(v.emplace_back());
    --depth_;
  }
  template <class V, class F>
  void array(std::optional<V>& v, bool flexible, bool nullable, std::size_t smallest, F&& each) {
    v.reset();
    if (nullable && hits(4)) return;
    array(v.emplace(), flexible, smallest, each);
  }
  template <class S, class F>
  void structure(std::optional<S>& s, F&& walk_it) {
    s.reset();
    if (hits(2)) walk_it(s.emplace());
  }
  template <class F>
  void tags(F&& fields) {
    Tag tag{*this};
    fields(tag);
  }

 private:
  struct Tag {
    Filler& in;
    template <class F>
    void field(std::uint32_t, bool carried, bool, F&& content) {
      if (carried && in.hits(2)) content(in);
    }
  };
  [[nodiscard]] bool hits(unsigned one_in) { return dice_() % one_in == 0; }
  template <class T>
  void fill(T& text) {
    text.resize(hits(16) ? dice_() % 400 : dice_() % 20);
    for (auto& c : text) c = static_cast<typename T::value_type>(dice_());
  }
  template <class T>
  void optional(std::optional<T>& value, bool nullable) {
    value.reset();
    if (!nullable || !hits(4)) fill(value.emplace());
  }

  std::mt19937_64& dice_;
  int depth_ = 0;
};

}  // namespace ciuic::kafka::testing
