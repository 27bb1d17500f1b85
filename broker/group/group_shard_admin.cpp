// DescribeGroups, ListGroups and DeleteGroups.
#include <algorithm>
#include <cctype>
#include <utility>

#include "broker/group/group_shard.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

constexpr std::int16_t describe_says_not_found = 6;  // KIP-1043

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

/// An empty filter lets all pass.
bool passes(const std::vector<std::string>& filter, std::string_view word) {
  return filter.empty() ||
         std::any_of(filter.begin(), filter.end(), [&](const std::string& each) { return same_word(each, word); });
}

}  // namespace

GroupShard::DescribedGroup GroupShard::describe(std::int16_t version, const std::string& group_id) {
  DescribedGroup response;
  response.group_id = group_id;
  const auto group = find(group_id);
  if (!group) {
    response.group_state = name(GroupState::dead);
    if (version >= describe_says_not_found) {
      response.error_code = ErrorCode::group_id_not_found;
      response.error_message = "Group " + group_id + " not found.";
    }
    return response;
  }
  response.group_state = name(group->state());
  response.protocol_type = group->protocol_type().value_or("");
  const bool settled = group->is(GroupState::stable);
  if (settled) response.protocol_data = group->protocol().value_or("");
  response.members.reserve(group->size());
  group->each_member([&](const GroupMember& member) {
    auto& out = response.members.emplace_back();
    out.member_id = member.id;
    out.group_instance_id = member.instance_id;
    out.client_id = member.client_id;
    out.client_host = member.client_host;
    if (!settled) return;
    if (const auto* metadata = member.metadata(response.protocol_data)) out.member_metadata = *metadata;
    out.member_assignment = member.assignment;
  });
  return response;
}

void GroupShard::list(const kafka::ListGroupsRequest& request,
                      std::vector<kafka::ListGroupsResponse::ListedGroup>& into) const {
  if (!passes(request.types_filter, "classic")) return;
  for (const auto& [id, group] : groups_) {
    if (!passes(request.states_filter, name(group->state()))) continue;
    auto& out = into.emplace_back();
    out.group_id = id;
    out.protocol_type = group->protocol_type().value_or("");
    out.group_state = name(group->state());
    out.group_type = "classic";
  }
}

void GroupShard::remove(const std::string& group_id, Callback<ErrorCode> answer) {
  const auto group = find(group_id);
  if (!group) return answer(ErrorCode::group_id_not_found);
  if (!group->is(GroupState::empty)) return answer(ErrorCode::non_empty_group);
  store_tombstones(group, group->offsets.all(), true,
                   [answer = std::move(answer)](ErrorCode error) { answer(append_error(error)); });
}

}  // namespace ciuic::broker
