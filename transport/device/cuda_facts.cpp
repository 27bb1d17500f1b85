// What `ciuic doctor` tells of GPUs.
#include "transport/device/cuda_facts.h"

#include "transport/device/cuda_compute.h"

namespace ciuic::device {

Result<CudaFacts> cuda_facts() {
  const auto loaded = cuda::Library::load();
  if (!loaded) return loaded.error();
  const auto& driver = **loaded;
  CudaFacts facts;
  facts.kernels = !cuda::kernels_ptx.empty();
  if (const auto code = driver.cuDriverGetVersion(&facts.driver)) return driver.failed("cuDriverGetVersion", code);
  if (const auto code = driver.cuInit(0)) return driver.failed("cuInit", code);
  int count = 0;
  if (const auto code = driver.cuDeviceGetCount(&count)) return driver.failed("cuDeviceGetCount", code);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cuda::Ordinal gpu = 0;
    if (const auto code = driver.cuDeviceGet(&gpu, ordinal)) return driver.failed("cuDeviceGet", code);
    using enum cuda::DeviceAttribute;
    facts.gpus.push_back({driver.device_name(gpu),
                          driver.cuMemGetHandleForAddressRange && driver.attribute(dma_buf_supported, gpu) != 0,
                          driver.attribute(read_only_host_register_supported, gpu) != 0});
  }
  return facts;
}

}  // namespace ciuic::device
