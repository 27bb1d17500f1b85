// JoinGroup and the rebalance that it starts, as Apache 4.x's GroupMetadataManager does it.
#include <algorithm>
#include <utility>

#include "broker/group/group_records.h"
#include "broker/group/group_shard.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

constexpr std::int16_t needs_known_member_id = 4;  // KIP-394
constexpr std::int16_t knows_skip_assignment = 9;  // KIP-814

/// RFC 4122 text of a random id, as Java's UUID prints it.
std::string random_suffix() {
  static constexpr char digits[] = "0123456789abcdef";
  const auto id = kafka::Uuid::random();
  std::string text;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[id.bytes[i] >> 4];
    text += digits[id.bytes[i] & 15];
  }
  return text;
}

/// Two subscriptions are the same if names and bytes are, in the same order.
bool same(const std::vector<MemberProtocol>& a, const std::vector<MemberProtocol>& b) { return a == b; }

}  // namespace

void GroupShard::join(const GroupCaller& caller, kafka::JoinGroupRequest request, JoinAnswer answer) {
  if (request.session_timeout_ms < settings_.session_timeout_min_ms ||
      request.session_timeout_ms > settings_.session_timeout_max_ms) {
    return answer(join_error(request.member_id, ErrorCode::invalid_session_timeout));
  }
  if (caller.version == 0) request.rebalance_timeout_ms = request.session_timeout_ms;
  auto group = find(request.group_id);
  const bool unknown = request.member_id.empty();
  if (!group && !unknown) return answer(join_error(request.member_id, ErrorCode::unknown_member_id));
  if (!group) group = find_or_make(request.group_id);
  if (!has_room_for(*group, request.member_id)) {
    group->remove(request.member_id);
    maybe_complete_join(group);
    return answer(join_error({}, ErrorCode::group_max_size_reached));
  }
  if (!group->supports(request.protocol_type, request.protocols)) {
    return answer(join_error(request.member_id, ErrorCode::inconsistent_group_protocol));
  }
  JoinCall call{caller, std::move(request), std::move(answer)};
  unknown ? join_new(group, std::move(call)) : join_again(group, std::move(call));
}

bool GroupShard::has_room_for(const Group& group, const std::string& member_id) const {
  const auto limit = static_cast<std::size_t>(settings_.size_max);
  const auto* member = group.member(member_id);
  switch (group.state()) {
    case GroupState::empty:
    case GroupState::dead:
      return true;
    // The limit may have been lowered: who is last to come back is left out.
    case GroupState::preparing_rebalance:
      return (member != nullptr && member->awaits_join()) || group.awaiting_join() < limit;
    case GroupState::completing_rebalance:
    case GroupState::stable:
      return member != nullptr || group.size() < limit;
  }
  return false;
}

void GroupShard::join_new(const GroupPointer& group, JoinCall call) {
  const auto& instance = call.request.group_instance_id;
  auto id = (instance ? *instance : call.caller.client_id) + "-" + random_suffix();
  if (instance) {
    const auto known = group->static_member(*instance);
    if (known) return return_static(group, std::move(call), *known, id);
    return add_member(group, std::move(call), std::move(id));
  }
  if (call.caller.version < needs_known_member_id) return add_member(group, std::move(call), std::move(id));
  group->add_pending(id);
  at(Milliseconds(call.request.session_timeout_ms), [group_id = group->id(), id](GroupShard& self) {
    const auto found = self.find(group_id);
    if (!found || !found->is_pending(id)) return;
    found->remove(id);
    self.maybe_complete_join(found);
  });
  call.answer(join_error(std::move(id), ErrorCode::member_id_required));
}

void GroupShard::join_again(const GroupPointer& group, JoinCall call) {
  const auto id = call.request.member_id;
  if (group->is_pending(id)) return add_member(group, std::move(call), id);
  if (const auto wrong = group->check_member(id, call.request.group_instance_id); wrong != ErrorCode::none) {
    return call.answer(join_error(id, wrong));
  }
  auto& member = *group->member(id);
  const bool unchanged = same(member.protocols, call.request.protocols);
  switch (group->state()) {
    case GroupState::preparing_rebalance:
      return update_member(group, member, std::move(call));
    case GroupState::completing_rebalance:
      // It may have missed its answer: the same once more. Otherwise all begin again.
      if (!unchanged) return update_member(group, member, std::move(call));
      return call.answer(group->generation_for(member, group->is_leader(id)));
    case GroupState::stable:
      // A leader joins again to have assignment made anew, say because a topic has grown.
      if (!unchanged || group->is_leader(id)) return update_member(group, member, std::move(call));
      return call.answer(group->generation_for(member, false));
    case GroupState::empty:
    case GroupState::dead:
      break;
  }
  call.answer(join_error(id, ErrorCode::unknown_member_id));
}

void GroupShard::add_member(const GroupPointer& group, JoinCall call, std::string member_id) {
  if (group->is(GroupState::preparing_rebalance) && group->previous_state() == GroupState::empty)
    group->new_member_added = true;
  GroupMember member;
  member.id = std::move(member_id);
  member.instance_id = call.request.group_instance_id;
  member.client_id = call.caller.client_id;
  member.client_host = call.caller.client_host;
  member.rebalance_timeout_ms = call.request.rebalance_timeout_ms;
  member.session_timeout_ms = call.request.session_timeout_ms;
  member.protocols = std::move(call.request.protocols);
  member.is_new = true;
  member.join = std::move(call.answer);
  auto& added = group->add(std::move(member), call.request.protocol_type);
  // It cannot send heartbeats yet, and a client that gave up would come back as another member: bound its wait.
  touch(group, added, Milliseconds(settings_.new_member_join_timeout_ms));
  rebalance_or_complete(group, "a member joins");
}

void GroupShard::update_member(const GroupPointer& group, GroupMember& member, JoinCall call) {
  group->rejoin(member, std::move(call.request.protocols), call.request.rebalance_timeout_ms,
                call.request.session_timeout_ms, std::move(call.answer));
  rebalance_or_complete(group, "a member joins again");
}

void GroupShard::return_static(const GroupPointer& group, JoinCall call, const std::string& old_id,
                               const std::string& new_id) {
  const auto former_leader = group->leader().value_or("");
  auto& member = group->replace_static(*call.request.group_instance_id, old_id, new_id);
  member.client_id = call.caller.client_id;
  member.client_host = call.caller.client_host;
  group->rejoin(member, std::move(call.request.protocols), call.request.rebalance_timeout_ms,
                call.request.session_timeout_ms, std::move(call.answer));
  touch(group, member);
  log::info("group", "static member is back group={} instance={} member={}", group->id(), *member.instance_id, new_id);
  switch (group->state()) {
    case GroupState::stable:
      if (group->protocol() == group->select_protocol()) {
        // Nothing that an assignment depends on has changed: it keeps its own, once the new id is in the log.
        log_->append({group_record(group->id(), group->to_record(nullptr))},
                     [self = shared_from_this(), group, new_id, former_leader, generation = group->generation(),
                      version = call.caller.version](ErrorCode error) {
                       self->static_stored(group, new_id, former_leader, generation, version, error);
                     });
        return;
      }
      return rebalance_or_complete(group, "a static member wants another protocol");
    case GroupState::completing_rebalance:
      return prepare_rebalance(group, "a static member came back before the assignment");
    default:
      return maybe_complete_join(group);
  }
}

void GroupShard::static_stored(const GroupPointer& group, const std::string& member_id,
                               const std::string& former_leader, std::int32_t generation, std::int16_t version,
                               ErrorCode error) {
  auto* const member = group->member(member_id);
  // A rebalance that began meanwhile answers it, and one that came after it has fenced it.
  if (member == nullptr || !member->awaits_join() || !group->is(GroupState::stable) ||
      group->generation() != generation)
    return;
  if (error != ErrorCode::none) {
    auto failed = group->generation_for(*member, false);
    failed.member_id.clear();
    failed.error_code = append_error(error);
    group->answer_join(*member, std::move(failed));
    return;
  }
  const bool leads = group->is_leader(member_id);
  auto response = group->generation_for(*member, leads && version >= knows_skip_assignment);
  if (version >= knows_skip_assignment) {
    response.skip_assignment = leads;
  } else {
    response.leader = former_leader;  // so that an older client does not believe that it must assign
  }
  group->answer_join(*member, std::move(response));
}

// --- The rebalance ---

void GroupShard::rebalance_or_complete(const GroupPointer& group, std::string_view why) {
  if (next_state(group->state(), GroupEvent::rebalance_wanted)) return prepare_rebalance(group, why);
  maybe_complete_join(group);
}

void GroupShard::prepare_rebalance(const GroupPointer& group, std::string_view why) {
  if (group->is(GroupState::completing_rebalance)) clear_assignments(group, ErrorCode::rebalance_in_progress);
  ++group->sync_timer;
  const bool first = group->is(GroupState::empty);
  group->on(GroupEvent::rebalance_wanted, clock_.wall_ms());
  log::info("group", "rebalance group={} generation={} members={} reason=\"{}\"", group->id(), group->generation(),
            group->size(), why);
  if (!first) {
    if (group->all_joined()) return complete_join(group);
    return schedule_join_end(group, Milliseconds(std::max(group->rebalance_timeout_ms(), 0)));
  }
  // A new group: others of the same start are about to come.
  const Milliseconds delay(settings_.initial_rebalance_delay_ms);
  group->new_member_added = false;
  initial_wait(group, delay, std::max(Milliseconds(group->rebalance_timeout_ms()) - delay, Milliseconds(0)));
}

void GroupShard::initial_wait(const GroupPointer& group, Milliseconds delay, Milliseconds remaining) {
  at(delay, [group, delay, remaining, timer = ++group->join_timer](GroupShard& self) {
    if (group->join_timer != timer || !group->is(GroupState::preparing_rebalance)) return;
    if (!group->new_member_added || remaining.count() == 0) return self.complete_join(group);
    group->new_member_added = false;
    const auto next = std::min(Milliseconds(self.settings_.initial_rebalance_delay_ms), remaining);
    self.initial_wait(group, next, std::max(remaining - delay, Milliseconds(0)));
  });
}

void GroupShard::schedule_join_end(const GroupPointer& group, Milliseconds from_now) {
  at(from_now, [group, timer = ++group->join_timer](GroupShard& self) {
    if (group->join_timer == timer && group->is(GroupState::preparing_rebalance)) self.complete_join(group);
  });
}

void GroupShard::maybe_complete_join(const GroupPointer& group) {
  if (group->is(GroupState::preparing_rebalance) && group->previous_state() != GroupState::empty && group->all_joined())
    complete_join(group);
}

void GroupShard::complete_join(const GroupPointer& group) {
  ++group->join_timer;
  for (const auto& id : group->not_rejoined()) {
    if (group->member(id)->is_static()) continue;  // its session, not the rebalance, decides about it
    log::info("group", "member left out of the rebalance group={} member={}", group->id(), id);
    group->remove(id);
  }
  if (group->size() != 0 && !group->elect_joined_leader()) {
    // Only static members, none of them back yet: wait until one is, or its session ends.
    return schedule_join_end(group, Milliseconds(std::max(group->rebalance_timeout_ms(), 1)));
  }
  group->next_generation(clock_.wall_ms());
  if (group->is(GroupState::empty)) {
    log::info("group", "group is empty group={} generation={}", group->id(), group->generation());
    log_->append({group_record(group->id(), group->to_record(nullptr))}, [group](ErrorCode error) {
      if (error != ErrorCode::none)
        log::bounded(log::Level::warn, "group", "empty group not stored group={} code={}", group->id(),
                     kafka::name(error));
    });
    return;
  }
  log::info("group", "generation begins group={} generation={} members={} protocol={}", group->id(),
            group->generation(), group->size(), group->protocol().value_or(""));
  const auto generation = group->generation();
  std::vector<std::string> ids;
  group->each_member([&](GroupMember& member) { ids.push_back(member.id); });
  for (const auto& id : ids) {
    auto* const member = group->member(id);
    group->add_pending_sync(id);
    member->is_new = false;
    touch(group, *member);
    if (member->awaits_join()) group->answer_join(*member, group->generation_for(*member, group->is_leader(id)));
  }
  at(Milliseconds(std::max(group->rebalance_timeout_ms(), 0)),
     [group, generation, timer = ++group->sync_timer](GroupShard& self) {
       if (group->sync_timer == timer) self.expire_pending_sync(group, generation);
     });
}

}  // namespace ciuic::broker
