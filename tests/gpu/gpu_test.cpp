// The device contract over the driver of this host, and how fast its GPU is. Skipped where there is none.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/gpu/contract.h"

namespace ciuic::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Driver, DeviceContract, ::testing::Values(cuda_subject()),
                         [](const auto& one) { return one.param.name; });

/// Of the best of five; a call that fails fails the test.
double seconds(const std::function<bool()>& call) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_TRUE(call());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  }
  return best;
}

TEST(GpuSpeed, IsTold) {
  constexpr std::size_t bytes = 256 << 20, batch = 1 << 20;
  auto found = cuda_subject().place(bytes);
  if (!found) GTEST_SKIP() << found.error().text;
  const auto& span = found->span;
  const auto& gpu = found->device;
  NEEDS_KERNELS(*gpu);
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* const memory = static_cast<unsigned char*>(at);
  std::memset(memory, 1, bytes);
  std::vector<device::Slice> slices;
  for (std::size_t next = 0; next < bytes; next += batch) {
    const std::uint32_t length = batch - 12;
    for (int i = 0; i < 4; ++i)
      memory[next + 8 + static_cast<std::size_t>(i)] = static_cast<unsigned char>(length >> (24 - 8 * i));
    slices.push_back({static_cast<std::uint32_t>(next) + 21, batch - 21});
  }
  const Bytes host(static_cast<const std::byte*>(at), bytes);
  const double unpinned = seconds([&] { return gpu->copy_in(span, host).has_value(); });
  std::vector<std::uint32_t> sums(slices.size());
  std::vector<device::BatchHead> heads(slices.size() + 1);
  {
    const auto pin = gpu->pin(host);
    ASSERT_TRUE(pin) << pin.error().text;
    const double pinned = seconds([&] { return gpu->copy_in(span, host).has_value(); });
    const double checked = seconds([&] { return gpu->checksums(span, slices, sums).has_value(); });
    const double walked = seconds([&] {
      const auto count = gpu->heads(span, heads);
      return count && *count == slices.size();
    });
    const double one =
        seconds([&] { return gpu->checksums(span, std::span(slices).first(1), std::span(sums).first(1)).has_value(); });
    fmt::print(
        "{}: copy_in {:.1f} GB/s pinned, {:.1f} GB/s not; checksums {:.1f} GB/s, of one MiB {:.0f} us; heads {:.2f} us "
        "a batch\n",
        gpu->name(), bytes / pinned / 1e9, bytes / unpinned / 1e9, bytes / checked / 1e9, one * 1e6,
        walked * 1e6 / static_cast<double>(slices.size()));
  }
  ::munmap(at, bytes);
}

}  // namespace
}  // namespace ciuic::testing
