#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "broker/metadata/controller.h"
#include "broker/partitions.h"
#include "broker/security/authorizer.h"
#include "broker/settings/settings.h"
#include "broker/shard.h"
#include "transport/base/clock.h"

namespace ciuic::broker {

class Exposure;
class FetchSessions;
class GroupCoordinator;
class ProducerIds;

/// What a handler may use. The server owns it all and outlives every request.
struct Broker {
  BrokerConfig config;
  Overrides overrides;  // as given, for DescribeConfigs
  std::string cluster_id;
  const Clock* clock = nullptr;
  Shards* shards = nullptr;
  Controller* controller = nullptr;
  Partitions* partitions = nullptr;
  LogEvents* events = nullptr;
  const Authorizer* authorizer = nullptr;
  FetchSessions* fetch_sessions = nullptr;
  ProducerIds* producer_ids = nullptr;
  GroupCoordinator* groups = nullptr;
  Exposure* exposure = nullptr;  // null: onesided.enable=false
};

/// Where broker-wide values come from, for DescribeConfigs. Valid while both live.
[[nodiscard]] inline BrokerLayers layers(const Broker& broker, const MetadataImage& image) {
  return {image.broker_config(std::to_string(broker.config.node_id)), image.broker_config(""), broker.overrides};
}

/// "0.1.0"; one source for --version, ApiVersions' logs and docs.
[[nodiscard]] const char* version();
/// The Apache Kafka release whose protocol this broker speaks.
inline constexpr auto kafka_level = "4.3";

}  // namespace ciuic::broker
