// One partition's groups on one thread for tests: see the header.
#include "tests/unit/group/support/group_world.h"

namespace ciuic::broker::testing {

namespace {

LogConfig compacted() {
  LogConfig config;
  config.cleanup_delete = false;
  config.cleanup_compact = true;
  return config;
}

}  // namespace

Buffer subscription(const std::vector<std::string>& topics) {
  Buffer out;
  kafka::WireWriter writer(out);
  writer.number<std::int16_t>(1);
  writer.number(static_cast<std::int32_t>(topics.size()));
  for (const auto& topic : topics) {
    writer.number(static_cast<std::int16_t>(topic.size()));
    writer.bytes(as_bytes(topic));
  }
  writer.number<std::int32_t>(-1);
  writer.number<std::int32_t>(0);
  return out;
}

GroupWorld::GroupWorld(GroupSettings group_settings) : settings(group_settings) {
  logs.start();
  partition = logs.create(std::string(offsets_topic), 0, compacted());
  load();
  logs.settle();
}

GroupWorld::~GroupWorld() { shard->unload(); }

void GroupWorld::load() {
  shard =
      std::make_shared<GroupShard>(0, std::make_shared<PartitionGroupLog>(partition, logs.clock), settings, logs.clock);
  shard->load();
}

void GroupWorld::restart() {
  shard->unload();
  shard.reset();
  partition.reset();
  logs.restart();
  partition = logs.find(std::string(offsets_topic));
  load();
  logs.settle();
}

void GroupWorld::crash() {
  shard.reset();
  partition.reset();
  logs.crash();
  partition = logs.find(std::string(offsets_topic));
  load();
  logs.settle();
}

void GroupWorld::pass(Milliseconds time) {
  for (Milliseconds step(100); time.count() > 0; time -= step) logs.advance(std::min(step, time));
}

Later<kafka::JoinGroupResponse> GroupWorld::join(const JoinOf& join) {
  kafka::JoinGroupRequest request;
  request.group_id = group;
  request.session_timeout_ms = join.session_ms;
  request.rebalance_timeout_ms = join.rebalance_ms;
  request.member_id = join.member;
  request.group_instance_id = join.instance;
  request.protocol_type = join.type;
  for (const auto& name : join.protocols) request.protocols.push_back({name, subscription(join.topics)});
  Later<kafka::JoinGroupResponse> later;
  shard->join({join.version, join.client, "/10.0.0.1"}, std::move(request), later.callback());
  return later;
}

Later<kafka::JoinGroupResponse> GroupWorld::join_new(JoinOf how) {
  const auto first = join(how);
  if (!first.answered() || first->error_code != ErrorCode::member_id_required) return first;
  how.member = first->member_id;
  return join(how);
}

Later<kafka::SyncGroupResponse> GroupWorld::sync(const std::string& member, std::int32_t generation,
                                                 const std::vector<std::pair<std::string, std::string>>& assignments,
                                                 std::optional<std::string> instance) {
  kafka::SyncGroupRequest request;
  request.group_id = group;
  request.member_id = member;
  request.generation_id = generation;
  request.group_instance_id = std::move(instance);
  for (const auto& [id, text] : assignments) request.assignments.push_back({id, to_buffer(as_bytes(text))});
  Later<kafka::SyncGroupResponse> later;
  shard->sync(std::move(request), later.callback());
  return later;
}

ErrorCode GroupWorld::heartbeat(const std::string& member, std::int32_t generation,
                                std::optional<std::string> instance) {
  kafka::HeartbeatRequest request;
  request.group_id = group;
  request.member_id = member;
  request.generation_id = generation;
  request.group_instance_id = std::move(instance);
  return shard->heartbeat(request).error_code;
}

ErrorCode GroupWorld::leave(const std::string& member, std::optional<std::string> instance) {
  kafka::LeaveGroupRequest request;
  request.group_id = group;
  auto& who = request.members.emplace_back();
  who.member_id = member;
  who.group_instance_id = std::move(instance);
  return shard->leave(request).members.at(0).error_code;
}

Later<kafka::OffsetCommitResponse> GroupWorld::commit(std::int64_t offset, const std::string& member,
                                                      std::int32_t generation, const std::string& topic,
                                                      std::int32_t index, std::int16_t version) {
  kafka::OffsetCommitRequest request;
  request.group_id = group;
  request.member_id = member;
  request.generation_id_or_member_epoch = generation;
  auto& to = request.topics.emplace_back();
  to.name = topic;
  auto& at = to.partitions.emplace_back();
  at.partition_index = index;
  at.committed_offset = offset;
  at.committed_leader_epoch = 3;
  at.committed_metadata = "m";
  Later<kafka::OffsetCommitResponse> later;
  shard->commit({version, "c", "/10.0.0.1"}, std::move(request), later.callback());
  return later;
}

std::int64_t GroupWorld::committed(const std::string& topic, std::int32_t index) {
  GroupShard::FetchGroup request;
  request.group_id = group;
  auto& asked = request.topics.emplace().emplace_back();
  asked.name = topic;
  asked.partition_indexes = {index};
  return shard->fetch(request, false).topics.at(0).partitions.at(0).committed_offset;
}

std::vector<Joined> GroupWorld::stable(std::size_t members, JoinOf how) {
  std::vector<Later<kafka::JoinGroupResponse>> joins;
  for (std::size_t i = 0; i < members; ++i) joins.push_back(join_new(how));
  pass(Milliseconds(settings.initial_rebalance_delay_ms * 2 + 200));
  std::vector<Joined> joined;
  std::vector<std::pair<std::string, std::string>> assignments;
  for (const auto& each : joins) {
    joined.push_back({each->member_id, each->generation_id});
    assignments.emplace_back(each->member_id, "a" + std::to_string(assignments.size()));
  }
  for (const auto& each : joins)
    sync(each->member_id, each->generation_id, each->leader == each->member_id ? assignments : decltype(assignments){});
  logs.settle();
  return joined;
}

}  // namespace ciuic::broker::testing
