#pragma once
#include <string>
#include <vector>

#include "transport/device/device.h"

namespace ciuic::device {

/// What NVIDIA's driver of this host says that it can.
struct CudaFacts {
  struct Gpu {
    std::string name{};
    bool dma_buf = false;             ///< cards write into its memory without nvidia_peermem
    bool read_only_register = false;  ///< it copies by itself from memory that is mapped for reading only
  };
  int driver = 0;  ///< the CUDA it is of: 12040 is 12.4
  std::vector<Gpu> gpus{};
  bool kernels = false;  ///< this build has ours: batches are found and checked on the GPU
};

/// Errors: no driver, too old a driver, no GPU that is visible.
[[nodiscard]] Result<CudaFacts> cuda_facts();

}  // namespace ciuic::device
