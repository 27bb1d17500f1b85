// v1 key type and error text · v3 flexible · v4 several keys (KIP-699) · v5 TRANSACTION_ABORTABLE · v6 share groups
// (KIP-932).
#include "transport/kafka/messages/find_coordinator.h"

#include "broker/api/group_call.h"

namespace ciuic::broker::api {
namespace {

using Response = kafka::FindCoordinatorResponse;
constexpr std::int8_t group_key = 0;
constexpr std::int8_t transaction_key = 1;
constexpr std::int8_t share_key = 2;
constexpr std::int16_t several_keys = 4;
constexpr std::int16_t knows_share = 6;
// COORDINATOR_NOT_AVAILABLE after that: clients ask again.
constexpr Milliseconds creation_max{5000};

Response::Coordinator refuse(const std::string& key, ErrorCode code, std::optional<std::string> text = std::nullopt) {
  Response::Coordinator out;
  out.key = key;
  out.node_id = -1;
  out.port = -1;
  out.error_code = code;
  out.error_message = std::move(text);
  return out;
}

/// Makes __consumer_offsets if it is not there yet, as Apache does at the first question.
Awaitable<void> ensure_offsets_topic(RequestContext& context) {
  if (context.image()->topic(offsets_topic) != nullptr) co_return;
  const auto& config = context.broker.config;
  NewTopic topic;
  topic.name = offsets_topic;
  topic.partitions = config.offsets_partitions;
  topic.replication_factor = config.offsets_replication_factor;
  topic.config = {{"cleanup.policy", "compact"},
                  {"compression.type", "producer"},
                  {"segment.bytes", std::to_string(config.offsets_segment_bytes)}};
  const auto made = co_await await_callback_for<std::vector<CreatedTopic>>(
      context.connection->executor(), creation_max,
      [&](auto done) { context.broker.controller->create_topics({std::move(topic)}, Commit::yes, std::move(done)); });
  if (!made) co_return;
  for (const auto& each : *made) {
    // Somebody else's question may have been first.
    if (each.id.has_error() && each.id.error().code != ErrorCode::topic_already_exists) {
      log::bounded(log::Level::error, "group", "{} not created code={} reason=\"{}\"", offsets_topic,
                   kafka::name(each.id.error().code), each.id.error().text);
    }
  }
}

Awaitable<Response::Coordinator> find_one(RequestContext& context, std::int8_t type, std::string key) {
  if (type == transaction_key) {
    if (!context.allowed(Operation::describe, Resource::transactional_id, key))
      co_return refuse(key, ErrorCode::transactional_id_authorization_failed);
    // No client retries this one: it fails at once, with words, instead of waiting for a coordinator that never comes.
    co_return refuse(key, ErrorCode::transactional_id_authorization_failed,
                     "Transactions are not served by this broker; leave transactional.id unset.");
  }
  if (type == share_key && context.version() >= knows_share) {
    co_return refuse(key, ErrorCode::invalid_request, "Share groups are not served by this broker.");
  }
  if (type != group_key) co_return refuse(key, ErrorCode::invalid_request);
  if (!may(context, Operation::describe, key)) co_return refuse(key, ErrorCode::group_authorization_failed);
  co_await ensure_offsets_topic(context);
  const auto image = context.image();
  const auto* topic = image->topic(offsets_topic);
  if (topic == nullptr) co_return refuse(key, ErrorCode::coordinator_not_available);
  const auto* state =
      topic->partition(GroupCoordinator::partition_for(key, static_cast<std::int32_t>(topic->partitions.size())));
  const auto node = state == nullptr ? image->brokers().end() : image->brokers().find(state->leader);
  if (node == image->brokers().end()) co_return refuse(key, ErrorCode::coordinator_not_available);
  Response::Coordinator out;
  out.key = std::move(key);
  out.node_id = node->second.id;
  out.host = node->second.host;
  out.port = node->second.port;
  co_return out;
}

}  // namespace

Awaitable<Response> find_coordinator(RequestContext& context, kafka::FindCoordinatorRequest request) {
  Response response;
  if (context.version() >= several_keys) {
    for (auto& key : request.coordinator_keys)
      response.coordinators.push_back(co_await find_one(context, request.key_type, std::move(key)));
    co_return response;
  }
  auto found = co_await find_one(context, request.key_type, std::move(request.key));
  response.error_code = found.error_code;
  // Clients compare this text (pitfall: any other stops some from asking again).
  response.error_message = found.error_code == ErrorCode::none ? "NONE" : std::string(kafka::name(found.error_code));
  if (found.error_code == ErrorCode::coordinator_not_available)
    response.error_message = "The coordinator is not available.";
  if (!found.error_message.value_or("").empty()) response.error_message = std::move(found.error_message);
  response.node_id = found.node_id;
  response.host = std::move(found.host);
  response.port = found.port;
  co_return response;
}

}  // namespace ciuic::broker::api
