#pragma once
#include <string_view>

namespace ciuic::broker {

inline constexpr std::string_view offsets_topic = "__consumer_offsets";
inline constexpr std::string_view transactions_topic = "__transaction_state";
inline constexpr std::string_view share_groups_topic = "__share_group_state";

/// Topics that the broker keeps for itself: clients see them, and do not shape them.
[[nodiscard]] constexpr bool is_internal_topic(std::string_view name) {
  return name == offsets_topic || name == transactions_topic || name == share_groups_topic;
}

}  // namespace ciuic::broker
