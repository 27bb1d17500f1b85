#pragma once
#include <string>
#include <utility>
#include <vector>

#include "client/include/ciuic/result.h"
#include "client/include/ciuic/types.h"
#include "tools/ciuic/cluster.h"
#include "tools/ciuic/failure.h"
#include "tools/ciuic/output.h"

namespace ciuic::tool {

[[noreturn]] inline void fail(const client::Error& error) {
  const bool gone = error.trouble == client::Trouble::disconnected || error.trouble == client::Trouble::timed_out;
  const bool wrong =
      error.trouble == client::Trouble::invalid_config || error.trouble == client::Trouble::invalid_argument;
  throw Failure(gone    ? Exit::unreachable
                : wrong ? Exit::usage
                        : Exit::failed,
                error.text, gone ? no_broker_remedy : remedy_for(static_cast<kafka::ErrorCode>(error.kafka_code)));
}
inline void throw_on_error(const client::Result<void>& result) {
  if (!result) fail(result.error());
}
template <class T>
T value_or_fail(client::Result<T> result) {
  if (!result) fail(result.error());
  return *std::move(result);
}

/// The common options and -X key=value as the client's settings.
inline client::Config client_config(const Common& common, const std::vector<std::string>& settings) {
  client::Config config{{"bootstrap.servers", common.bootstrap},
                        {"client.id", "ciuic"},
                        {"request.timeout.ms", std::to_string(common.timeout_ms)}};
  for (const auto& each : settings) {
    const auto equals = each.find('=');
    if (equals == std::string::npos) throw Failure(Exit::usage, "no setting: " + each, "write -X key=value");
    config.emplace_back(each.substr(0, equals), each.substr(equals + 1));
  }
  return config;
}

}  // namespace ciuic::tool
