#pragma once
#include <cstddef>
#include <string>

/// A libcuda.so.1 without a GPU, for tests: device memory is a memfd, whose device addresses crash a CPU that follows
/// them, and work on a stream is done when somebody waits for it, not before. Kernels run natively. A test that links
/// the library scripts it here, while nobody else calls it (calls come from any thread); a program that finds it by
/// LD_LIBRARY_PATH takes words from the variable FAKE_CUDA.
namespace ciuic::testing {

struct FakeCuda {
  int version = 12040;                ///< "version=N"
  int devices = 2;                    ///< "devices=N"
  bool dma_buf = true;                ///< "no_dma_buf"
  bool registers = true;              ///< "no_register"
  bool registers_read_only = true;    ///< "no_read_only_register"
  bool orders_writes = true;          ///< "no_ordering": cards' writes want a flush
  bool compiles = true;               ///< "no_compiler"
  std::size_t allocation_offset = 0;  ///< of allocations, from a page's first byte
  int fail_at = 0;                    ///< this call from now on fails, and where `lost` all behind it; 0: none
  int fail_with = 999;
  bool lost = false;

  /// What is not given back: contexts retained, contexts pushed, streams, modules, pinned allocations, registrations.
  int live = 0;
  int registered = 0;  ///< of them the last
  int flushes = 0;
  std::string failed{};  ///< the call that `fail_at` hit
  unsigned last_register_flags = 0;
};

}  // namespace ciuic::testing

extern "C" ciuic::testing::FakeCuda* fake_cuda();
