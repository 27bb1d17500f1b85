// ciuic configs: describe, set, delete.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "tools/ciuic/cluster.h"
#include "tools/ciuic/commands.h"
#include "transport/kafka/messages/describe_configs.h"
#include "transport/kafka/messages/incremental_alter_configs.h"

namespace ciuic::tool {
namespace {

constexpr std::int8_t topic_resource = 2;
constexpr std::int8_t broker_resource = 4;
constexpr std::int8_t default_source = 5;

struct Options {
  std::string kind;
  std::string name;
  std::vector<std::string> keys;
  bool all = false;
};

std::int8_t resource(const Options& options) { return options.kind == "topic" ? topic_resource : broker_resource; }

const char* source_name(std::int8_t source) {
  switch (source) {
    case 1:
      return "topic";
    case 2:
      return "dynamic broker";
    case 3:
      return "dynamic default";
    case 4:
      return "server.properties";
    case default_source:
      return "default";
    default:
      return "other";
  }
}

void describe(const Common& common, const Options& options) {
  Cluster cluster(common.bootstrap, std::chrono::milliseconds(common.timeout_ms));
  kafka::DescribeConfigsRequest request;
  request.include_documentation = true;
  auto& asked = request.resources.emplace_back();
  asked.resource_type = resource(options);
  asked.resource_name = options.name;
  if (options.keys.empty()) {
    asked.configuration_keys.reset();
  } else {
    asked.configuration_keys = options.keys;
  }
  const auto response = cluster.any().call<kafka::DescribeConfigsResponse>(request);
  Json out = Json::array();
  Table table({"KEY", "VALUE", "FROM"});
  for (const auto& result : response.results) {
    check(result.error_code, options.kind + " " + options.name, result.error_message.value_or(""));
    for (const auto& config : result.configs) {
      if (config.config_source == default_source && !options.all && options.keys.empty()) continue;
      out.push_back({{"key", config.name},
                     {"value", config.value ? Json(*config.value) : Json()},
                     {"source", source_name(config.config_source)},
                     {"read_only", config.read_only},
                     {"documentation", config.documentation.value_or("")}});
      table.row({config.name, config.value.value_or(config.is_sensitive ? "(hidden)" : ""),
                 source_name(config.config_source)});
    }
  }
  for (const auto& key : options.keys) {
    if (std::none_of(out.begin(), out.end(), [&](const Json& one) { return one["key"] == key; }))
      fail_with(ErrorCode::invalid_config, fmt::format("{} {}", options.kind, options.name), "no such key: " + key);
  }
  if (common.json) return print_json(out);
  table.empty() ? print("Everything is at its default; --all shows it.") : table.print();
}

void change(const Common& common, const Options& options, bool set) {
  constexpr std::int8_t op_set = 0;
  constexpr std::int8_t op_delete = 1;
  Cluster cluster(common.bootstrap, std::chrono::milliseconds(common.timeout_ms));
  kafka::IncrementalAlterConfigsRequest request;
  auto& to = request.resources.emplace_back();
  to.resource_type = resource(options);
  to.resource_name = options.name;
  for (const auto& key : options.keys) {
    const auto equals = key.find('=');
    if (set && equals == std::string::npos) throw Failure(Exit::usage, "no config: " + key, "write key=value");
    auto& config = to.configs.emplace_back();
    config.name = set ? key.substr(0, equals) : key;
    config.config_operation = set ? op_set : op_delete;
    config.value = set ? std::optional(key.substr(equals + 1)) : std::nullopt;
  }
  const auto response = cluster.any().call<kafka::IncrementalAlterConfigsResponse>(request);
  for (const auto& result : response.responses)
    check(result.error_code, options.kind + " " + options.name, result.error_message.value_or(""));
  if (common.json)
    return print_json(Json{{"kind", options.kind}, {"name", options.name}, {set ? "set" : "deleted", options.keys}});
  print(fmt::format("{} {}: {} {}", options.kind, options.name, options.keys.size(),
                    set ? "set" : "back at the default"));
}

}  // namespace

void add_configs(CLI::App& app, Common& common) {
  auto* const configs = app.add_subcommand("configs", "Describe, set and delete settings of topics and brokers");
  configs->require_subcommand(1);
  auto options = std::make_shared<Options>();
  const auto sub = [&](const char* name, const char* text, auto run) {
    auto* const command = configs->add_subcommand(name, text);
    command->add_option("kind", options->kind, "topic or broker")
        ->required()
        ->check(CLI::IsMember({"topic", "broker"}));
    command->add_option("name", options->name, "The topic, or the broker's node id")->required();
    add_common(*command, common);
    command->callback([&common, options, run] { run(common, *options); });
    return command;
  };
  auto* const shown = sub("describe", "What differs from the defaults", describe);
  shown->add_option("keys", options->keys, "Only these");
  shown->add_flag("-a,--all", options->all, "Defaults too");
  sub("set", "Set keys", [](const Common& c, const Options& o) { change(c, o, true); })
      ->add_option("keys", options->keys, "key=value")
      ->required();
  sub("delete", "Put keys back to their defaults", [](const Common& c, const Options& o) { change(c, o, false); })
      ->add_option("keys", options->keys, "Keys")
      ->required();
}

}  // namespace ciuic::tool
