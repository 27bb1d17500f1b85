#pragma once
// Stop 2 of docs/tour.md: the one list of APIs. Next: broker/api/produce.cpp
#include <span>

#include "broker/api/handler.h"

namespace ciuic::broker::api {

/// All rows, rising by key. Dispatch and ApiVersions read it, and docs/protocol.md ends with it (a test writes that).
[[nodiscard]] std::span<const Handler> handlers();
/// nullptr for a key that is not served.
[[nodiscard]] const Handler* find_handler(std::int16_t key);

}  // namespace ciuic::broker::api
