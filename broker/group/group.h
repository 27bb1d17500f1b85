#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "broker/group/group_offsets.h"
#include "broker/group/group_state.h"
#include "broker/group/member.h"
#include "transport/kafka/error_code.h"
#include "transport/kafka/messages/coordinator_records.h"

namespace ciuic::broker {

/// One classic group: its members, what they agree on, and its committed offsets. Knows nothing of time, logs or
/// sockets: GroupShard decides what happens when. Every step of one member costs the same in a group of any size;
/// only the end of a rebalance walks all members. One thread.
class Group {
 public:
  Group(std::string id, std::int64_t now_ms) : id_(std::move(id)), state_since_ms_(now_ms) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] GroupState state() const { return state_; }
  [[nodiscard]] bool is(GroupState state) const { return state_ == state; }
  [[nodiscard]] GroupState previous_state() const { return previous_state_; }
  /// Moves by the table of group_state.h. REQUIRES: a listed transition.
  void on(GroupEvent event, std::int64_t now_ms);
  [[nodiscard]] std::int32_t generation() const { return generation_; }
  [[nodiscard]] const std::optional<std::string>& protocol_type() const { return protocol_type_; }
  [[nodiscard]] const std::optional<std::string>& protocol() const { return protocol_; }
  [[nodiscard]] const std::optional<std::string>& leader() const { return leader_; }
  [[nodiscard]] bool is_leader(std::string_view member) const { return leader_ && *leader_ == member; }
  /// Milliseconds since 1970 when the state last changed; -1 where an old log did not say.
  [[nodiscard]] std::int64_t state_since_ms() const { return state_since_ms_; }

  // --- Members ---
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] GroupMember* member(std::string_view id);
  [[nodiscard]] const GroupMember* member(std::string_view id) const { return const_cast<Group*>(this)->member(id); }
  /// In the order they came. The call may not add or remove members.
  void each_member(const std::function<void(GroupMember&)>& call);
  void each_member(const std::function<void(const GroupMember&)>& call) const;
  /// Adds a member and lets it wait for the rebalance (an empty `join`: it does not wait).
  GroupMember& add(GroupMember member, std::string protocol_type);
  /// Takes a member out; whoever waited with it is answered UNKNOWN_MEMBER_ID. Unknown ids pass.
  void remove(std::string_view id);
  /// New subscription and timeouts of a member that joins again; an answer it still waited for elsewhere is given up.
  void rejoin(GroupMember& member, std::vector<MemberProtocol> protocols, std::int32_t rebalance_timeout_ms,
              std::int32_t session_timeout_ms, JoinAnswer join);
  /// A static member comes back under a new id; whoever waited with the old one is fenced.
  GroupMember& replace_static(const std::string& instance_id, const std::string& old_id, const std::string& new_id);
  [[nodiscard]] std::optional<std::string> static_member(std::string_view instance_id) const;
  /// Is this who it says it is: none, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
  [[nodiscard]] kafka::ErrorCode check_member(std::string_view id, const std::optional<std::string>& instance_id) const;

  // --- Members that were only handed an id (MEMBER_ID_REQUIRED) ---
  void add_pending(const std::string& id) { pending_.insert(id); }
  [[nodiscard]] bool is_pending(const std::string& id) const { return pending_.count(id) != 0; }
  [[nodiscard]] std::size_t pending_count() const { return pending_.size(); }

  // --- Joining ---
  [[nodiscard]] std::size_t awaiting_join() const { return awaiting_join_; }
  [[nodiscard]] bool all_joined() const { return awaiting_join_ == members_.size() && pending_.empty(); }
  /// Answers a waiting JoinGroup; false if the member does not wait.
  bool answer_join(GroupMember& member, kafka::JoinGroupResponse response);
  bool answer_sync(GroupMember& member, kafka::SyncGroupResponse response);
  void await_sync(GroupMember& member, SyncAnswer sync);
  /// Could a member that offers these come in?
  [[nodiscard]] bool supports(const std::string& protocol_type, const std::vector<MemberProtocol>& offered) const;
  /// The protocol that most members want most among those that all speak. REQUIRES: members.
  [[nodiscard]] std::string select_protocol() const;
  /// The leader if it waits, else another that waits; false if nobody does.
  bool elect_joined_leader();
  /// Ids of members that do not wait in JoinGroup.
  [[nodiscard]] std::vector<std::string> not_rejoined() const;
  /// The rebalance ends: a new generation, with a protocol if there are members.
  void next_generation(std::int64_t now_ms);
  [[nodiscard]] std::int32_t rebalance_timeout_ms() const;
  /// What everybody, or with `with_members` the leader, is told of the generation.
  [[nodiscard]] kafka::JoinGroupResponse generation_for(const GroupMember& member, bool with_members) const;

  // --- Syncing ---
  [[nodiscard]] const std::unordered_set<std::string>& pending_sync() const { return pending_sync_; }
  void add_pending_sync(const std::string& id) { pending_sync_.insert(id); }
  void remove_pending_sync(const std::string& id) { pending_sync_.erase(id); }

  [[nodiscard]] bool uses_consumer_protocol() const { return protocol_type_ == "consumer"; }
  /// By what members' subscriptions say; where they cannot be read, every topic of a consumer group counts.
  [[nodiscard]] bool subscribed_to(const std::string& topic) const;
  [[nodiscard]] bool subscriptions_known() const { return subscribed_.has_value(); }

  // --- Persistence ---
  /// The record of now, with these assignments (missing ones empty) instead of the members' own.
  [[nodiscard]] kafka::GroupMetadataValue to_record(const std::unordered_map<std::string, Buffer>* assignments) const;
  /// Takes over what the log says. REQUIRES: no members.
  void restore(const kafka::GroupMetadataValue& record, std::int64_t now_ms);

  GroupOffsets offsets{};

  // What the owner keeps with the group: which timers count, and whether the initial wait should go on.
  std::uint64_t join_timer = 0;
  std::uint64_t sync_timer = 0;
  bool new_member_added = false;

 private:
  void count_protocols(const GroupMember& member, int step);
  void compute_subscriptions();

  std::string id_;
  GroupState state_ = GroupState::empty;
  GroupState previous_state_ = GroupState::dead;
  std::int64_t state_since_ms_;
  std::int32_t generation_ = 0;
  std::optional<std::string> protocol_type_;
  std::optional<std::string> protocol_;
  std::optional<std::string> leader_;
  std::map<std::uint64_t, GroupMember> members_;  // by order of arrival
  std::unordered_map<std::string, std::uint64_t> order_;
  std::uint64_t next_order_ = 0;
  std::unordered_map<std::string, std::string> static_;    // instance id -> member id
  std::unordered_map<std::string, std::size_t> speakers_;  // protocol -> members that offer it
  std::unordered_set<std::string> pending_;
  std::unordered_set<std::string> pending_sync_;
  std::size_t awaiting_join_ = 0;
  std::optional<std::set<std::string>> subscribed_;
};

[[nodiscard]] kafka::JoinGroupResponse join_error(std::string member_id, kafka::ErrorCode code);
[[nodiscard]] kafka::SyncGroupResponse sync_error(kafka::ErrorCode code);

}  // namespace ciuic::broker
