#pragma once
#include "transport/kafka/messages/api_versions.h"

namespace ciuic::broker::api {

/// Every API of the list with its versions; also what a client with an unknown ApiVersions version is told.
[[nodiscard]] kafka::ApiVersionsResponse supported_versions();

}  // namespace ciuic::broker::api
