#pragma once
#include <memory>

#include "transport/device/device.h"

namespace ciuic::device {

/// The NVIDIA GPU whose memory `memory` is, through its driver (libcuda.so.1), which is loaded at run time: programs
/// work on hosts without it. Uses the device's primary context, as the CUDA runtime and PyTorch do, and a stream of its
/// own. Errors: no driver, too old a driver, not (all of it) memory of one device.
[[nodiscard]] Result<std::shared_ptr<Device>> open_cuda(Span memory);

}  // namespace ciuic::device
