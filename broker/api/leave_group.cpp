// v3 several members, static ones by instance id (KIP-345) · v4 flexible · v5 reason (KIP-800).
#include "transport/kafka/messages/leave_group.h"

#include "broker/api/group_call.h"

namespace ciuic::broker::api {

Awaitable<kafka::LeaveGroupResponse> leave_group(RequestContext& context, kafka::LeaveGroupRequest request) {
  constexpr std::int16_t several = 3;
  kafka::LeaveGroupResponse response;
  if (!may(context, Operation::read, request.group_id)) {
    response.error_code = ErrorCode::group_authorization_failed;
    co_return response;
  }
  if (context.version() < several) request.members.emplace_back().member_id = request.member_id;
  response = co_await await_callback<kafka::LeaveGroupResponse>(
      [&context, &request](auto answer) { context.broker.groups->leave(std::move(request), std::move(answer)); });
  if (context.version() < several) {
    if (response.error_code == ErrorCode::none && !response.members.empty())
      response.error_code = response.members.front().error_code;
    response.members.clear();
  }
  co_return response;
}

}  // namespace ciuic::broker::api
