#pragma once
#include <memory>

#include "transport/device/cuda_library.h"

namespace ciuic::device::cuda {

/// A device's primary context, kept from being destroyed while this lives: the one that the CUDA runtime and PyTorch
/// use. The driver's calls go to the context that is current in their thread: see `Current`.
class PrimaryContext {
 public:
  [[nodiscard]] static Result<std::shared_ptr<PrimaryContext>> retain(const Library& driver, Ordinal device);
  PrimaryContext(const Library& driver, Ordinal device, Context context)
      : driver_(driver), device_(device), context_(context) {}
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext() { (void)driver_.cuDevicePrimaryCtxRelease(device_); }

  [[nodiscard]] const Library& driver() const { return driver_; }
  [[nodiscard]] Ordinal device() const { return device_; }
  [[nodiscard]] Context get() const { return context_; }

 private:
  const Library& driver_;
  const Ordinal device_;
  const Context context_;
};

/// Makes a context current in this thread while it lives; then the one before is again.
class Current {
 public:
  explicit Current(const PrimaryContext& context)
      : driver_(context.driver()), code_(driver_.cuCtxPushCurrent(context.get())) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    Context popped = nullptr;
    if (code_ == success) (void)driver_.cuCtxPopCurrent(&popped);
  }
  [[nodiscard]] Result<void> made() const {
    if (code_ != success) return driver_.failed("cuCtxPushCurrent", code_);
    return {};
  }

 private:
  const Library& driver_;
  const Code code_;
};

}  // namespace ciuic::device::cuda
