// A classic group's members and what they agree on. Not here: time, the log, answers to whole requests
// (group_shard_*.cpp).
#include "broker/group/group.h"

#include <algorithm>
#include <cstdlib>

#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

kafka::JoinGroupResponse join_error(std::string member_id, ErrorCode code) {
  kafka::JoinGroupResponse response;
  response.member_id = std::move(member_id);
  response.error_code = code;
  return response;
}

kafka::SyncGroupResponse sync_error(ErrorCode code) {
  kafka::SyncGroupResponse response;
  response.error_code = code;
  return response;
}

void Group::on(GroupEvent event, std::int64_t now_ms) {
  const auto next = next_state(state_, event);
  if (!next) {
    log::bounded(log::Level::error, "group", "impossible transition group={} state={} event={}", id_, name(state_),
                 static_cast<int>(event));
    std::abort();
  }
  previous_state_ = state_;
  state_ = *next;
  state_since_ms_ = now_ms;
}

GroupMember* Group::member(std::string_view id) {
  const auto found = order_.find(std::string(id));
  return found == order_.end() ? nullptr : &members_.find(found->second)->second;
}

void Group::each_member(const std::function<void(GroupMember&)>& call) {
  for (auto& [order, member] : members_) call(member);
}

void Group::each_member(const std::function<void(const GroupMember&)>& call) const {
  for (const auto& [order, member] : members_) call(member);
}

void Group::count_protocols(const GroupMember& member, int step) {
  std::unordered_set<std::string_view> seen;  // a client may repeat a name
  for (const auto& offered : member.protocols) {
    if (!seen.insert(offered.name).second) continue;
    auto& count = speakers_[offered.name];
    count = step > 0 ? count + 1 : count - 1;
    if (count == 0) speakers_.erase(offered.name);
  }
}

GroupMember& Group::add(GroupMember member, std::string protocol_type) {
  if (members_.empty()) protocol_type_ = std::move(protocol_type);
  if (!leader_) leader_ = member.id;
  pending_.erase(member.id);
  if (member.instance_id) static_[*member.instance_id] = member.id;
  count_protocols(member, 1);
  if (member.awaits_join()) ++awaiting_join_;
  order_[member.id] = next_order_;
  return members_.emplace(next_order_++, std::move(member)).first->second;
}

void Group::remove(std::string_view id) {
  const std::string key(id);
  pending_.erase(key);
  pending_sync_.erase(key);
  const auto found = order_.find(key);
  if (found != order_.end()) {
    const auto at = members_.find(found->second);
    auto& member = at->second;
    answer_join(member, join_error({}, ErrorCode::unknown_member_id));
    answer_sync(member, sync_error(ErrorCode::unknown_member_id));
    count_protocols(member, -1);
    if (member.instance_id) {
      const auto held = static_.find(*member.instance_id);
      if (held != static_.end() && held->second == key) static_.erase(held);
    }
    members_.erase(at);
    order_.erase(found);
  }
  if (is_leader(key)) leader_ = members_.empty() ? std::optional<std::string>() : members_.begin()->second.id;
}

void Group::rejoin(GroupMember& member, std::vector<MemberProtocol> protocols, std::int32_t rebalance_timeout_ms,
                   std::int32_t session_timeout_ms, JoinAnswer join) {
  count_protocols(member, -1);
  member.protocols = std::move(protocols);
  count_protocols(member, 1);
  member.rebalance_timeout_ms = rebalance_timeout_ms;
  member.session_timeout_ms = session_timeout_ms;
  // Its client asked again on another connection, or pipelined: the earlier request must not stay open.
  answer_join(member, join_error(member.id, ErrorCode::rebalance_in_progress));
  member.join = std::move(join);
  if (member.awaits_join()) ++awaiting_join_;
}

GroupMember& Group::replace_static(const std::string& instance_id, const std::string& old_id,
                                   const std::string& new_id) {
  const auto found = order_.find(old_id);
  const auto order = found->second;
  auto& member = members_.find(order)->second;
  answer_join(member, join_error(old_id, ErrorCode::fenced_instance_id));
  answer_sync(member, sync_error(ErrorCode::fenced_instance_id));
  order_.erase(found);
  order_[new_id] = order;
  member.id = new_id;
  member.is_new = false;
  member.timer_armed = false;
  ++member.timer;
  static_[instance_id] = new_id;
  if (is_leader(old_id)) leader_ = new_id;
  if (pending_sync_.erase(old_id) != 0) pending_sync_.insert(new_id);
  return member;
}

std::optional<std::string> Group::static_member(std::string_view instance_id) const {
  const auto found = static_.find(std::string(instance_id));
  return found == static_.end() ? std::nullopt : std::optional(found->second);
}

ErrorCode Group::check_member(std::string_view id, const std::optional<std::string>& instance_id) const {
  if (instance_id) {
    const auto holder = static_member(*instance_id);
    if (!holder) return ErrorCode::unknown_member_id;
    if (*holder != id) return ErrorCode::fenced_instance_id;
  }
  return member(id) == nullptr ? ErrorCode::unknown_member_id : ErrorCode::none;
}

bool Group::answer_join(GroupMember& member, kafka::JoinGroupResponse response) {
  if (!member.awaits_join()) return false;
  const auto answer = std::exchange(member.join, nullptr);
  --awaiting_join_;
  answer(std::move(response));
  return true;
}

bool Group::answer_sync(GroupMember& member, kafka::SyncGroupResponse response) {
  if (!member.awaits_sync()) return false;
  std::exchange(member.sync, nullptr)(std::move(response));
  return true;
}

void Group::await_sync(GroupMember& member, SyncAnswer sync) {
  answer_sync(member, sync_error(ErrorCode::rebalance_in_progress));
  member.sync = std::move(sync);
}

bool Group::supports(const std::string& protocol_type, const std::vector<MemberProtocol>& offered) const {
  if (members_.empty()) return !protocol_type.empty() && !offered.empty();
  if (protocol_type_ != protocol_type) return false;
  return std::any_of(offered.begin(), offered.end(), [&](const MemberProtocol& protocol) {
    const auto found = speakers_.find(protocol.name);
    return found != speakers_.end() && found->second == members_.size();
  });
}

std::string Group::select_protocol() const {
  std::unordered_map<std::string_view, std::size_t> votes;
  const MemberProtocol* best = nullptr;
  std::size_t most = 0;
  for (const auto& [order, member] : members_) {
    for (const auto& offered : member.protocols) {
      const auto spoken = speakers_.find(offered.name);
      if (spoken == speakers_.end() || spoken->second != members_.size()) continue;
      ++votes[offered.name];
      break;
    }
  }
  for (const auto& [order, member] : members_) {  // ties: what the earliest member that was heard wants
    for (const auto& offered : member.protocols) {
      const auto counted = votes.find(offered.name);
      if (counted == votes.end() || counted->second <= most) continue;
      most = counted->second;
      best = &offered;
    }
    if (votes.size() == 1) break;
  }
  return best == nullptr ? std::string() : best->name;
}

bool Group::elect_joined_leader() {
  if (!leader_) return false;
  if (const auto* current = member(*leader_); current != nullptr && current->awaits_join()) return true;
  for (const auto& [order, member] : members_) {
    if (!member.awaits_join()) continue;
    leader_ = member.id;
    return true;
  }
  return false;
}

std::vector<std::string> Group::not_rejoined() const {
  std::vector<std::string> ids;
  if (awaiting_join_ == members_.size()) return ids;
  for (const auto& [order, member] : members_) {
    if (!member.awaits_join()) ids.push_back(member.id);
  }
  return ids;
}

void Group::next_generation(std::int64_t now_ms) {
  generation_ = generation_ == 0x7FFFFFFF ? 1 : generation_ + 1;
  pending_sync_.clear();
  if (members_.empty()) {
    protocol_.reset();
    on(GroupEvent::nobody_joined, now_ms);
  } else {
    protocol_ = select_protocol();
    on(GroupEvent::members_joined, now_ms);
  }
  compute_subscriptions();
}

std::int32_t Group::rebalance_timeout_ms() const {
  std::int32_t longest = 0;
  for (const auto& [order, member] : members_) longest = std::max(longest, member.rebalance_timeout_ms);
  return longest;
}

kafka::JoinGroupResponse Group::generation_for(const GroupMember& member, bool with_members) const {
  kafka::JoinGroupResponse response;
  response.generation_id = generation_;
  response.protocol_type = protocol_type_;
  response.protocol_name = protocol_;
  response.leader = leader_.value_or("");
  response.member_id = member.id;
  if (with_members) {
    response.members.reserve(members_.size());
    for (const auto& [order, each] : members_) {
      const auto* metadata = each.metadata(protocol_.value_or(""));
      response.members.push_back({each.id, each.instance_id, metadata == nullptr ? Buffer() : *metadata});
    }
  }
  return response;
}

void Group::compute_subscriptions() {
  subscribed_.reset();
  if (!uses_consumer_protocol()) return;
  std::set<std::string> topics;
  for (const auto& [order, member] : members_) {
    const auto* metadata = member.metadata(protocol_.value_or(""));
    if (metadata == nullptr || metadata->size() < 2) return;
    kafka::WireReader in(*metadata);
    const auto version = in.number<std::int16_t>();
    if (version < 0) return;
    // Only the topics are wanted; they stand first in every version, and later fields of clients vary.
    const auto count = in.number<std::int32_t>();
    for (std::int32_t i = 0; i < count && in.ok(); ++i) {
      const auto length = in.number<std::int16_t>();
      if (length < 0) return;
      topics.emplace(as_text(in.take(static_cast<std::size_t>(length))));
    }
    if (!in.ok()) return;
  }
  subscribed_ = std::move(topics);
}

bool Group::subscribed_to(const std::string& topic) const {
  return subscribed_ ? subscribed_->count(topic) != 0 : uses_consumer_protocol();
}

kafka::GroupMetadataValue Group::to_record(const std::unordered_map<std::string, Buffer>* assignments) const {
  kafka::GroupMetadataValue record;
  record.protocol_type = protocol_type_.value_or("");
  record.generation = generation_;
  record.protocol = protocol_;
  record.leader = leader_;
  record.current_state_timestamp = state_since_ms_;
  record.members.reserve(members_.size());
  for (const auto& [order, member] : members_) {
    auto& out = record.members.emplace_back();
    out.member_id = member.id;
    out.group_instance_id = member.instance_id;
    out.client_id = member.client_id;
    out.client_host = member.client_host;
    out.rebalance_timeout = member.rebalance_timeout_ms;
    out.session_timeout = member.session_timeout_ms;
    if (const auto* metadata = member.metadata(protocol_.value_or(""))) out.subscription = *metadata;
    if (assignments == nullptr) {
      out.assignment = member.assignment;
    } else if (const auto found = assignments->find(member.id); found != assignments->end()) {
      out.assignment = found->second;
    }
  }
  return record;
}

void Group::restore(const kafka::GroupMetadataValue& record, std::int64_t now_ms) {
  protocol_type_ = record.protocol_type.empty() ? std::optional<std::string>() : record.protocol_type;
  generation_ = record.generation;
  protocol_ = record.protocol;
  for (const auto& stored : record.members) {
    GroupMember member;
    member.id = stored.member_id;
    member.instance_id = stored.group_instance_id;
    member.client_id = stored.client_id;
    member.client_host = stored.client_host;
    member.session_timeout_ms = stored.session_timeout;
    // Version 0 of the record had none; then, as JoinGroup v0, it is the session's.
    member.rebalance_timeout_ms = stored.rebalance_timeout == -1 ? stored.session_timeout : stored.rebalance_timeout;
    member.protocols = {{record.protocol.value_or(""), stored.subscription}};
    member.assignment = stored.assignment;
    if (order_.count(member.id) == 0) add(std::move(member), record.protocol_type);
  }
  if (!members_.empty()) on(GroupEvent::loaded_with_members, now_ms);
  leader_ = record.leader;
  state_since_ms_ = record.current_state_timestamp;
  compute_subscriptions();
}

}  // namespace ciuic::broker
