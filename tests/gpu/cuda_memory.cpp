// GPU memory as another library of the process would allocate it.
#include <dlfcn.h>

#include "tests/gpu/contract.h"
#include "transport/device/cuda.h"
#include "transport/device/cuda_compute.h"
#include "transport/device/cuda_context.h"

namespace ciuic::testing {

namespace cuda = device::cuda;

device::Result<Place> cuda_memory(std::size_t bytes, int ordinal, bool managed) {
  const auto loaded = cuda::Library::load();
  if (!loaded) return loaded.error();
  const auto& driver = **loaded;
  if (const auto code = driver.cuInit(0)) return driver.failed("cuInit", code);
  auto context = cuda::PrimaryContext::retain(driver, ordinal);
  if (!context) return context.error();
  void* const handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  using Allocate = cuda::Code (*)(cuda::Address*, std::size_t);
  using AllocateManaged = cuda::Code (*)(cuda::Address*, std::size_t, unsigned);
  using Free = cuda::Code (*)(cuda::Address);
  const auto release = reinterpret_cast<Free>(::dlsym(handle, "cuMemFree_v2"));
  cuda::Address address = 0;
  const cuda::Current current(**context);
  if (auto made = current.made(); !made) return made.error();
  const auto code = managed
                        ? reinterpret_cast<AllocateManaged>(::dlsym(handle, "cuMemAllocManaged"))(&address, bytes, 1)
                        : reinterpret_cast<Allocate>(::dlsym(handle, "cuMemAlloc_v2"))(&address, bytes);
  if (code != cuda::success) return driver.failed("cuMemAlloc", code);
  std::shared_ptr<void> owner(nullptr, [release, address, context = *context](void*) {
    const cuda::Current here(*context);
    (void)release(address);
  });
  return Place{{address, bytes}, nullptr, std::move(owner)};
}

bool lacks_kernels(const device::Device& device) { return !device.is_host() && cuda::kernels_ptx.empty(); }

Subject cuda_subject() {
  return {"cuda", [](std::size_t bytes) -> device::Result<Place> {
            auto place = cuda_memory(bytes);
            if (!place) return place;
            auto opened = device::open_cuda(place->span);
            if (!opened) return opened.error();
            place->device = std::move(*opened);
            return place;
          }};
}

}  // namespace ciuic::testing
