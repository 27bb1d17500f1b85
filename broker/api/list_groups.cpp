// v3 flexible · v4 states (KIP-518) · v5 types (KIP-848).
#include "transport/kafka/messages/list_groups.h"

#include <algorithm>

#include "broker/api/group_call.h"

namespace ciuic::broker::api {

Awaitable<kafka::ListGroupsResponse> list_groups(RequestContext& context, kafka::ListGroupsRequest request) {
  auto response = co_await await_callback<kafka::ListGroupsResponse>(
      [&](auto answer) { context.broker.groups->list(std::move(request), std::move(answer)); });
  if (context.allowed(Operation::describe, Resource::cluster, "kafka-cluster")) co_return response;
  const auto hidden = [&](const auto& group) { return !may(context, Operation::describe, group.group_id); };
  response.groups.erase(std::remove_if(response.groups.begin(), response.groups.end(), hidden), response.groups.end());
  co_return response;
}

}  // namespace ciuic::broker::api
