#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/kafka/messages/join_group.h"
#include "transport/kafka/messages/sync_group.h"

namespace ciuic::broker {

using JoinAnswer = std::function<void(kafka::JoinGroupResponse)>;
using SyncAnswer = std::function<void(kafka::SyncGroupResponse)>;
/// A name and what the member says for it; most wanted first.
using MemberProtocol = kafka::JoinGroupRequest::JoinGroupRequestProtocol;

/// A member of a classic group. Owned by its Group, changed through it where a count depends on it.
struct GroupMember {
  std::string id{};
  std::optional<std::string> instance_id{};  ///< static members (KIP-345)
  std::string client_id{};
  std::string client_host{};
  std::int32_t rebalance_timeout_ms = 0;
  std::int32_t session_timeout_ms = 0;
  std::vector<MemberProtocol> protocols{};
  Buffer assignment{};
  bool is_new = false;  ///< has not yet been answered its first JoinGroup: it may be given up while it waits
  JoinAnswer join{};    ///< waiting in JoinGroup
  SyncAnswer sync{};    ///< waiting in SyncGroup

  // The session: one timer in flight that looks at the deadline when it fires; `timer` names the one that counts.
  Clock::TimePoint deadline{};
  Clock::TimePoint timer_at{};
  std::uint64_t timer = 0;
  bool timer_armed = false;

  [[nodiscard]] bool is_static() const { return instance_id.has_value(); }
  [[nodiscard]] bool awaits_join() const { return static_cast<bool>(join); }
  [[nodiscard]] bool awaits_sync() const { return static_cast<bool>(sync); }
  /// What it said for `protocol`; nothing if it does not speak it.
  [[nodiscard]] const Buffer* metadata(std::string_view protocol) const {
    for (const auto& offered : protocols) {
      if (offered.name == protocol) return &offered.metadata;
    }
    return nullptr;
  }
};

}  // namespace ciuic::broker
