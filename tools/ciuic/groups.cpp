// ciuic groups: list, describe (members, offsets, lag), delete, reset-offsets.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <memory>

#include "tools/ciuic/cluster.h"
#include "tools/ciuic/commands.h"
#include "transport/kafka/messages/consumer_protocol.h"
#include "transport/kafka/messages/delete_groups.h"
#include "transport/kafka/messages/describe_groups.h"
#include "transport/kafka/messages/list_groups.h"
#include "transport/kafka/messages/offset_commit.h"
#include "transport/kafka/messages/offset_fetch.h"

namespace ciuic::tool {
namespace {

struct Options {
  std::vector<std::string> groups;
  std::vector<std::string> states;
  std::vector<std::string> topics;
  std::string to;
  bool dry_run = false;
};

using Assigned = std::map<std::pair<std::string, std::int32_t>, std::string>;  // partition -> member

Cluster open(const Common& common) { return {common.bootstrap, std::chrono::milliseconds(common.timeout_ms)}; }

void list(const Common& common, const Options& options) {
  auto cluster = open(common);
  Json out = Json::array();
  Table table({"GROUP", "STATE", "PROTOCOL", "COORDINATOR"});
  for (const auto& broker : cluster.metadata(std::vector<std::string>{}).brokers) {
    kafka::ListGroupsRequest request;
    request.states_filter = options.states;
    const auto response = cluster.node(broker.node_id).call<kafka::ListGroupsResponse>(request);
    check(response.error_code, fmt::format("groups of broker {}", broker.node_id));
    for (const auto& group : response.groups) {
      out.push_back({{"group", group.group_id},
                     {"state", group.group_state},
                     {"type", group.group_type},
                     {"protocol_type", group.protocol_type},
                     {"coordinator", broker.node_id}});
      table.row({group.group_id, group.group_state, group.protocol_type.empty() ? "-" : group.protocol_type,
                 std::to_string(broker.node_id)});
    }
  }
  if (common.json) return print_json(out);
  table.empty() ? print("No groups.") : table.print();
}

std::map<std::string, std::map<std::int32_t, std::int64_t>> committed(Cluster& cluster, const std::string& group) {
  auto& coordinator = cluster.coordinator(group);
  kafka::OffsetFetchRequest request;
  request.group_id = group;
  request.topics.reset();
  auto& one = request.groups.emplace_back();
  one.group_id = group;
  one.topics.reset();
  constexpr std::int16_t by_name = 9;  // version 10 names topics by id alone
  const auto version = std::min(coordinator.version_for(kafka::OffsetFetchRequest::api_key, {2, by_name}), by_name);
  const auto response = coordinator.call_with<kafka::OffsetFetchResponse>(request, version);
  check(response.error_code, group);
  std::map<std::string, std::map<std::int32_t, std::int64_t>> found;
  const auto take = [&](const auto& topics) {
    for (const auto& topic : topics) {
      for (const auto& partition : topic.partitions) {
        check(partition.error_code, fmt::format("{} {}-{}", group, topic.name, partition.partition_index));
        if (partition.committed_offset >= 0) found[topic.name][partition.partition_index] = partition.committed_offset;
      }
    }
  };
  take(response.topics);
  for (const auto& each : response.groups) {
    check(each.error_code, group);
    take(each.topics);
  }
  return found;
}

kafka::DescribeGroupsResponse::DescribedGroup describe_one(Cluster& cluster, const std::string& group) {
  kafka::DescribeGroupsRequest request;
  request.groups = {group};
  auto response = cluster.coordinator(group).call<kafka::DescribeGroupsResponse>(request);
  if (response.groups.empty()) fail_with(ErrorCode::group_id_not_found, group);
  auto& described = response.groups.front();
  check(described.error_code, group);
  if (described.group_state == "Dead") fail_with(ErrorCode::group_id_not_found, group);
  return std::move(described);
}

std::vector<std::pair<std::string, std::int32_t>> assignment_of(const Buffer& bytes) {
  std::vector<std::pair<std::string, std::int32_t>> partitions;
  if (bytes.size() < 2) return partitions;
  const auto version =
      std::min(kafka::load_be<std::int16_t>(bytes.data()), kafka::ConsumerProtocolAssignment::valid_versions.max);
  const auto assignment = kafka::decode<kafka::ConsumerProtocolAssignment>(Bytes(bytes).subspan(2), version);
  if (!assignment) return partitions;  // not the consumer protocol
  for (const auto& topic : assignment->assigned_partitions) {
    for (const auto partition : topic.partitions) partitions.emplace_back(topic.topic, partition);
  }
  return partitions;
}

void describe(const Common& common, const Options& options) {
  auto cluster = open(common);
  Json out = Json::array();
  for (const auto& name : options.groups) {
    const auto group = describe_one(cluster, name);
    Json json{{"group", name},
              {"state", group.group_state},
              {"protocol_type", group.protocol_type},
              {"assignor", group.protocol_data},
              {"members", Json::array()},
              {"offsets", Json::array()}};
    Assigned owners;
    Table members({"MEMBER", "HOST", "CLIENT", "PARTITIONS"});
    for (const auto& member : group.members) {
      const auto partitions = assignment_of(member.member_assignment);
      Json assigned = Json::array();
      for (const auto& [topic, partition] : partitions) {
        owners[{topic, partition}] = member.client_id;
        assigned.push_back({{"topic", topic}, {"partition", partition}});
      }
      json["members"].push_back({{"member", member.member_id},
                                 {"instance", member.group_instance_id ? Json(*member.group_instance_id) : Json()},
                                 {"client", member.client_id},
                                 {"host", member.client_host},
                                 {"assignment", assigned}});
      members.row({member.member_id, member.client_host, member.client_id, std::to_string(partitions.size())});
    }
    Table offsets({"TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT"});
    std::int64_t lag_total = 0;
    auto known = committed(cluster, name);
    for (const auto& [at, client] : owners) known[at.first].try_emplace(at.second, -1);
    for (const auto& [topic, partitions] : known) {
      const auto end = cluster.offsets(topic, -1);
      const auto begin = cluster.offsets(topic, -2);
      for (const auto& [partition, offset] : partitions) {
        const auto last = end.find(partition);
        if (last == end.end()) continue;
        // Nothing committed yet: everything there is, is ahead.
        const auto lag = std::max<std::int64_t>(last->second - (offset < 0 ? begin.at(partition) : offset), 0);
        lag_total += lag;
        const auto owner = owners.find({topic, partition});
        json["offsets"].push_back({{"topic", topic},
                                   {"partition", partition},
                                   {"committed", offset < 0 ? Json() : Json(offset)},
                                   {"end", last->second},
                                   {"lag", lag}});
        offsets.row({topic, std::to_string(partition), offset < 0 ? "-" : std::to_string(offset),
                     std::to_string(last->second), std::to_string(lag), owner == owners.end() ? "-" : owner->second});
      }
    }
    json["lag"] = lag_total;
    if (!common.json) {
      print(fmt::format("{}  {}  {} members  lag {}", paint(Colour::bold, name), group.group_state,
                        group.members.size(), lag_total));
      if (!members.empty()) members.print();
      if (!offsets.empty()) offsets.print();
    }
    out.push_back(std::move(json));
  }
  if (common.json) print_json(out);
}

void remove(const Common& common, const Options& options) {
  auto cluster = open(common);
  Json out = Json::array();
  Failures failures;
  for (const auto& name : options.groups) {
    kafka::DeleteGroupsRequest request;
    request.groups_names = {name};
    for (const auto& result : cluster.coordinator(name).call<kafka::DeleteGroupsResponse>(request).results) {
      if (failures.add(result.error_code, name)) {
        out.push_back({{"group", name}, {"deleted", false}, {"error", kafka::name(result.error_code)}});
        continue;
      }
      out.push_back({{"group", name}, {"deleted", true}});
      if (!common.json) print(name + ": deleted");
    }
  }
  if (common.json) print_json(out);
  failures.end();
}

/// "topic" or "topic:0,2" → topic and partitions (none: all).
std::pair<std::string, std::vector<std::int32_t>> parse_topic(const std::string& text) {
  const auto colon = text.find(':');
  std::vector<std::int32_t> partitions;
  if (colon == std::string::npos) return {text, partitions};
  for (const auto& part : CLI::detail::split(text.substr(colon + 1), ',')) {
    const auto number = whole_number<std::int32_t>(part);
    if (!number || *number < 0)
      throw Failure(Exit::usage, fmt::format("no partition: {} in {}", part, text), "write topic:0,1");
    partitions.push_back(*number);
  }
  return {text.substr(0, colon), partitions};
}

std::map<std::int32_t, std::int64_t> targets(Cluster& cluster, const std::string& topic, const std::string& to) {
  if (to == "earliest") return cluster.offsets(topic, -2);
  auto end = cluster.offsets(topic, -1);
  if (to == "latest") return end;
  if (!to.empty() && to.front() == '@') {
    auto found = cluster.offsets(topic, parse_time(to.substr(1)));
    for (auto& [partition, offset] : found) {
      if (offset < 0) offset = end.at(partition);  // nothing later: the end
    }
    return found;
  }
  const auto number = whole_number<std::int64_t>(to);
  if (!number || *number < 0)
    throw Failure(Exit::usage, "no offset: " + to, "write earliest, latest, a number or @time");
  const auto begin = cluster.offsets(topic, -2);
  for (auto& [partition, offset] : end) offset = std::clamp(*number, begin.at(partition), offset);
  return end;
}

void reset(const Common& common, const Options& options) {
  auto cluster = open(common);
  Json out = Json::array();
  Table table({"GROUP", "TOPIC", "PARTITION", "FROM", "TO"});
  for (const auto& name : options.groups) {
    const auto before = committed(cluster, name);
    kafka::OffsetCommitRequest request;
    request.group_id = name;
    auto wanted = options.topics;
    if (wanted.empty()) {
      for (const auto& [topic, partitions] : before) wanted.push_back(topic);
    }
    for (const auto& each : wanted) {
      const auto [topic, only] = parse_topic(each);
      auto& to = request.topics.emplace_back();
      to.name = topic;
      const auto found = targets(cluster, topic, options.to);
      for (const auto partition : only) {
        if (found.count(partition) == 0)
          fail_with(ErrorCode::unknown_topic_or_partition, fmt::format("{}-{}", topic, partition));
      }
      for (const auto& [partition, offset] : found) {
        if (!only.empty() && std::find(only.begin(), only.end(), partition) == only.end()) continue;
        auto& commit = to.partitions.emplace_back();
        commit.partition_index = partition;
        commit.committed_offset = offset;
        commit.committed_metadata = "";
        const auto known = before.find(topic);
        const auto from =
            known == before.end() || known->second.count(partition) == 0 ? -1 : known->second.at(partition);
        out.push_back({{"group", name},
                       {"topic", topic},
                       {"partition", partition},
                       {"from", from < 0 ? Json() : Json(from)},
                       {"to", offset}});
        table.row(
            {name, topic, std::to_string(partition), from < 0 ? "-" : std::to_string(from), std::to_string(offset)});
      }
    }
    if (options.dry_run) continue;
    auto& coordinator = cluster.coordinator(name);
    constexpr std::int16_t by_name = 9;
    const auto version = coordinator.version_for(kafka::OffsetCommitRequest::api_key, {2, by_name});
    for (const auto& topic : coordinator.call_with<kafka::OffsetCommitResponse>(request, version).topics) {
      for (const auto& partition : topic.partitions)
        check(partition.error_code, fmt::format("{} {}-{}", name, topic.name, partition.partition_index));
    }
  }
  if (common.json) return print_json(out);
  table.empty() ? print("Nothing to reset: name topics with -t.") : table.print();
  if (options.dry_run) print("Nothing was changed (--dry-run).");
}

}  // namespace

void add_groups(CLI::App& app, Common& common) {
  auto* const groups = app.add_subcommand("groups", "List, describe, delete groups and reset their offsets");
  groups->require_subcommand(1);
  auto options = std::make_shared<Options>();
  const auto sub = [&](const char* name, const char* text, void (*run)(const Common&, const Options&)) {
    auto* const command = groups->add_subcommand(name, text);
    add_common(*command, common);
    command->callback([&common, options, run] { run(common, *options); });
    return command;
  };
  sub("list", "Groups and their state", list)
      ->add_option("--state", options->states, "Only in these states: Stable, Empty, …");
  sub("describe", "Members, committed offsets and lag", describe)
      ->add_option("group", options->groups, "Names")
      ->required();
  sub("delete", "Delete groups without members, and their offsets", remove)
      ->add_option("group", options->groups, "Names")
      ->required();
  auto* const changed = sub("reset-offsets", "Commit other offsets for a group without members", reset);
  changed->add_option("group", options->groups, "Names")->required();
  changed
      ->add_option("-t,--topic", options->topics,
                   "topic or topic:0,2; may be repeated; otherwise all that are committed")
      ->allow_extra_args(false);
  changed->add_option("--to", options->to, "earliest, latest, an offset, or @time")->required();
  changed->add_flag("--dry-run", options->dry_run, "Only show what would change");
}

}  // namespace ciuic::tool
