// v1 rebalance timeout · v4 member id handed out first (KIP-394) · v5 static members (KIP-345) · v6 flexible · v7
// protocol type and nullable name (KIP-559) · v8 reason (KIP-800) · v9 skip assignment (KIP-814).
#include "transport/kafka/messages/join_group.h"

#include "broker/api/group_call.h"

namespace ciuic::broker::api {

Awaitable<kafka::JoinGroupResponse> join_group(RequestContext& context, kafka::JoinGroupRequest request) {
  kafka::JoinGroupResponse response;
  if (!may(context, Operation::read, request.group_id)) {
    response.error_code = ErrorCode::group_authorization_failed;
    response.member_id = request.member_id;
  } else {
    response = co_await await_callback<kafka::JoinGroupResponse>([&context, &request](auto answer) {
      context.broker.groups->join(group_caller(context), std::move(request), std::move(answer));
    });
  }
  // Up to v6 there is no null for the name; from v7 on an error has none.
  constexpr std::int16_t nullable_name = 7;
  if (response.error_code != ErrorCode::none && context.version() >= nullable_name && response.protocol_name == "")
    response.protocol_name.reset();
  if (context.version() < nullable_name && !response.protocol_name) response.protocol_name = "";
  co_return response;
}

}  // namespace ciuic::broker::api
