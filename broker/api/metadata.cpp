// v1 controller, internal topics · v4 auto-creation flag · v5 offline replicas · v7 leader epoch · v8 authorized
// operations (KIP-430) · v9 flexible · v10 topic ids · v12 requests by id · v13 top-level error (KIP-1102).
#include "transport/kafka/messages/metadata.h"

#include <algorithm>
#include <limits>

#include "broker/api/apis.h"
#include "broker/api/async.h"
#include "broker/metadata/internal_topics.h"

namespace ciuic::broker::api {
namespace {

using Response = kafka::MetadataResponse;
constexpr std::int32_t operations_not_asked = std::numeric_limits<std::int32_t>::min();
// Well below every client's own limit for an answer (Go and Java tools: 10 s and more).
constexpr Milliseconds auto_creation_max{5000};

Response::MetadataResponseTopic describe(const TopicImage& topic) {
  Response::MetadataResponseTopic answer;
  answer.name = topic.name;
  answer.topic_id = topic.id;
  answer.is_internal = is_internal_topic(topic.name);
  answer.topic_authorized_operations = operations_not_asked;
  answer.partitions.reserve(topic.partitions.size());
  for (std::size_t i = 0; i < topic.partitions.size(); ++i) {
    const auto& state = topic.partitions[i];
    auto& partition = answer.partitions.emplace_back();
    partition.partition_index = static_cast<std::int32_t>(i);
    partition.leader_id = state.leader;
    partition.leader_epoch = state.leader_epoch.value;
    partition.replica_nodes = state.replicas;
    partition.isr_nodes = state.isr;
    if (state.leader < 0) partition.error_code = ErrorCode::leader_not_available;
  }
  return answer;
}

Response::MetadataResponseTopic refuse(std::optional<std::string> name, const kafka::TopicId& id, ErrorCode code,
                                       std::int16_t version) {
  Response::MetadataResponseTopic answer;
  answer.error_code = code;
  answer.name = std::move(name);
  if (!answer.name && version < 12) answer.name = "";
  answer.topic_id = id;
  answer.is_internal = answer.name && is_internal_topic(*answer.name);
  answer.topic_authorized_operations = operations_not_asked;
  return answer;
}

/// Bit field of all operations that may be done on a topic (KIP-430); only computed when asked for.
std::int32_t topic_operations(const RequestContext& context, const std::string& name) {
  std::int32_t bits = 0;
  for (const auto operation :
       {Operation::read, Operation::write, Operation::create, Operation::remove, Operation::alter, Operation::describe,
        Operation::describe_configs, Operation::alter_configs}) {
    if (context.allowed(operation, Resource::topic, name)) bits |= 1 << static_cast<int>(operation);
  }
  return bits;
}

/// Ids came to requests with v12; v10 and v11 have the field but may not use it, and none has a null name before.
bool asks_ids_too_early(const kafka::MetadataRequest& request, std::int16_t version) {
  return version < 12 && request.topics &&
         std::any_of(request.topics->begin(), request.topics->end(),
                     [](const auto& wanted) { return !wanted.name || !wanted.topic_id.is_zero(); });
}

/// Makes the topics, and describes them where the response has put them off with LEADER_NOT_AVAILABLE. The answer waits
/// for them, so that a client's first send finds a leader that serves (pitfall: auto-creation answers before the topic
/// exists); what is not there in time keeps that error, and the client asks again.
Awaitable<void> make_topics(RequestContext& context, std::vector<NewTopic> topics, Response& response) {
  const auto made = co_await await_callback_for<std::vector<CreatedTopic>>(
      context.connection->executor(), auto_creation_max,
      [&](auto done) { context.broker.controller->create_topics(std::move(topics), Commit::yes, std::move(done)); });
  if (!made) co_return;
  const auto image = context.image();
  for (auto& answer : response.topics) {
    if (answer.error_code != ErrorCode::leader_not_available || !answer.name) continue;
    if (const auto* topic = image->topic(*answer.name); topic != nullptr) {
      answer = describe(*topic);
      continue;
    }
    for (const auto& result : *made) {
      if (result.name == *answer.name && !result.id) answer.error_code = result.id.error().code;
    }
  }
}

}  // namespace

Awaitable<Response> metadata(RequestContext& context, kafka::MetadataRequest request) {
  Response response;
  const auto version = context.version();
  auto image = context.image();
  if (asks_ids_too_early(request, version)) {
    for (const auto& each : *request.topics)
      response.topics.push_back(refuse(each.name, each.topic_id, ErrorCode::invalid_request, version));
    co_return response;
  }

  // v0 asks for all topics by an empty list, later versions by null.
  const bool all = !request.topics || (version == 0 && request.topics->empty());
  std::vector<NewTopic> to_create;
  if (all) {
    for (const auto& [name, topic] : image->topics()) {
      if (context.allowed(Operation::describe, Resource::topic, name)) response.topics.push_back(describe(*topic));
    }
  } else {
    for (const auto& wanted : *request.topics) {
      if (!wanted.name || !wanted.topic_id.is_zero()) {  // an id wins over a name
        const auto* topic = image->topic(wanted.topic_id);
        if (topic == nullptr) {
          response.topics.push_back(refuse(std::nullopt, wanted.topic_id, ErrorCode::unknown_topic_id, version));
        } else if (!context.allowed(Operation::describe, Resource::topic, topic->name)) {
          response.topics.push_back(
              refuse(std::nullopt, wanted.topic_id, ErrorCode::topic_authorization_failed, version));
        } else {
          response.topics.push_back(describe(*topic));
        }
        continue;
      }
      const auto& name = *wanted.name;
      if (!context.allowed(Operation::describe, Resource::topic, name)) {
        response.topics.push_back(refuse(name, {}, ErrorCode::topic_authorization_failed, version));
      } else if (const auto* topic = image->topic(name); topic != nullptr) {
        response.topics.push_back(describe(*topic));
      } else if (const auto wrong = wrong_topic_name(name)) {
        response.topics.push_back(refuse(name, {}, ErrorCode::invalid_topic_exception, version));
      } else if ((version < 4 || request.allow_auto_topic_creation) && context.broker.config.auto_create_topics &&
                 !is_internal_topic(name)) {
        if (!context.allowed(Operation::create, Resource::topic, name)) {
          response.topics.push_back(refuse(name, {}, ErrorCode::topic_authorization_failed, version));
        } else {
          NewTopic topic_to_make;
          topic_to_make.name = name;
          to_create.push_back(std::move(topic_to_make));
          response.topics.push_back(refuse(name, {}, ErrorCode::leader_not_available, version));
        }
      } else {
        response.topics.push_back(refuse(name, {}, ErrorCode::unknown_topic_or_partition, version));
      }
    }
  }
  if (!to_create.empty()) {
    co_await make_topics(context, std::move(to_create), response);
    image = context.image();
  }
  if (request.include_topic_authorized_operations && version >= 8) {
    for (auto& answer : response.topics) {
      if (answer.error_code == ErrorCode::none && answer.name)
        answer.topic_authorized_operations = topic_operations(context, *answer.name);
    }
  }

  for (const auto& [id, broker] : image->brokers()) {
    if (broker.fenced) continue;
    auto& node = response.brokers.emplace_back();
    node.node_id = id;
    node.host = broker.host;
    node.port = broker.port;
    if (!broker.rack.empty()) node.rack = broker.rack;
  }
  response.cluster_id = context.broker.cluster_id;
  response.controller_id = context.broker.config.node_id;
  response.cluster_authorized_operations = operations_not_asked;
  if (request.include_cluster_authorized_operations && version >= 8 && version <= 10) {
    std::int32_t bits = 0;
    for (const auto operation : {Operation::create, Operation::alter, Operation::describe, Operation::cluster_action,
                                 Operation::describe_configs, Operation::alter_configs, Operation::idempotent_write}) {
      if (context.allowed(operation, Resource::cluster, "kafka-cluster")) bits |= 1 << static_cast<int>(operation);
    }
    response.cluster_authorized_operations = bits;
  }
  co_return response;
}

}  // namespace ciuic::broker::api
