// v0 KIP-195 · v2 flexible · v3 quota errors. timeout_ms as in create_topics.cpp.
#include "transport/kafka/messages/create_partitions.h"

#include "broker/api/apis.h"
#include "broker/api/async.h"

namespace ciuic::broker::api {

Awaitable<kafka::CreatePartitionsResponse> create_partitions(RequestContext& context,
                                                             kafka::CreatePartitionsRequest request) {
  kafka::CreatePartitionsResponse response;
  std::vector<MorePartitions> wanted;
  for (const auto& topic : request.topics) {
    if (!context.allowed(Operation::alter, Resource::topic, topic.name)) {
      response.results.push_back({topic.name, ErrorCode::topic_authorization_failed, std::nullopt});
      continue;
    }
    MorePartitions more;
    more.topic = topic.name;
    more.total = topic.count;
    if (topic.assignments) {
      for (const auto& assignment : *topic.assignments) more.assignments.push_back(assignment.broker_ids);
    }
    wanted.push_back(std::move(more));
  }
  const auto commit = request.validate_only ? Commit::validate_only : Commit::yes;
  std::vector<std::string> names;
  for (const auto& topic : wanted) names.push_back(topic.topic);
  const auto results = co_await await_callback_for<std::vector<NamedResult>>(
      context.connection->executor(), Milliseconds(request.timeout_ms),
      [&](auto done) { context.broker.controller->create_partitions(std::move(wanted), commit, std::move(done)); });
  if (!results) {
    for (const auto& name : names) response.results.push_back({name, ErrorCode::request_timed_out, std::nullopt});
    co_return response;
  }
  for (const auto& result : *results) {
    auto& answer = response.results.emplace_back();
    answer.name = result.name;
    answer.error_code = result.error.code;
    if (!result.error.text.empty()) answer.error_message = result.error.text;
  }
  co_return response;
}

}  // namespace ciuic::broker::api
