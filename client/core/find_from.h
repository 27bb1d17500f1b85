#pragma once
#include <cstddef>

namespace ciuic::client::core {

/// The element that `is`, looked for from index `from` on and around; nullptr: there is none. `from` becomes its place.
/// For what answers a list of questions: brokers answer in the order asked, so going through the questions costs as
/// much as there are of them, and a broker that answers in another order is understood too.
template <class Range, class Is>
[[nodiscard]] auto* find_from(Range& range, std::size_t& from, Is is) {
  const std::size_t size = range.size();
  for (std::size_t tried = 0; tried < size; ++tried) {
    const auto at = (from + tried) % size;
    if (!is(range[at])) continue;
    from = at;
    return &range[at];
  }
  return static_cast<decltype(&range[0])>(nullptr);
}

}  // namespace ciuic::client::core
