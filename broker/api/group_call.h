#pragma once
#include <string>

#include "broker/api/apis.h"
#include "broker/api/async.h"
#include "broker/group/coordinator.h"

namespace ciuic::broker::api {

/// The caller as the group coordinator wants to know it; hosts as Java's InetAddress prints them.
[[nodiscard]] inline GroupCaller group_caller(const RequestContext& context) {
  return {context.version(), std::string(context.request.client_id.value_or("")),
          "/" + context.connection->peer_host()};
}

[[nodiscard]] inline bool may(const RequestContext& context, Operation operation, const std::string& group) {
  return context.allowed(operation, Resource::group, group);
}

}  // namespace ciuic::broker::api
