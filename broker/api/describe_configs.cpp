// v1 synonyms and sources (KIP-226) · v3 types and documentation (KIP-569) · v4 flexible.
#include "transport/kafka/messages/describe_configs.h"

#include <algorithm>
#include <charconv>

#include "broker/api/apis.h"

namespace ciuic::broker::api {
namespace {

using Response = kafka::DescribeConfigsResponse;
constexpr std::int8_t topic_resource = 2;
constexpr std::int8_t broker_resource = 4;
constexpr std::int8_t for_all_brokers = 3;  // ConfigSource DYNAMIC_DEFAULT_BROKER_CONFIG

enum class ReadOnly { no, unless_dynamic };

void fill(Response::DescribeConfigsResult& answer, const std::vector<ConfigEntry>& entries,
          const std::optional<std::vector<std::string>>& keys, const kafka::DescribeConfigsRequest& request,
          ReadOnly read_only) {
  for (const auto& entry : entries) {
    const auto& key = entry.key;
    if (keys && std::find(keys->begin(), keys->end(), key) == keys->end()) continue;
    auto& config = answer.configs.emplace_back();
    config.name = key;
    config.value = entry.value;
    config.read_only = read_only == ReadOnly::unless_dynamic && !is_dynamic(key);
    config.config_source = entry.sources.front().source;
    config.is_sensitive = false;
    config.config_type = static_cast<std::int8_t>(entry.setting->type);
    if (request.include_documentation) config.documentation = std::string(entry.setting->text);
    if (request.include_synonyms) {
      for (const auto& source : entry.sources) config.synonyms.push_back({source.key, source.value, source.source});
    }
  }
}

}  // namespace

Awaitable<Response> describe_configs(RequestContext& context, kafka::DescribeConfigsRequest request) {
  Response response;
  const auto image = context.image();
  for (const auto& resource : request.resources) {
    auto& answer = response.results.emplace_back();
    answer.resource_type = resource.resource_type;
    answer.resource_name = resource.resource_name;
    const auto refuse = [&](ErrorCode code, std::string text) {
      answer.error_code = code;
      answer.error_message = std::move(text);
    };
    if (resource.resource_type == topic_resource) {
      if (!context.allowed(Operation::describe_configs, Resource::topic, resource.resource_name)) {
        refuse(ErrorCode::topic_authorization_failed, "Topic authorization failed.");
      } else if (const auto wrong = wrong_topic_name(resource.resource_name)) {
        refuse(ErrorCode::invalid_topic_exception, *wrong);
      } else if (image->topic(resource.resource_name) == nullptr) {
        refuse(ErrorCode::unknown_topic_or_partition,
               fmt::format("The topic '{}' does not exist.", resource.resource_name));
      } else {
        fill(answer, describe_topic(layers(context.broker, *image), image->topic_config(resource.resource_name)),
             resource.configuration_keys, request, ReadOnly::no);
      }
    } else if (resource.resource_type == broker_resource) {
      if (!context.allowed(Operation::describe_configs, Resource::cluster, "kafka-cluster")) {
        refuse(ErrorCode::cluster_authorization_failed, "Cluster authorization failed.");
      } else if (resource.resource_name == std::to_string(context.broker.config.node_id)) {
        fill(answer, describe_broker(layers(context.broker, *image)), resource.configuration_keys, request,
             ReadOnly::unless_dynamic);
      } else if (resource.resource_name.empty()) {  // what is set on all brokers, and nothing else
        auto entries = describe_broker(layers(context.broker, *image));
        for (auto& entry : entries)
          std::erase_if(entry.sources, [](const auto& from) { return from.source != for_all_brokers; });
        std::erase_if(entries, [](const auto& entry) { return entry.sources.empty(); });
        for (auto& entry : entries) entry.value = entry.sources.front().value;
        fill(answer, entries, resource.configuration_keys, request, ReadOnly::unless_dynamic);
      } else {
        refuse(ErrorCode::invalid_request,
               fmt::format("Unexpected broker id, expected {} or empty string, but received {}",
                           context.broker.config.node_id, resource.resource_name));
      }
    } else {
      refuse(ErrorCode::invalid_request,
             fmt::format("Unsupported resource type: {}; 2 (topic) and 4 (broker) are", resource.resource_type));
    }
  }
  co_return response;
}

}  // namespace ciuic::broker::api
