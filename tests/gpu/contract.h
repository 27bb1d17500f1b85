#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "transport/device/device.h"

/// The promises of transport/device/device.h as tests, over whatever a program instantiates them for:
/// `INSTANTIATE_TEST_SUITE_P(…, DeviceContract, …)`. They are in contract.cpp, which each program compiles.
namespace ciuic::testing {

/// Memory of a device, freed at the end.
struct Place {
  device::Span span{};
  std::shared_ptr<device::Device> device{};
  std::shared_ptr<void> owner{};
};

struct Subject {
  std::string name{};
  /// Error: there is no such device here; its tests are skipped with that.
  std::function<device::Result<Place>(std::size_t bytes)> place{};
};

class DeviceContract : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;
  /// Of `bytes`, filled with noise that `memory` gets too.
  Place noise(std::size_t bytes, Buffer& memory);

  std::uint32_t seed_ = 0;
};

/// Of a GPU in a build that had no clang for its kernels.
[[nodiscard]] bool lacks_kernels(const device::Device& device);
#define NEEDS_KERNELS(device) \
  if (lacks_kernels(device)) GTEST_SKIP() << "no clang that compiles for nvptx64 when this was built"

[[nodiscard]] Subject host_subject();
/// By the driver that the program finds as libcuda.so.1; the memory is of its device 0.
[[nodiscard]] Subject cuda_subject();
/// Memory of a GPU as a trainer has it: by cuMemAlloc in the primary context. `managed`: by cuMemAllocManaged.
[[nodiscard]] device::Result<Place> cuda_memory(std::size_t bytes, int ordinal = 0, bool managed = false);

}  // namespace ciuic::testing
