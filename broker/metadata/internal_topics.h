#pragma once
#include <string_view>

namespace ciuic::broker {

/// Topics that the broker keeps for itself: clients see them, and do not shape them.
[[nodiscard]] constexpr bool is_internal_topic(std::string_view name) {
  return name == "__consumer_offsets" || name == "__transaction_state";
}

}  // namespace ciuic::broker
