#pragma once
#include <compare>
#include <cstddef>
#include <functional>

namespace ciuic {

/// A number with a meaning: two kinds do not mix, and neither is made from a bare number by accident.
template <class Number, class Tag>
struct Strong {
  using Value = Number;
  Number value{};

  constexpr Strong() = default;
  constexpr explicit Strong(Number number) : value(number) {}
  constexpr auto operator<=>(const Strong&) const = default;

  /// Distances are bare numbers: `offset + 3`, `offset - offset`.
  constexpr Strong operator+(Number distance) const { return Strong(static_cast<Number>(value + distance)); }
  constexpr Strong operator-(Number distance) const { return Strong(static_cast<Number>(value - distance)); }
  constexpr Number operator-(Strong other) const { return static_cast<Number>(value - other.value); }
};

}  // namespace ciuic

template <class Number, class Tag>
struct std::hash<ciuic::Strong<Number, Tag>> {
  std::size_t operator()(ciuic::Strong<Number, Tag> number) const noexcept { return std::hash<Number>{}(number.value); }
};
