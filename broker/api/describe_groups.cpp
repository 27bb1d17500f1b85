// v3 authorized operations (KIP-430) · v4 static members (KIP-345) · v5 flexible · v6 GROUP_ID_NOT_FOUND and its text
// (KIP-1043).
#include "transport/kafka/messages/describe_groups.h"

#include "broker/api/group_call.h"

namespace ciuic::broker::api {

Awaitable<kafka::DescribeGroupsResponse> describe_groups(RequestContext& context,
                                                         kafka::DescribeGroupsRequest request) {
  using Described = kafka::DescribeGroupsResponse::DescribedGroup;
  kafka::DescribeGroupsResponse response;
  std::vector<std::string> asked;
  for (auto& group : request.groups) {
    if (may(context, Operation::describe, group)) {
      asked.push_back(std::move(group));
    } else {
      auto& refused = response.groups.emplace_back();
      refused.group_id = std::move(group);
      refused.error_code = ErrorCode::group_authorization_failed;
    }
  }
  auto described = co_await await_callback<std::vector<Described>>(
      [&](auto answer) { context.broker.groups->describe(context.version(), std::move(asked), std::move(answer)); });
  for (auto& group : described) {
    if (request.include_authorized_operations && group.error_code == ErrorCode::none) {
      group.authorized_operations = 0;
      for (const auto operation : {Operation::read, Operation::remove, Operation::describe, Operation::describe_configs,
                                   Operation::alter_configs}) {
        if (may(context, operation, group.group_id)) group.authorized_operations |= 1 << static_cast<int>(operation);
      }
    }
    response.groups.push_back(std::move(group));
  }
  co_return response;
}

}  // namespace ciuic::broker::api
