#pragma once
#include <cstddef>
#include <cstdint>

#include "transport/device/device.h"

/// NVIDIA's driver as we call it. Declared here, so that building needs nothing of CUDA; names, numbers and signatures
/// are those of cuda.h (CUDA 12.9). Next: cuda_context.h.
namespace ciuic::device::cuda {

using Code = int;  // CUresult
inline constexpr Code success = 0, invalid_value = 1, host_memory_already_registered = 712;
using Ordinal = int;            // CUdevice
using Address = std::uint64_t;  // CUdeviceptr
using Context = struct CUctx_st*;
using Stream = struct CUstream_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;

/// CUdevice_attribute
enum class DeviceAttribute : int {
  read_only_host_register_supported = 113,
  gpu_direct_rdma_flush_writes_options = 117,
  gpu_direct_rdma_writes_ordering = 118,
  dma_buf_supported = 124,
};
/// CUpointer_attribute, with the type that each is told in.
enum class PointerAttribute : int {
  memory_type = 2,        // unsigned
  is_managed = 8,         // unsigned
  device_ordinal = 9,     // int
  range_start_addr = 11,  // Address
  range_size = 12,        // std::size_t
};
inline constexpr unsigned memory_type_device = 2;              // CU_MEMORYTYPE_DEVICE
inline constexpr unsigned stream_non_blocking = 1;             // CU_STREAM_NON_BLOCKING
inline constexpr unsigned host_portable = 1, host_mapped = 2;  // CU_MEMHOSTALLOC_*, CU_MEMHOSTREGISTER_*
inline constexpr unsigned host_register_read_only = 8;         // CU_MEMHOSTREGISTER_READ_ONLY
inline constexpr int range_dma_buf_fd = 1;                     // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
inline constexpr int flush_by_host = 1;                        // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
inline constexpr int writes_to_owner = 100;  // CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER, CU_FLUSH_…_WRITES_TO_OWNER
inline constexpr int jit_error_log_buffer = 5, jit_error_log_buffer_bytes = 6;  // CU_JIT_ERROR_LOG_BUFFER…

/// The functions that we call, found at run time.
struct Library {
  // F(function, its symbol, needed or optional, what it takes). cuda.h redirects some names to the second version of
  // the function; the first has other types.
  // clang-format off
#define CIUIC_CUDA_FUNCTIONS(F)                                                                                        \
  F(cuInit, cuInit, needed, unsigned)                                                                                  \
  F(cuDriverGetVersion, cuDriverGetVersion, needed, int*)                                                              \
  F(cuGetErrorName, cuGetErrorName, needed, Code, const char**)                                                        \
  F(cuDeviceGet, cuDeviceGet, needed, Ordinal*, int)                                                                   \
  F(cuDeviceGetCount, cuDeviceGetCount, needed, int*)                                                                  \
  F(cuDeviceGetName, cuDeviceGetName, needed, char*, int, Ordinal)                                                     \
  F(cuDeviceGetAttribute, cuDeviceGetAttribute, needed, int*, DeviceAttribute, Ordinal)                                \
  F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, needed, Context*, Ordinal)                                     \
  F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, needed, Ordinal)                                          \
  F(cuCtxPushCurrent, cuCtxPushCurrent_v2, needed, Context)                                                            \
  F(cuCtxPopCurrent, cuCtxPopCurrent_v2, needed, Context*)                                                             \
  F(cuPointerGetAttribute, cuPointerGetAttribute, needed, void*, PointerAttribute, Address)                            \
  F(cuStreamCreate, cuStreamCreate, needed, Stream*, unsigned)                                                         \
  F(cuStreamDestroy, cuStreamDestroy_v2, needed, Stream)                                                               \
  F(cuStreamSynchronize, cuStreamSynchronize, needed, Stream)                                                          \
  F(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, needed, Address, const void*, std::size_t, Stream)                        \
  F(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, needed, void*, Address, std::size_t, Stream)                              \
  F(cuMemsetD8Async, cuMemsetD8Async, needed, Address, unsigned char, std::size_t, Stream)                             \
  F(cuMemHostRegister, cuMemHostRegister_v2, needed, void*, std::size_t, unsigned)                                     \
  F(cuMemHostUnregister, cuMemHostUnregister, needed, void*)                                                           \
  F(cuMemHostAlloc, cuMemHostAlloc, needed, void**, std::size_t, unsigned)                                             \
  F(cuMemFreeHost, cuMemFreeHost, needed, void*)                                                                       \
  F(cuModuleLoadDataEx, cuModuleLoadDataEx, needed, Module*, const void*, unsigned, int*, void**)                      \
  F(cuModuleUnload, cuModuleUnload, needed, Module)                                                                    \
  F(cuModuleGetFunction, cuModuleGetFunction, needed, Function*, Module, const char*)                                  \
  F(cuLaunchKernel, cuLaunchKernel, needed, Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,      \
    unsigned, Stream, void**, void**)                                                                                  \
  F(cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, optional, int, int)                                        \
  F(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, optional, void*, Address, std::size_t, int,          \
    unsigned long long)
  // clang-format on
#define CIUIC_DECLARE(function, symbol, need, ...) Code (*function)(__VA_ARGS__) = nullptr;
  CIUIC_CUDA_FUNCTIONS(CIUIC_DECLARE)
#undef CIUIC_DECLARE

  /// The host's driver, loaded once for the process; any thread. Not initialized: the first call is cuInit. Errors:
  /// there is none, or one older than CUDA 11.0's.
  [[nodiscard]] static Result<const Library*> load();
  /// One that lies elsewhere.
  [[nodiscard]] static Result<Library> load(const char* file);

  /// Waits for all work of the stream. After an error none of it runs any more either: whose memory it was to write to
  /// may free it.
  [[nodiscard]] Code finish(Stream stream) const;
  /// What the driver says to a call that failed, with the remedy.
  [[nodiscard]] Error failed(const char* call, Code code) const;
  /// 0 where the driver does not know the attribute: it is older than the ability.
  [[nodiscard]] int attribute(DeviceAttribute which, Ordinal device) const;
  [[nodiscard]] std::string device_name(Ordinal device) const;
};

/// device::open_cuda by these functions, which live longer than the device and its pins.
[[nodiscard]] Result<std::shared_ptr<Device>> open(const Library& driver, Span memory);

}  // namespace ciuic::device::cuda
