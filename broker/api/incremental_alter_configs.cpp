// v0 KIP-339 · v1 flexible. Topics, and of brokers the keys that give topics their defaults; others are read at start.
#include "transport/kafka/messages/incremental_alter_configs.h"

#include <set>

#include "broker/api/apis.h"
#include "broker/api/async.h"

namespace ciuic::broker::api {
namespace {
constexpr std::int8_t topic_resource = 2;
constexpr std::int8_t broker_resource = 4;
}  // namespace

Awaitable<kafka::IncrementalAlterConfigsResponse> incremental_alter_configs(
    RequestContext& context, kafka::IncrementalAlterConfigsRequest request) {
  kafka::IncrementalAlterConfigsResponse response;
  std::vector<ConfigAlteration> changes;
  std::vector<std::size_t> places;
  std::set<std::pair<std::int8_t, std::string>> seen;
  for (const auto& resource : request.resources) {
    auto& answer = response.responses.emplace_back();
    answer.resource_type = resource.resource_type;
    answer.resource_name = resource.resource_name;
    const auto refuse = [&](ErrorCode code, std::string text) {
      answer.error_code = code;
      answer.error_message = std::move(text);
    };
    if (!seen.insert({resource.resource_type, resource.resource_name}).second) {
      refuse(ErrorCode::invalid_request,
             fmt::format("Each resource must appear at most once; '{}' does not", resource.resource_name));
      continue;
    }
    const bool of_topic = resource.resource_type == topic_resource;
    if (!of_topic && resource.resource_type != broker_resource) {
      refuse(ErrorCode::invalid_request,
             fmt::format("Unsupported resource type: {}; 2 (topic) and 4 (broker) are", resource.resource_type));
      continue;
    }
    const auto node = std::to_string(context.broker.config.node_id);
    if (!of_topic && !resource.resource_name.empty() && resource.resource_name != node) {
      refuse(ErrorCode::invalid_request,
             fmt::format("Unexpected broker id, expected {} or empty string, but received {}", node,
                         resource.resource_name));
      continue;
    }
    if (!context.allowed(Operation::alter_configs, of_topic ? Resource::topic : Resource::cluster,
                         of_topic ? std::string_view(resource.resource_name) : "kafka-cluster")) {
      refuse(of_topic ? ErrorCode::topic_authorization_failed : ErrorCode::cluster_authorization_failed,
             of_topic ? "Topic authorization failed." : "Cluster authorization failed.");
      continue;
    }
    ConfigAlteration change;
    change.resource = of_topic ? ConfigResource::topic : ConfigResource::broker;
    change.name = resource.resource_name;
    std::set<std::string> keys;
    bool good = true;
    for (const auto& config : resource.configs) {
      if (config.config_operation < 0 || config.config_operation > 3) {
        refuse(ErrorCode::invalid_request,
               fmt::format("Unknown operation {} for configuration {}", config.config_operation, config.name));
        good = false;
      } else if (!keys.insert(config.name).second) {
        refuse(ErrorCode::invalid_request, fmt::format("Error due to duplicate config keys: {}", config.name));
        good = false;
      }
      if (!good) break;
      change.keys.push_back({config.name, static_cast<ConfigChange>(config.config_operation), config.value});
    }
    if (!good) continue;
    changes.push_back(std::move(change));
    places.push_back(response.responses.size() - 1);
  }
  if (!changes.empty()) {
    const auto commit = request.validate_only ? Commit::validate_only : Commit::yes;
    const auto results = co_await await_callback<std::vector<NamedResult>>(
        [&](auto done) { context.broker.controller->alter_configs(std::move(changes), commit, std::move(done)); });
    for (std::size_t i = 0; i < results.size() && i < places.size(); ++i) {
      auto& answer = response.responses[places[i]];
      answer.error_code = results[i].error.code;
      answer.error_message.reset();
      if (!results[i].error.text.empty()) answer.error_message = results[i].error.text;
    }
  }
  co_return response;
}

}  // namespace ciuic::broker::api
