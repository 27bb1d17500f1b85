// ciuic topics: list, create, delete, describe, alter.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <memory>

#include "tools/ciuic/cluster.h"
#include "tools/ciuic/commands.h"
#include "transport/kafka/messages/create_partitions.h"
#include "transport/kafka/messages/create_topics.h"
#include "transport/kafka/messages/delete_topics.h"
#include "transport/kafka/messages/describe_configs.h"

namespace ciuic::tool {
namespace {

constexpr std::int8_t topic_resource = 2;
constexpr std::int8_t set_on_the_topic = 1;

struct Options {
  std::vector<std::string> names;
  std::int32_t partitions = -1;
  std::int16_t replicas = -1;
  std::vector<std::string> configs;
  bool internal = false;
  bool lenient = false;
  bool validate = false;
};

Cluster open(const Common& common) { return {common.bootstrap, std::chrono::milliseconds(common.timeout_ms)}; }

void list(const Common& common, const Options& options) {
  auto cluster = open(common);
  auto topics = cluster.metadata().topics;
  std::sort(topics.begin(), topics.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  Json out = Json::array();
  Table table({"TOPIC", "PARTITIONS", "REPLICAS", "ID"});
  for (const auto& topic : topics) {
    if (topic.is_internal && !options.internal) continue;
    const auto replicas = topic.partitions.empty() ? 0 : topic.partitions.front().replica_nodes.size();
    out.push_back({{"topic", topic.name.value_or("")},
                   {"partitions", topic.partitions.size()},
                   {"replicas", replicas},
                   {"id", topic.topic_id.to_string()},
                   {"internal", topic.is_internal}});
    table.row({topic.name.value_or(""), std::to_string(topic.partitions.size()), std::to_string(replicas),
               topic.topic_id.to_string()});
  }
  if (common.json) return print_json(out);
  table.empty() ? print("No topics. Make one: ciuic topics create NAME") : table.print();
}

void create(const Common& common, const Options& options) {
  auto cluster = open(common);
  kafka::CreateTopicsRequest request;
  request.timeout_ms = static_cast<std::int32_t>(common.timeout_ms);
  request.validate_only = options.validate;
  for (const auto& name : options.names) {
    auto& topic = request.topics.emplace_back();
    topic.name = name;
    topic.num_partitions = options.partitions;
    topic.replication_factor = options.replicas;
    for (const auto& each : options.configs) {
      const auto equals = each.find('=');
      if (equals == std::string::npos) throw Failure(Exit::usage, "no config: " + each, "write -c key=value");
      topic.configs.push_back({each.substr(0, equals), each.substr(equals + 1)});
    }
  }
  auto response = cluster.any().call<kafka::CreateTopicsResponse>(request);
  Json out = Json::array();
  Failures failures;
  for (auto& topic : response.topics) {
    const bool there = topic.error_code == ErrorCode::topic_already_exists && options.lenient;
    if (!there && failures.add(topic.error_code, topic.name, topic.error_message.value_or(""))) {
      out.push_back({{"topic", topic.name}, {"created", false}, {"error", kafka::name(topic.error_code)}});
      continue;
    }
    if (there) {  // the answer is an error's: what the topic is like, metadata says
      const auto known = cluster.topic(topic.name);
      topic.num_partitions = static_cast<std::int32_t>(known.partitions.size());
      topic.replication_factor = static_cast<std::int16_t>(known.partitions.front().replica_nodes.size());
      topic.topic_id = known.topic_id;
    }
    Json one{{"topic", topic.name},
             {"created", !there && !options.validate},
             {"partitions", topic.num_partitions},
             {"replicas", topic.replication_factor}};
    if (!options.validate) one["id"] = topic.topic_id.to_string();
    out.push_back(std::move(one));
    if (common.json) continue;
    print(fmt::format("{}: {}, {} partitions, {} replicas", topic.name,
                      there              ? "already there"
                      : options.validate ? "could be created"
                                         : "created",
                      topic.num_partitions, topic.replication_factor));
  }
  if (common.json) print_json(out);
  failures.end();
}

void remove(const Common& common, const Options& options) {
  auto cluster = open(common);
  kafka::DeleteTopicsRequest request;
  request.timeout_ms = static_cast<std::int32_t>(common.timeout_ms);
  request.topic_names = options.names;
  for (const auto& name : options.names) request.topics.emplace_back().name = name;
  const auto response = cluster.any().call<kafka::DeleteTopicsResponse>(request);
  Json out = Json::array();
  Failures failures;
  for (const auto& topic : response.responses) {
    const auto name = topic.name.value_or("");
    const bool missing = topic.error_code == ErrorCode::unknown_topic_or_partition && options.lenient;
    if (!missing && failures.add(topic.error_code, name, topic.error_message.value_or(""))) {
      out.push_back({{"topic", name}, {"deleted", false}, {"error", kafka::name(topic.error_code)}});
      continue;
    }
    out.push_back({{"topic", name}, {"deleted", !missing}});
    if (!common.json) print(fmt::format("{}: {}", name, missing ? "was not there" : "deleted"));
  }
  if (common.json) print_json(out);
  failures.end();
}

void describe(const Common& common, const Options& options) {
  auto cluster = open(common);
  Json out = Json::array();
  for (const auto& name : options.names) {
    const auto topic = cluster.topic(name);
    const auto begin = cluster.offsets(name, -2);
    const auto end = cluster.offsets(name, -1);
    kafka::DescribeConfigsRequest configs;
    auto& resource = configs.resources.emplace_back();
    resource.resource_type = topic_resource;
    resource.resource_name = name;
    resource.configuration_keys.reset();
    const auto described = cluster.any().call<kafka::DescribeConfigsResponse>(configs);
    Json json{{"topic", name},
              {"id", topic.topic_id.to_string()},
              {"internal", topic.is_internal},
              {"configs", Json::object()},
              {"partitions", Json::array()}};
    for (const auto& result : described.results) {
      check(result.error_code, name, result.error_message.value_or(""));
      for (const auto& config : result.configs) {
        if (config.config_source == set_on_the_topic) json["configs"][config.name] = config.value.value_or("");
      }
    }
    Table table({"PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "BEGIN", "END"});
    auto partitions = topic.partitions;
    std::sort(partitions.begin(), partitions.end(),
              [](const auto& a, const auto& b) { return a.partition_index < b.partition_index; });
    for (const auto& partition : partitions) {
      const auto index = partition.partition_index;
      json["partitions"].push_back({{"partition", index},
                                    {"leader", partition.leader_id},
                                    {"leader_epoch", partition.leader_epoch},
                                    {"replicas", partition.replica_nodes},
                                    {"in_sync", partition.isr_nodes},
                                    {"begin", begin.at(index)},
                                    {"end", end.at(index)}});
      table.row({std::to_string(index), std::to_string(partition.leader_id), std::to_string(partition.leader_epoch),
                 fmt::format("{}", fmt::join(partition.replica_nodes, ",")),
                 fmt::format("{}", fmt::join(partition.isr_nodes, ",")), std::to_string(begin.at(index)),
                 std::to_string(end.at(index))});
    }
    if (!common.json) {
      print(fmt::format("{}  id {}  {} partitions", paint(Colour::bold, name), topic.topic_id.to_string(),
                        partitions.size()));
      for (const auto& [key, value] : json["configs"].items())
        print(fmt::format("  {}={}", key, value.get<std::string>()));
      table.print();
    }
    out.push_back(std::move(json));
  }
  if (common.json) print_json(out);
}

void alter(const Common& common, const Options& options) {
  auto cluster = open(common);
  kafka::CreatePartitionsRequest request;
  request.timeout_ms = static_cast<std::int32_t>(common.timeout_ms);
  request.validate_only = options.validate;
  for (const auto& name : options.names) {
    auto& topic = request.topics.emplace_back();
    topic.name = name;
    topic.count = options.partitions;
    topic.assignments.reset();
  }
  const auto response = cluster.any().call<kafka::CreatePartitionsResponse>(request);
  Json out = Json::array();
  Failures failures;
  for (const auto& topic : response.results) {
    if (failures.add(topic.error_code, topic.name, topic.error_message.value_or(""))) {
      out.push_back({{"topic", topic.name}, {"altered", false}, {"error", kafka::name(topic.error_code)}});
      continue;
    }
    out.push_back({{"topic", topic.name}, {"altered", !options.validate}, {"partitions", options.partitions}});
    if (!common.json)
      print(
          fmt::format("{}: {} {} partitions", topic.name, options.validate ? "could have" : "now", options.partitions));
  }
  if (common.json) print_json(out);
  failures.end();
}

}  // namespace

void add_topics(CLI::App& app, Common& common) {
  auto* const topics = app.add_subcommand("topics", "List, create, delete, describe and grow topics");
  topics->require_subcommand(1);
  auto options = std::make_shared<Options>();
  const auto sub = [&](const char* name, const char* text, void (*run)(const Common&, const Options&)) {
    auto* const command = topics->add_subcommand(name, text);
    add_common(*command, common);
    command->callback([&common, options, run] { run(common, *options); });
    return command;
  };
  sub("list", "Topics with their partitions", list)
      ->add_flag("--internal", options->internal, "Also topics of the brokers' own");
  auto* const made = sub("create", "Create topics", create);
  made->add_option("topic", options->names, "Names")->required();
  made->add_option("-p,--partitions", options->partitions, "Number of partitions; the broker's default otherwise");
  made->add_option("-r,--replicas", options->replicas, "Replicas of each partition; the broker's default otherwise");
  made->add_option("-c,--config", options->configs, "key=value; may be repeated")->allow_extra_args(false);
  made->add_flag("--if-not-exists", options->lenient, "A topic that is there already is no error");
  made->add_flag("--validate", options->validate, "Only say whether it would work");
  auto* const removed = sub("delete", "Delete topics and their data", remove);
  removed->add_option("topic", options->names, "Names")->required();
  removed->add_flag("--if-exists", options->lenient, "A topic that is not there is no error");
  sub("describe", "Partitions, offsets and configs", describe)
      ->add_option("topic", options->names, "Names")
      ->required();
  auto* const grown = sub("alter", "Give topics more partitions", alter);
  grown->add_option("topic", options->names, "Names")->required();
  grown->add_option("-p,--partitions", options->partitions, "New number of partitions; it can only grow")->required();
  grown->add_flag("--validate", options->validate, "Only say whether it would work");
}

}  // namespace ciuic::tool
