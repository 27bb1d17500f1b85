#pragma once
#include "transport/kafka/messages/api_versions.h"

namespace ciuic::broker::api {

/// Whether the broker serves one-sided readers (onesided.enable).
enum class OneSided : bool { off, on };

/// Every API of the list with its versions, the private ones only where they are on; also what a client with an unknown
/// ApiVersions version is told.
[[nodiscard]] kafka::ApiVersionsResponse supported_versions(OneSided one_sided);

}  // namespace ciuic::broker::api
