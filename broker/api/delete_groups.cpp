// v2 flexible.
#include "transport/kafka/messages/delete_groups.h"

#include "broker/api/group_call.h"

namespace ciuic::broker::api {

Awaitable<kafka::DeleteGroupsResponse> delete_groups(RequestContext& context, kafka::DeleteGroupsRequest request) {
  using Result = kafka::DeleteGroupsResponse::DeletableGroupResult;
  kafka::DeleteGroupsResponse response;
  std::vector<std::string> wanted;
  for (auto& group : request.groups_names) {
    if (may(context, Operation::remove, group)) {
      wanted.push_back(std::move(group));
    } else {
      response.results.push_back({std::move(group), ErrorCode::group_authorization_failed});
    }
  }
  auto results = co_await await_callback<std::vector<Result>>(
      [&](auto answer) { context.broker.groups->remove(std::move(wanted), std::move(answer)); });
  for (auto& result : results) response.results.push_back(std::move(result));
  co_return response;
}

}  // namespace ciuic::broker::api
