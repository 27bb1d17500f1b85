#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ciuic::broker {

/// States of a classic group, as Apache's ClassicGroupState.
enum class GroupState : std::uint8_t { empty, preparing_rebalance, completing_rebalance, stable, dead };
enum class GroupEvent : std::uint8_t {
  rebalance_wanted,     ///< a member came, went, changed, or the leader asked
  members_joined,       ///< everybody who will take part has joined
  nobody_joined,        ///< the rebalance ended without members
  assignment_stored,    ///< the leader's assignment is in the log
  loaded_with_members,  ///< read back from the log
  removed,              ///< deleted, expired, or its partition moved away
};

struct GroupTransition {
  GroupState from;
  GroupEvent event;
  GroupState to;
};

/// Every transition there is; an unlisted pair is a bug.
inline constexpr std::array group_transitions{
    GroupTransition{GroupState::empty, GroupEvent::rebalance_wanted, GroupState::preparing_rebalance},
    GroupTransition{GroupState::stable, GroupEvent::rebalance_wanted, GroupState::preparing_rebalance},
    GroupTransition{GroupState::completing_rebalance, GroupEvent::rebalance_wanted, GroupState::preparing_rebalance},
    GroupTransition{GroupState::preparing_rebalance, GroupEvent::members_joined, GroupState::completing_rebalance},
    GroupTransition{GroupState::preparing_rebalance, GroupEvent::nobody_joined, GroupState::empty},
    GroupTransition{GroupState::completing_rebalance, GroupEvent::assignment_stored, GroupState::stable},
    GroupTransition{GroupState::empty, GroupEvent::loaded_with_members, GroupState::stable},
    GroupTransition{GroupState::empty, GroupEvent::removed, GroupState::dead},
    GroupTransition{GroupState::preparing_rebalance, GroupEvent::removed, GroupState::dead},
    GroupTransition{GroupState::completing_rebalance, GroupEvent::removed, GroupState::dead},
    GroupTransition{GroupState::stable, GroupEvent::removed, GroupState::dead},
};

[[nodiscard]] constexpr std::optional<GroupState> next_state(GroupState from, GroupEvent event) {
  for (const auto& row : group_transitions) {
    if (row.from == from && row.event == event) return row.to;
  }
  return std::nullopt;
}

/// As DescribeGroups and ListGroups spell it.
[[nodiscard]] constexpr std::string_view name(GroupState state) {
  constexpr std::array<std::string_view, 5> names{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable",
                                                  "Dead"};
  return names[static_cast<std::size_t>(state)];
}

}  // namespace ciuic::broker
