#pragma once
#include <memory>

#include "transport/device/device.h"

namespace ciuic::device {

/// The host's own memory as a device: nothing to pin, nothing that a card cannot reach.
[[nodiscard]] std::shared_ptr<Device> make_host();

}  // namespace ciuic::device
