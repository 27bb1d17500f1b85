// How the leader of a classic group shares partitions out.
#include "client/core/assignor.h"

#include <algorithm>

namespace ciuic::client::core {
namespace {

/// Java's order: static members by instance id, before the others by member id.
void sort_members(std::vector<Member>& members) {
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    if (a.instance_id.empty() != b.instance_id.empty()) return !a.instance_id.empty();
    return a.instance_id.empty() ? a.id < b.id : a.instance_id < b.instance_id;
  });
}
bool wants(const Member& member, const std::string& topic) {
  return std::find(member.topics.begin(), member.topics.end(), topic) != member.topics.end();
}
Assignment empty_for(const std::vector<Member>& members) {
  Assignment out;
  for (const auto& member : members) out[member.id];
  return out;
}

}  // namespace

Assignment assign_range(std::vector<Member> members, const std::map<std::string, std::int32_t>& partitions) {
  sort_members(members);
  auto out = empty_for(members);
  for (const auto& [topic, count] : partitions) {
    std::vector<const Member*> consumers;
    for (const auto& member : members) {
      if (wants(member, topic)) consumers.push_back(&member);
    }
    if (consumers.empty()) continue;
    const auto each = count / static_cast<std::int32_t>(consumers.size());
    const auto extra = count % static_cast<std::int32_t>(consumers.size());
    std::int32_t next = 0;
    for (std::size_t i = 0; i < consumers.size(); ++i) {
      const auto share = each + (static_cast<std::int32_t>(i) < extra ? 1 : 0);
      for (std::int32_t k = 0; k < share; ++k) out[consumers[i]->id].push_back({topic, next++});
    }
  }
  return out;
}

Assignment assign_round_robin(std::vector<Member> members, const std::map<std::string, std::int32_t>& partitions) {
  sort_members(members);
  auto out = empty_for(members);
  std::size_t turn = 0;
  for (const auto& [topic, count] : partitions) {
    const auto wanted = std::any_of(members.begin(), members.end(),
                                    [&topic = topic](const Member& member) { return wants(member, topic); });
    if (!wanted) continue;
    for (std::int32_t partition = 0; partition < count; ++partition) {
      while (!wants(members[turn % members.size()], topic)) ++turn;
      out[members[turn % members.size()].id].push_back({topic, partition});
      ++turn;
    }
  }
  return out;
}

Assignment assign_by(const std::string& strategy, std::vector<Member> members,
                     const std::map<std::string, std::int32_t>& partitions) {
  return strategy == "roundrobin" ? assign_round_robin(std::move(members), partitions)
                                  : assign_range(std::move(members), partitions);
}

}  // namespace ciuic::client::core
