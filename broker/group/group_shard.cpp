// One partition's groups: loading, letting go, sessions. Requests are in group_shard_{join,sync,offsets,admin}.cpp.
#include "broker/group/group_shard.h"

#include <algorithm>
#include <utility>

#include "broker/group/group_records.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

ErrorCode append_error(ErrorCode code) {
  switch (code) {
    case ErrorCode::none:
      return ErrorCode::none;
    case ErrorCode::unknown_topic_or_partition:
    case ErrorCode::not_enough_replicas:
    case ErrorCode::not_enough_replicas_after_append:
    case ErrorCode::request_timed_out:
      return ErrorCode::coordinator_not_available;
    case ErrorCode::not_leader_or_follower:
    case ErrorCode::kafka_storage_error:
      return ErrorCode::not_coordinator;
    case ErrorCode::message_too_large:
    case ErrorCode::record_list_too_large:
    case ErrorCode::invalid_fetch_size:
      return ErrorCode::unknown_server_error;
    default:
      return code;
  }
}

GroupShard::GroupShard(std::int32_t index, std::shared_ptr<GroupLog> log, const GroupSettings& settings,
                       const Clock& clock)
    : index_(index), log_(std::move(log)), settings_(settings), clock_(clock) {}

void GroupShard::at(Milliseconds from_now, std::function<void(GroupShard&)> then) {
  executor().post_at(clock_.now() + from_now, [weak = weak_from_this(), then = std::move(then)] {
    if (const auto self = weak.lock(); self && self->status_ != Status::gone) then(*self);
  });
}

// --- Loading and letting go ---

void GroupShard::load() {
  const auto began = clock_.now();
  log_->replay(shared_from_this(), [self = shared_from_this(), began](ErrorCode error) {
    if (self->status_ == Status::gone) return;
    if (error != ErrorCode::none) {
      log::error("group", "groups not loaded, trying again partition={} code={}", self->index_, kafka::name(error));
      self->groups_.clear();
      self->loading_.clear();
      self->at(Milliseconds(1000), [](GroupShard& shard) { shard.load(); });
      return;
    }
    for (auto& [id, value] : std::exchange(self->loading_, {})) {
      const auto group = self->find_or_make(id);
      group->restore(value, self->clock_.wall_ms());
    }
    self->status_ = Status::active;
    std::vector<GroupPointer> all;
    for (const auto& [id, group] : self->groups_) all.push_back(group);
    for (const auto& group : all) {
      if (group->size() == 0 && group->offsets.empty() && !group->protocol_type()) {
        self->drop(group);
        continue;
      }
      group->each_member([&](GroupMember& member) { self->touch(group, member); });
      if (group->size() > static_cast<std::size_t>(self->settings_.size_max))
        self->rebalance_or_complete(group, "over group.max.size");
    }
    if (!self->groups_.empty()) {
      log::info("group", "groups loaded partition={} groups={} ms={}", self->index_, self->groups_.size(),
                std::chrono::duration_cast<Milliseconds>(self->clock_.now() - began).count());
    }
    self->at(Milliseconds(self->settings_.offsets_retention_check_interval_ms),
             [](GroupShard& shard) { shard.expire_offsets(); });
  });
}

void GroupShard::record(Bytes key, std::optional<Bytes> value, std::optional<kafka::ProducerId> producer) {
  auto read = read_record(key, value);
  if (!read) {
    log::warn("group", "a record that is none of ours was skipped partition={} key_bytes={}", index_, key.size());
    return;
  }
  if (auto* offset = std::get_if<OffsetRead>(&*read)) {
    const auto group = find_or_make(offset->group);
    if (!offset->offset) {
      group->offsets.erase(offset->at);
    } else if (producer) {
      group->offsets.set_pending(*producer, offset->at, std::move(*offset->offset));
    } else {
      group->offsets.set(offset->at, std::move(*offset->offset));
    }
  } else if (auto* group = std::get_if<GroupRead>(&*read)) {
    if (group->value) {
      loading_[group->group] = std::move(*group->value);
    } else {
      loading_.erase(group->group);
    }
  }
}

void GroupShard::transaction_ended(kafka::ProducerId producer, bool committed) {
  for (const auto& [id, group] : groups_) {
    if (group->offsets.any_pending()) group->offsets.end_transaction(producer, committed);
  }
}

void GroupShard::unload() {
  status_ = Status::gone;
  for (const auto& entry : std::exchange(groups_, {})) {
    const auto& group = entry.second;
    group->each_member([&group](GroupMember& member) {
      group->answer_join(member, join_error(member.id, ErrorCode::not_coordinator));
      group->answer_sync(member, sync_error(ErrorCode::not_coordinator));
    });
    group->on(GroupEvent::removed, clock_.wall_ms());
  }
}

ErrorCode GroupShard::unavailable() const {
  switch (status_) {
    case Status::loading:
      return ErrorCode::coordinator_load_in_progress;
    case Status::gone:
      return ErrorCode::not_coordinator;
    case Status::active:
      break;
  }
  return ErrorCode::none;
}

GroupShard::GroupPointer GroupShard::find(const std::string& group_id) const {
  const auto found = groups_.find(group_id);
  return found == groups_.end() ? nullptr : found->second;
}

GroupShard::GroupPointer GroupShard::find_or_make(const std::string& group_id) {
  auto& group = groups_[group_id];
  if (!group) group = std::make_shared<Group>(group_id, clock_.wall_ms());
  return group;
}

void GroupShard::drop(const GroupPointer& group) {
  group->on(GroupEvent::removed, clock_.wall_ms());
  groups_.erase(group->id());
}

// --- Sessions ---

void GroupShard::touch(const GroupPointer& group, GroupMember& member, Milliseconds timeout) {
  member.deadline = clock_.now() + timeout;
  // A timer that fires too early looks at the deadline and goes on; only one that would fire too late is replaced.
  if (!member.timer_armed || member.deadline < member.timer_at) arm(group, member);
}

void GroupShard::arm(const GroupPointer& group, GroupMember& member) {
  member.timer_armed = true;
  member.timer_at = member.deadline;
  executor().post_at(member.deadline,
                     [weak = weak_from_this(), group_id = group->id(), id = member.id, timer = ++member.timer] {
                       if (const auto self = weak.lock()) self->session_timer(group_id, id, timer);
                     });
}

void GroupShard::session_timer(const std::string& group_id, const std::string& member_id, std::uint64_t timer) {
  const auto group = find(group_id);
  auto* const member = group ? group->member(member_id) : nullptr;
  if (member == nullptr || member->timer != timer || status_ != Status::active) return;
  member->timer_armed = false;
  if (clock_.now() < member->deadline) return arm(group, *member);
  // Who waits for the rebalance is not expected to speak; its session starts again when it is answered.
  if (!member->is_new && (member->awaits_join() || member->awaits_sync())) return;
  remove_member(group, member_id, "session timeout");
}

void GroupShard::remove_member(const GroupPointer& group, const std::string& member_id, std::string_view why) {
  log::info("group", "member removed group={} member={} reason=\"{}\"", group->id(), member_id, why);
  group->remove(member_id);
  if (group->is(GroupState::preparing_rebalance)) {
    maybe_complete_join(group);
  } else if (group->is(GroupState::stable) || group->is(GroupState::completing_rebalance)) {
    rebalance_or_complete(group, why);
  }
}

}  // namespace ciuic::broker
