// v0 KIP-700 · v1 endpoint type (KIP-919) · v2 fenced brokers (KIP-1073).
#include "transport/kafka/messages/describe_cluster.h"

#include <fmt/core.h>

#include <limits>

#include "broker/api/apis.h"

namespace ciuic::broker::api {

Awaitable<kafka::DescribeClusterResponse> describe_cluster(RequestContext& context,
                                                           kafka::DescribeClusterRequest request) {
  constexpr std::int8_t brokers = 1;
  constexpr std::int8_t controllers = 2;
  kafka::DescribeClusterResponse response;
  response.endpoint_type = brokers;
  response.cluster_authorized_operations = std::numeric_limits<std::int32_t>::min();
  if (request.endpoint_type != brokers) {
    const bool known = request.endpoint_type == controllers;
    response.error_code = known ? ErrorCode::mismatched_endpoint_type : ErrorCode::unsupported_endpoint_type;
    response.error_message =
        known ? "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
              : fmt::format("Unsupported endpoint type {}", request.endpoint_type);
    co_return response;
  }
  response.cluster_id = context.broker.cluster_id;
  response.controller_id = context.broker.config.node_id;
  if (request.include_cluster_authorized_operations) {
    std::int32_t bits = 0;
    for (const auto operation : {Operation::create, Operation::alter, Operation::describe, Operation::cluster_action,
                                 Operation::describe_configs, Operation::alter_configs, Operation::idempotent_write}) {
      if (context.allowed(operation, Resource::cluster, "kafka-cluster")) bits |= 1 << static_cast<int>(operation);
    }
    response.cluster_authorized_operations = bits;
  }
  const auto image = context.image();
  for (const auto& [id, broker] : image->brokers()) {
    if (broker.fenced && !request.include_fenced_brokers) continue;
    auto& node = response.brokers.emplace_back();
    node.broker_id = id;
    node.host = broker.host;
    node.port = broker.port;
    if (!broker.rack.empty()) node.rack = broker.rack;
    node.is_fenced = broker.fenced;
  }
  co_return response;
}

}  // namespace ciuic::broker::api
