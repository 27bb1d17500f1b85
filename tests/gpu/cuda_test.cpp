// transport/device/cuda.h over the stand-in driver: what it promises, and every way in which the driver can refuse.
#include "transport/device/cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/gpu/contract.h"
#include "tests/gpu/fake_cuda/fake_cuda.h"
#include "transport/base/crc32c.h"
#include "transport/device/cuda_compute.h"
#include "transport/device/cuda_context.h"
#include "transport/device/cuda_facts.h"
#include "transport/device/cuda_library.h"

namespace ciuic::testing {
namespace {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Host, DeviceContract, ::testing::Values(host_subject()),
                         [](const auto& one) { return one.param.name; });
INSTANTIATE_TEST_SUITE_P(StandIn, DeviceContract, ::testing::Values(cuda_subject()),
                         [](const auto& one) { return one.param.name; });

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override { fresh(); }
  void TearDown() override { fresh(); }
  /// The script as it was; what is alive stays counted.
  static void fresh() {
    const FakeCuda before = *fake_cuda();
    *fake_cuda() = {};
    fake_cuda()->live = before.live;
    fake_cuda()->registered = before.registered;
  }
  static Place place(std::size_t bytes = 1 << 16) { return cuda_subject().place(bytes).value(); }
  /// Of a result that is to be none.
  template <class T>
  static std::string error(const device::Result<T>& result) {
    EXPECT_FALSE(result);
    return result ? "" : result.error().text;
  }
};

TEST_F(Cuda, ADeviceIsNamedByItsOrdinalAndTheDriver) {
  EXPECT_EQ(place().device->name(), "cuda:0 (Fake GPU 0)");
  EXPECT_FALSE(place().device->is_host());
  const auto second = cuda_memory(4096, 1).value();
  EXPECT_EQ(device::open_cuda(second.span).value()->name(), "cuda:1 (Fake GPU 1)");
}

TEST_F(Cuda, WhatIsNotInOneAllocationOfAGpuIsRefused) {
  Buffer host(4096);
  const auto of = [](const void* at) { return reinterpret_cast<std::uint64_t>(at); };
  EXPECT_THAT(error(device::open_cuda({of(host.data()), 4096})), HasSubstr("is not memory of a CUDA device"));
  EXPECT_THAT(error(device::open_cuda({0, 1})), HasSubstr("cuPointerGetAttribute: CUDA_ERROR_INVALID_VALUE (1)"));
  const auto mine = cuda_memory(10'000).value();
  for (const device::Span wrong : {device::Span{mine.span.address, 10'001}, device::Span{mine.span.address + 9'999, 2},
                                   device::Span{mine.span.address + 1, ~0UL}, device::Span{mine.span.address, 0}})
    EXPECT_THAT(error(device::open_cuda(wrong)), HasSubstr("not inside one allocation of a GPU")) << wrong.bytes;
  const auto managed = cuda_memory(4096, 0, true).value();
  EXPECT_THAT(error(device::open_cuda(managed.span)), HasSubstr("managed memory"));

  const auto& driver = *device::cuda::Library::load().value();
  void* pinned = nullptr;
  const auto context = device::cuda::PrimaryContext::retain(driver, 0).value();
  const device::cuda::Current current(*context);
  ASSERT_EQ(driver.cuMemHostAlloc(&pinned, 4096, 0), 0);
  EXPECT_THAT(error(device::open_cuda({of(pinned), 4096})), HasSubstr("host memory that CUDA knows"));
  ASSERT_EQ(driver.cuMemFreeHost(pinned), 0);
}

TEST_F(Cuda, AHostWithoutADriverOrWithAnOldOneIsTold) {
  using device::cuda::Library;
  EXPECT_THAT(error(Library::load("libcuda-of-nobody.so.1")), HasSubstr("no NVIDIA driver on this host"));
  EXPECT_THAT(error(Library::load(FAKE_CUDA_LACKS_NEEDED_FILE)),
              HasSubstr("lacks cuMemcpyHtoDAsync_v2: CUDA 11.0's driver (450) or a newer one is needed"));
  fake_cuda()->version = 10020;
  EXPECT_THAT(error(Library::load("libcuda.so.1")), HasSubstr("the NVIDIA driver is CUDA 10.2's"));
  fresh();
  fake_cuda()->devices = 0;
  EXPECT_THAT(error(device::cuda_facts()), HasSubstr("cuInit: CUDA_ERROR_NO_DEVICE (100); no GPU is visible"));
}

TEST_F(Cuda, ADriverWithoutTheLaterFunctionsDoesTheRest) {
  ASSERT_TRUE(device::cuda::Library::load(FAKE_CUDA_LACKS_OPTIONAL_FILE));
  auto driver = *device::cuda::Library::load().value();
  driver.cuMemGetHandleForAddressRange = nullptr;
  driver.cuFlushGPUDirectRDMAWrites = nullptr;
  fake_cuda()->orders_writes = false;
  const auto memory = cuda_memory(8192).value();
  const auto opened = device::cuda::open(driver, memory.span).value();
  EXPECT_THAT(error(opened->dma_buf(memory.span)), HasSubstr("older than CUDA 11.7's"));
  EXPECT_TRUE(opened->copy_in(memory.span, Buffer(8192)));
  NEEDS_KERNELS(*place().device);
  std::vector<device::BatchHead> heads(1);
  EXPECT_EQ(opened->heads(memory.span, heads).value(), 1U);
}

TEST_F(Cuda, TheCardsWritesAreFlushedOnlyWhereTheGpuDoesNotOrderThem) {
  NEEDS_KERNELS(*place().device);
  std::vector<device::BatchHead> heads(1);
  std::vector<std::uint32_t> sums(1);
  const std::vector<device::Slice> slices{{0, 4096}};
  for (const bool orders : {true, false}) {
    fresh();
    fake_cuda()->orders_writes = orders;
    const auto here = place();
    ASSERT_TRUE(here.device->heads(here.span, heads));
    ASSERT_TRUE(here.device->checksums(here.span, slices, sums));
    EXPECT_EQ(fake_cuda()->flushes, orders ? 0 : 2);
  }
}

TEST_F(Cuda, ADmaBufBeginsAtAPageAndItsOffsetLeadsToTheSpan) {
  const auto here = place();
  Buffer bytes(here.span.bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  ASSERT_TRUE(here.device->copy_in(here.span, bytes));
  for (const auto& [at, n] :
       {std::pair<std::size_t, std::size_t>{0, 65'536}, {4096, 4096}, {5000, 1}, {4095, 2}, {65'535, 1}}) {
    const auto found = here.device->dma_buf(here.span.sub(at, n));
    ASSERT_TRUE(found) << found.error().text;
    EXPECT_LT(found->offset, 4096U);
    Buffer seen(n);  // the stand-in's descriptors begin where their position is
    const auto begins = static_cast<std::uint64_t>(::lseek(found->descriptor.get(), 0, SEEK_CUR));
    ASSERT_EQ(::pread(found->descriptor.get(), seen.data(), n, static_cast<off_t>(begins + found->offset)),
              static_cast<ssize_t>(n));
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at))) << at;
  }
}

TEST_F(Cuda, ADmaBufIsRefusedWithWhatToDo) {
  const auto here = place(65'000);
  EXPECT_TRUE(here.device->dma_buf(here.span.sub(0, 61'440)));
  EXPECT_THAT(error(here.device->dma_buf(here.span)), HasSubstr("allocate whole pages"));
  fake_cuda()->dma_buf = false;
  EXPECT_THAT(error(here.device->dma_buf(here.span.sub(0, 4096))), HasSubstr("open kernel modules"));
  fresh();
  fake_cuda()->allocation_offset = 512;
  const auto inside_a_page = place();
  EXPECT_THAT(error(inside_a_page.device->dma_buf(inside_a_page.span.sub(0, 4096))), HasSubstr("allocate whole pages"));
  const auto later = inside_a_page.device->dma_buf(inside_a_page.span.sub(4096, 4096));
  ASSERT_TRUE(later) << later.error().text;
  EXPECT_EQ(later->offset, 512U);
}

class CudaPins : public Cuda {
 protected:
  static Bytes mapped(int rights) {
    void* const at = ::mmap(nullptr, bytes, rights, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    return {static_cast<const std::byte*>(at), bytes};
  }
  static constexpr std::size_t bytes = 65'536;
  const Bytes writable_ = mapped(PROT_READ | PROT_WRITE), read_only_ = mapped(PROT_READ);
  ~CudaPins() override {
    for (const auto one : {writable_, read_only_}) ::munmap(const_cast<std::byte*>(one.data()), bytes);
  }
};

TEST_F(CudaPins, AreReadOnlyWhereTheMappingIs) {
  const auto here = place();
  {
    const auto first = here.device->pin(writable_).value();
    EXPECT_EQ(fake_cuda()->last_register_flags, 1U);
    const auto second = here.device->pin(read_only_).value();
    EXPECT_EQ(fake_cuda()->last_register_flags, 9U);
    EXPECT_EQ(fake_cuda()->registered, 2);
    EXPECT_THAT(error(here.device->pin(writable_.subspan(4096))),
                HasSubstr("somebody in this process pinned it already"));
  }
  EXPECT_EQ(fake_cuda()->registered, 0);
}

TEST_F(CudaPins, AreRefusedWithTheReason) {
  const auto here = place();
  fake_cuda()->registers_read_only = false;
  EXPECT_TRUE(here.device->pin(writable_));
  EXPECT_THAT(error(here.device->pin(read_only_)), HasSubstr("takes no memory that is mapped for reading only"));
  fake_cuda()->registers = false;
  EXPECT_THAT(error(here.device->pin(writable_)), HasSubstr("cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED (801)"));
  EXPECT_EQ(fake_cuda()->registered, 0);
}

TEST_F(CudaPins, OutliveTheDevice) {
  auto here = place();
  auto pin = here.device->pin(writable_).value();
  here.device.reset();
  EXPECT_EQ(fake_cuda()->registered, 1);
  pin.reset();
  EXPECT_EQ(fake_cuda()->registered, 0);
}

TEST_F(Cuda, KernelsThatTheDriverDoesNotCompileAreToldWithItsWords) {
  NEEDS_KERNELS(*place().device);
  fake_cuda()->compiles = false;
  const auto here = place();
  std::vector<device::BatchHead> heads(1);
  EXPECT_THAT(error(here.device->heads(here.span, heads)),
              ::testing::AllOf(HasSubstr("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), HasSubstr("line 7: unheard of")));
  fresh();
  EXPECT_TRUE(here.device->heads(here.span, heads)) << "a failure is not kept";
}

TEST_F(Cuda, ABuildWithoutKernelsSaysWhatItWants) {
  const auto here = place();
  std::vector<device::BatchHead> heads(1);
  std::vector<std::uint32_t> sums(1);
  const std::vector<device::Slice> slices{{0, 1}};
  const auto found = here.device->heads(here.span, heads);
  const auto summed = here.device->checksums(here.span, slices, sums);
  EXPECT_EQ(found.has_value(), !lacks_kernels(*here.device));
  EXPECT_EQ(summed.has_value(), found.has_value());
  if (!found) {
    EXPECT_THAT(found.error().text + summed.error().text, HasSubstr("install clang-14"));
  }
}

TEST_F(Cuda, ASliceOutsideItsSpanNeverReachesTheGpu) {
  const auto here = place(8192);
  std::vector<std::uint32_t> sums(1);
  for (const device::Slice wrong : {device::Slice{0, 4097}, {4097, 0}, {4096, 1}, {1, 0xffffffff}}) {
    const std::vector<device::Slice> slices{wrong};
    EXPECT_THAT(error(here.device->checksums(here.span.sub(0, 4096), slices, sums)), HasSubstr("not all in a span"));
  }
}

/// All that a device does, one after the other; gives the first error.
device::Result<void> everything(Bytes host) {
  auto place = cuda_subject().place(65'536);
  if (!place) return place.error();
  auto& gpu = *place->device;
  const Buffer in(65'536, std::byte{7});
  Buffer out(in.size());
  if (auto done = gpu.copy_in(place->span, in); !done) return done;
  if (auto done = gpu.copy_out(out, place->span); !done) return done;
  EXPECT_EQ(out, in);
  if (auto done = gpu.wipe(place->span); !done) return done;
  if (auto done = gpu.dma_buf(place->span); !done) return done.error();
  auto pin = gpu.pin(host);
  if (!pin) return pin.error();
  if (device::cuda::kernels_ptx.empty()) return {};
  std::vector<device::BatchHead> heads(3);
  auto found = gpu.heads(place->span, heads);
  if (!found) return found.error();
  EXPECT_EQ(*found, 1U);
  std::vector<std::uint32_t> sums(1);
  const std::vector<device::Slice> slices{{1, 60'000}};
  return gpu.checksums(place->span, slices, sums);
}

TEST_F(CudaPins, ACallThatFailsIsAnErrorAndNothingIsLeftBehind) {
  int live = fake_cuda()->live;
  int failing = 1, silent = 0;
  for (;; ++failing) {
    fresh();
    fake_cuda()->fail_at = failing;
    const auto done = everything(writable_);
    const auto call = fake_cuda()->failed;
    if (fake_cuda()->fail_at > 0) break;  // there are no more calls
    // Nothing can be let go of without its context; the next round pins the same memory.
    if (done && call == "cuCtxPushCurrent") {
      const auto context = device::cuda::PrimaryContext::retain(*device::cuda::Library::load().value(), 0).value();
      const device::cuda::Current current(*context);
      (void)context->driver().cuMemHostUnregister(const_cast<std::byte*>(writable_.data()));
      live = fake_cuda()->live - 2;  // those two
    }
    EXPECT_EQ(fake_cuda()->registered, 0) << call;
    EXPECT_EQ(fake_cuda()->live, live) << call;
    if (done) {
      // What is let go, abilities and names may fail quietly; a pin has a second way.
      EXPECT_THAT(call,
                  ::testing::AnyOf("cuCtxPopCurrent", "cuDevicePrimaryCtxRelease", "cuStreamDestroy", "cuMemFreeHost",
                                   "cuModuleUnload", "cuMemHostUnregister", "cuDeviceGetAttribute", "cuDeviceGetName",
                                   "cuCtxPushCurrent", "cuMemHostRegister"));
      ++silent;
    } else if (call != "cuDeviceGetAttribute") {
      EXPECT_THAT(done.error().text, HasSubstr(call + ": CUDA_ERROR_UNKNOWN (999); dmesg tells more"));
    }
  }
  EXPECT_GT(failing, 50);
  EXPECT_LT(silent, failing / 2);
  RecordProperty("calls", failing);
}

TEST_F(Cuda, WhatFailedWritesNothingLater) {
  const auto there = place();
  ASSERT_TRUE(there.device->copy_in(there.span.sub(0, 64), Buffer(64, std::byte{1})));
  int failures = 0;
  for (int at = 1; at < 10; ++at) {
    Buffer mine(64);
    fake_cuda()->fail_at = at;
    const auto done = there.device->copy_out(mine, there.span.sub(0, 64));
    fake_cuda()->fail_at = 0;
    if (done) continue;
    ++failures;
    std::fill(mine.begin(), mine.end(), std::byte{2});  // used for something else
    ASSERT_TRUE(there.device->wipe(there.span.sub(64, 64)));
    EXPECT_EQ(mine, Buffer(64, std::byte{2})) << fake_cuda()->failed;
  }
  EXPECT_GT(failures, 2);
}

TEST_F(CudaPins, ALostContextIsAnErrorForAllThatFollowsAndEndsNothing) {
  const auto ends = [&](int failing) {
    fresh();
    fake_cuda()->fail_at = failing;
    fake_cuda()->fail_with = 700;
    fake_cuda()->lost = true;
    const auto done = everything(writable_);
    const bool reached = !fake_cuda()->failed.empty();
    if (!done && done.error().text.find("cuMemAlloc") == std::string::npos) {
      EXPECT_THAT(done.error().text,
                  ::testing::AnyOf(HasSubstr("only a new process gets it back"), HasSubstr("no dma-buf")));
    }
    return !reached;
  };
  int failing = 1;
  while (!ends(failing)) ++failing;
  EXPECT_GT(failing, 30);
  fresh();
  EXPECT_TRUE(everything(writable_));
}

TEST_F(Cuda, AForkedChildIsToldToStartAnew) {
  const auto here = place();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto opened = device::open_cuda(here.span);
    const bool told = !opened && opened.error().text.find("before a fork") != std::string::npos;
    ::_exit(told && !here.device->wipe(here.span) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Cuda, TheDoctorsFactsAreTheDrivers) {
  auto facts = device::cuda_facts().value();
  EXPECT_EQ(facts.driver, 12040);
  ASSERT_EQ(facts.gpus.size(), 2U);
  EXPECT_EQ(facts.gpus[1].name, "Fake GPU 1");
  EXPECT_TRUE(facts.gpus[0].dma_buf && facts.gpus[0].read_only_register);
  EXPECT_EQ(facts.kernels, !device::cuda::kernels_ptx.empty());
  fake_cuda()->dma_buf = fake_cuda()->registers_read_only = false;
  facts = device::cuda_facts().value();
  EXPECT_FALSE(facts.gpus[0].dma_buf || facts.gpus[0].read_only_register);
}

}  // namespace
}  // namespace ciuic::testing
