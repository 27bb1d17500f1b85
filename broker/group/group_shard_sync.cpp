// SyncGroup, Heartbeat and LeaveGroup: the generation in force, and who is still in it.
#include <utility>

#include "broker/group/group_records.h"
#include "broker/group/group_shard.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

bool contradicts(const std::optional<std::string>& said, const std::optional<std::string>& is) {
  return said && is && *said != *is;
}

}  // namespace

void GroupShard::sync(kafka::SyncGroupRequest request, SyncAnswer answer) {
  const auto group = find(request.group_id);
  if (!group) return answer(sync_error(ErrorCode::unknown_member_id));
  if (const auto wrong = group->check_member(request.member_id, request.group_instance_id); wrong != ErrorCode::none) {
    return answer(sync_error(wrong));
  }
  if (request.generation_id != group->generation()) return answer(sync_error(ErrorCode::illegal_generation));
  if (contradicts(request.protocol_type, group->protocol_type()) ||
      contradicts(request.protocol_name, group->protocol())) {
    return answer(sync_error(ErrorCode::inconsistent_group_protocol));
  }
  auto& member = *group->member(request.member_id);
  switch (group->state()) {
    case GroupState::empty:
    case GroupState::dead:
      return answer(sync_error(ErrorCode::unknown_member_id));
    case GroupState::preparing_rebalance:
      return answer(sync_error(ErrorCode::rebalance_in_progress));
    case GroupState::completing_rebalance:
      group->await_sync(member, std::move(answer));
      synced(group, request.member_id);
      if (group->is_leader(request.member_id)) store_assignment(group, request);
      return;
    case GroupState::stable: {
      synced(group, request.member_id);
      kafka::SyncGroupResponse response;
      response.protocol_type = group->protocol_type();
      response.protocol_name = group->protocol();
      response.assignment = member.assignment;
      touch(group, member);
      return answer(std::move(response));
    }
  }
}

void GroupShard::store_assignment(const GroupPointer& group, const kafka::SyncGroupRequest& request) {
  auto assignments = std::make_shared<std::unordered_map<std::string, Buffer>>();
  for (const auto& each : request.assignments) (*assignments)[each.member_id] = each.assignment;
  log_->append({group_record(group->id(), group->to_record(assignments.get()))},
               [self = shared_from_this(), group, assignments, generation = request.generation_id](ErrorCode error) {
                 // Somebody may have come or gone meanwhile: then another rebalance is under way and this one is void.
                 if (!group->is(GroupState::completing_rebalance) || group->generation() != generation) return;
                 if (error != ErrorCode::none) {
                   self->clear_assignments(group, append_error(error));
                   return self->rebalance_or_complete(group, "the assignment could not be stored");
                 }
                 group->each_member([&](GroupMember& member) {
                   const auto found = assignments->find(member.id);
                   member.assignment = found == assignments->end() ? Buffer() : found->second;
                 });
                 group->on(GroupEvent::assignment_stored, self->clock_.wall_ms());
                 self->propagate(group, ErrorCode::none);
                 log::info("group", "stable group={} generation={} members={}", group->id(), generation, group->size());
               });
}

void GroupShard::propagate(const GroupPointer& group, ErrorCode error) {
  group->each_member([&](GroupMember& member) {
    if (!member.awaits_sync()) return;
    kafka::SyncGroupResponse response;
    response.error_code = error;
    if (error == ErrorCode::none) {
      response.protocol_type = group->protocol_type();
      response.protocol_name = group->protocol();
    }
    response.assignment = member.assignment;
    touch(group, member);  // its session may have ended while it waited for the leader
    group->answer_sync(member, std::move(response));
  });
}

void GroupShard::clear_assignments(const GroupPointer& group, ErrorCode error) {
  group->each_member([](GroupMember& member) { member.assignment.clear(); });
  propagate(group, error);
}

void GroupShard::synced(const GroupPointer& group, const std::string& member_id) {
  group->remove_pending_sync(member_id);
  if (group->pending_sync().empty()) ++group->sync_timer;
}

void GroupShard::expire_pending_sync(const GroupPointer& group, std::int32_t generation) {
  if (group->generation() != generation || group->pending_sync().empty()) return;
  if (!group->is(GroupState::completing_rebalance) && !group->is(GroupState::stable)) return;
  const auto late = group->pending_sync();
  for (const auto& id : late) {
    log::info("group", "member never synced group={} member={}", group->id(), id);
    group->remove(id);
  }
  prepare_rebalance(group, "members joined and never synced");
}

kafka::HeartbeatResponse GroupShard::heartbeat(const kafka::HeartbeatRequest& request) {
  kafka::HeartbeatResponse response;
  const auto group = find(request.group_id);
  response.error_code =
      group ? group->check_member(request.member_id, request.group_instance_id) : ErrorCode::unknown_member_id;
  if (response.error_code != ErrorCode::none) return response;
  if (request.generation_id != group->generation()) {
    response.error_code = ErrorCode::illegal_generation;
    return response;
  }
  switch (group->state()) {
    case GroupState::empty:
    case GroupState::dead:
      response.error_code = ErrorCode::unknown_member_id;
      break;
    case GroupState::preparing_rebalance:
      touch(group, *group->member(request.member_id));
      response.error_code = ErrorCode::rebalance_in_progress;
      break;
    // A member may send heartbeats from its JoinGroup answer on.
    case GroupState::completing_rebalance:
    case GroupState::stable:
      touch(group, *group->member(request.member_id));
      break;
  }
  return response;
}

kafka::LeaveGroupResponse GroupShard::leave(const kafka::LeaveGroupRequest& request) {
  kafka::LeaveGroupResponse response;
  const auto group = find(request.group_id);
  bool anyone = false;
  for (const auto& who : request.members) {
    auto& result = response.members.emplace_back();
    result.member_id = who.member_id;
    result.group_instance_id = who.group_instance_id;
    auto id = who.member_id;
    if (!group) {
      result.error_code = ErrorCode::unknown_member_id;
    } else if (id.empty()) {
      // An administrator names a static member by its instance alone.
      const auto holder = who.group_instance_id ? group->static_member(*who.group_instance_id) : std::nullopt;
      if (holder) id = *holder;
      if (!holder) result.error_code = ErrorCode::unknown_member_id;
    } else if (!group->is_pending(id)) {
      result.error_code = group->check_member(id, who.group_instance_id);
    }
    if (result.error_code != ErrorCode::none) continue;
    log::info("group", "member left group={} member={} reason=\"{}\"", group->id(), id,
              who.reason.value_or("not given"));
    group->remove(id);
    anyone = true;
  }
  if (!anyone) return response;
  if (group->is(GroupState::stable) || group->is(GroupState::completing_rebalance)) {
    prepare_rebalance(group, "members left");
  } else {
    maybe_complete_join(group);
  }
  return response;
}

}  // namespace ciuic::broker
