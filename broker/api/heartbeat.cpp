// v3 static members (KIP-345) · v4 flexible.
#include "transport/kafka/messages/heartbeat.h"

#include "broker/api/group_call.h"

namespace ciuic::broker::api {

Awaitable<kafka::HeartbeatResponse> heartbeat(RequestContext& context, kafka::HeartbeatRequest request) {
  if (!may(context, Operation::read, request.group_id)) {
    kafka::HeartbeatResponse refused;
    refused.error_code = ErrorCode::group_authorization_failed;
    co_return refused;
  }
  co_return co_await await_callback<kafka::HeartbeatResponse>(
      [&context, &request](auto answer) { context.broker.groups->heartbeat(std::move(request), std::move(answer)); });
}

}  // namespace ciuic::broker::api
