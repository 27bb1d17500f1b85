// v3 static members (KIP-345) · v4 flexible · v5 protocol type and name must be said (KIP-559).
#include "transport/kafka/messages/sync_group.h"

#include "broker/api/group_call.h"

namespace ciuic::broker::api {

Awaitable<kafka::SyncGroupResponse> sync_group(RequestContext& context, kafka::SyncGroupRequest request) {
  constexpr std::int16_t protocol_must_be_said = 5;
  kafka::SyncGroupResponse response;
  if (context.version() >= protocol_must_be_said && (!request.protocol_type || !request.protocol_name)) {
    response.error_code = ErrorCode::inconsistent_group_protocol;
  } else if (!may(context, Operation::read, request.group_id)) {
    response.error_code = ErrorCode::group_authorization_failed;
  } else {
    response = co_await await_callback<kafka::SyncGroupResponse>([&context, &request](auto answer) {
      context.broker.groups->sync(group_caller(context), std::move(request), std::move(answer));
    });
  }
  co_return response;
}

}  // namespace ciuic::broker::api
