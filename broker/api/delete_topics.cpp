// v4 flexible · v5 error message · v6 by topic id (KIP-516). timeout_ms as in create_topics.cpp.
#include "transport/kafka/messages/delete_topics.h"

#include "broker/api/apis.h"
#include "broker/api/async.h"

namespace ciuic::broker::api {

Awaitable<kafka::DeleteTopicsResponse> delete_topics(RequestContext& context, kafka::DeleteTopicsRequest request) {
  kafka::DeleteTopicsResponse response;
  const auto image = context.image();
  std::vector<kafka::TopicId> ids;
  std::vector<std::size_t> places;  // in the response, beside ids
  const auto ask = [&](std::optional<std::string> name, const kafka::TopicId& id, ErrorCode unknown) {
    auto& answer = response.responses.emplace_back();
    const auto* topic = name ? image->topic(*name) : image->topic(id);
    answer.name = std::move(name);
    answer.topic_id = id;
    if (topic == nullptr) {
      answer.error_code = unknown;
    } else if (!context.allowed(Operation::remove, Resource::topic, topic->name)) {
      answer.error_code = ErrorCode::topic_authorization_failed;
    } else if (!context.broker.config.delete_topics) {
      answer.error_code = context.version() < 3 ? ErrorCode::invalid_request : ErrorCode::topic_deletion_disabled;
      answer.error_message = "delete.topic.enable=false";
    } else {
      answer.name = topic->name;
      answer.topic_id = topic->id;
      ids.push_back(topic->id);
      places.push_back(response.responses.size() - 1);
    }
  };
  for (const auto& topic : request.topics)
    ask(topic.name, topic.topic_id, topic.name ? ErrorCode::unknown_topic_or_partition : ErrorCode::unknown_topic_id);
  for (const auto& name : request.topic_names) ask(name, {}, ErrorCode::unknown_topic_or_partition);
  if (!ids.empty()) {
    const auto errors = co_await await_callback_for<std::vector<kafka::Error>>(
        context.connection->executor(), Milliseconds(request.timeout_ms),
        [&](auto done) { context.broker.controller->delete_topics(std::move(ids), std::move(done)); });
    for (std::size_t i = 0; i < places.size(); ++i) {
      auto& answer = response.responses[places[i]];
      answer.error_code = errors ? (*errors)[i].code : ErrorCode::request_timed_out;
      if (errors && !(*errors)[i].text.empty()) answer.error_message = (*errors)[i].text;
    }
  }
  co_return response;
}

}  // namespace ciuic::broker::api
