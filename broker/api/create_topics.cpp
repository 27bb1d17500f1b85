// v2 throttle · v4 broker defaults by -1 (KIP-464) · v5 flexible, configs in the answer (KIP-525) · v7 topic id.
// timeout_ms is how long the client waits: REQUEST_TIMED_OUT then, and the topic may come all the same. 0 never waits,
// as with Apache; librdkafka asks so and takes the error for "under way".
#include "transport/kafka/messages/create_topics.h"

#include <map>
#include <utility>

#include "broker/api/apis.h"
#include "broker/api/async.h"

namespace ciuic::broker::api {

Awaitable<kafka::CreateTopicsResponse> create_topics(RequestContext& context, kafka::CreateTopicsRequest request) {
  kafka::CreateTopicsResponse response;
  const auto commit = request.validate_only ? Commit::validate_only : Commit::yes;
  std::vector<NewTopic> topics;
  std::map<std::string_view, int> times;
  for (const auto& wanted : request.topics) ++times[wanted.name];
  for (const auto& wanted : request.topics) {
    if (const auto named = std::exchange(times[wanted.name], 0); named != 1) {
      if (named == 0) continue;  // answered at its first mention
      auto& answer = response.topics.emplace_back();
      answer.name = wanted.name;
      answer.error_code = ErrorCode::invalid_request;
      answer.error_message = "Duplicate topic name.";
      continue;
    }
    if (!context.allowed(Operation::create, Resource::topic, wanted.name)) {
      auto& answer = response.topics.emplace_back();
      answer.name = wanted.name;
      answer.error_code = ErrorCode::topic_authorization_failed;
      continue;
    }
    NewTopic topic;
    topic.name = wanted.name;
    topic.partitions = wanted.num_partitions;
    topic.replication_factor = wanted.replication_factor;
    for (const auto& assignment : wanted.assignments)
      topic.assignments.emplace_back(assignment.partition_index, assignment.broker_ids);
    for (const auto& config : wanted.configs) {
      if (config.value) topic.config[config.name] = *config.value;
    }
    topics.push_back(std::move(topic));
  }
  std::map<std::string, Overrides> configs;
  for (const auto& topic : topics) configs[topic.name] = topic.config;
  if (topics.empty()) co_return response;
  const auto made = co_await await_callback_for<std::vector<CreatedTopic>>(
      context.connection->executor(), Milliseconds(request.timeout_ms),
      [&](auto done) { context.broker.controller->create_topics(std::move(topics), commit, std::move(done)); });
  if (!made) {
    for (const auto& wanted : request.topics) {
      if (!configs.contains(wanted.name)) continue;  // answered already
      auto& answer = response.topics.emplace_back();
      answer.name = wanted.name;
      answer.error_code = ErrorCode::request_timed_out;
      answer.error_message.reset();
    }
    co_return response;
  }
  const auto image = context.image();
  for (const auto& topic : *made) {
    auto& answer = response.topics.emplace_back();
    answer.name = topic.name;
    answer.error_message.reset();
    if (!topic.id) {
      answer.error_code = topic.id.error().code;
      answer.error_message = topic.id.error().text;
      continue;
    }
    answer.topic_id = request.validate_only ? kafka::Uuid{} : *topic.id;
    answer.num_partitions = topic.partitions;
    answer.replication_factor = topic.replication_factor;
    auto& entries = answer.configs.emplace();
    for (const auto& entry : describe_topic(layers(context.broker, *image), configs[topic.name])) {
      auto& config = entries.emplace_back();
      config.name = entry.key;
      config.value = entry.value;
      config.config_source = entry.sources.front().source;
    }
  }
  co_return response;
}

}  // namespace ciuic::broker::api
