// The stand-in driver. Strict where the driver is: a context must be current, memory mapped and its own, pages aligned.
#include "tests/gpu/fake_cuda/fake_cuda.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "transport/device/cuda_kernels.h"
#include "transport/device/cuda_library.h"

#define FAKE extern "C" __attribute__((visibility("default")))

using namespace ciuic::device::cuda;
using ciuic::testing::FakeCuda;
namespace kernels = ciuic::device::kernels;

namespace ciuic::device::cuda {

struct CUctx_st {
  Ordinal device;
};
struct CUstream_st {
  std::vector<std::function<Code()>> work{};
};
struct CUmod_st {
  std::string text;
};
struct CUfunc_st {
  std::string name;
};

}  // namespace ciuic::device::cuda

namespace {

constexpr Code out_of_memory = 2, not_initialized = 3, no_device = 100, invalid_device = 101, invalid_context = 201,
               unsupported_ptx = 222, invalid_handle = 400, not_found = 500, illegal_address = 700,
               not_registered = 713, not_supported = 801;
constexpr std::size_t page = 4096;

struct Allocation {
  std::size_t bytes = 0;
  std::size_t offset = 0;
  int memfd = -1;
  std::byte* shadow = nullptr;  // where the fake reads and writes it
  void* reserved = nullptr;     // the pages whose addresses the device's are
  Ordinal device = 0;
  bool managed = false;
};

struct State {
  FakeCuda script{};
  pid_t process = 0;
  std::map<Address, Allocation> allocations{};
  std::map<Address, std::size_t> pinned{}, registered{};
  std::array<CUctx_st, 8> contexts{};
  std::map<std::string, CUfunc_st> functions{};
  std::map<Stream, std::unique_ptr<CUstream_st>> streams{};  // the driver's: those of a lost context stay
  std::map<Module, std::unique_ptr<CUmod_st>> modules{};
};

State& state() {
  static auto* const it = [] {
    auto* made = new State;  // lives as long as the process, as the driver does
    const char* const words = std::getenv("FAKE_CUDA");
    std::istringstream in(words ? words : "");
    auto& script = made->script;
    for (std::string word; in >> word;) {
      if (word.starts_with("version=")) script.version = std::atoi(word.c_str() + 8);
      if (word.starts_with("devices=")) script.devices = std::atoi(word.c_str() + 8);
      if (word == "no_dma_buf") script.dma_buf = false;
      if (word == "no_register") script.registers = false;
      if (word == "no_read_only_register") script.registers_read_only = false;
      if (word == "no_ordering") script.orders_writes = false;
      if (word == "no_compiler") script.compiles = false;
    }
    return made;
  }();
  return *it;
}

thread_local std::vector<Context> current;

/// Threads call a driver as they like; every entry but `fake_cuda` has this for as long as it runs.
std::mutex& one_at_a_time() {
  static auto& only = *new std::mutex;
  return only;
}

/// What every call does first. Code of a failure, or 0 to go on.
Code enter(const char* call, bool in_context = true) {
  auto& script = state().script;
  if (script.fail_at > 0 && --script.fail_at == 0) {
    script.failed = call;
    if (script.lost) {
      script.fail_at = 1;
      state().registered.clear();
    }
    return script.fail_with;
  }
  if (state().process == 0 || state().process != ::getpid()) return not_initialized;
  if (in_context && current.empty()) return invalid_context;
  return success;
}

/// The allocation that all of `[at, at + bytes)` lies in.
std::pair<const Address, Allocation>* holder(Address at, std::size_t bytes) {
  auto& all = state().allocations;
  auto found = all.upper_bound(at);
  if (found == all.begin()) return nullptr;
  --found;
  const auto into = at - found->first;
  if (into >= found->second.bytes || bytes > found->second.bytes - into) return nullptr;
  return &*found;
}
std::byte* shadow(Address at, std::size_t bytes) {
  auto* const found = holder(at, bytes);
  return found ? found->second.shadow + found->second.offset + (at - found->first) : nullptr;
}

bool inside(const std::map<Address, std::size_t>& ranges, Address at, std::size_t bytes) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
    return at >= range.first && at - range.first <= range.second && bytes <= range.second - (at - range.first);
  });
}
bool shared_with_gpu(const void* at, std::size_t bytes) {
  return inside(state().pinned, reinterpret_cast<Address>(at), bytes);
}

/// All of it is mapped, and for writing if asked.
bool mapped(Address at, std::size_t bytes, bool writable) {
  std::ifstream maps("/proc/self/maps");
  Address next = at;
  for (std::string line; std::getline(maps, line) && next < at + bytes;) {
    Address from = 0, to = 0;
    std::array<char, 5> rights{};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, rights.data()) != 3) continue;
    if (to <= next) continue;
    if (from > next || rights[0] != 'r' || (writable && rights[1] != 'w')) return false;
    next = to;
  }
  return next >= at + bytes;
}

template <class T>
T parameter(void** all, std::size_t i) {
  T value;
  std::memcpy(&value, all[i], sizeof value);
  return value;
}

Code queue(Stream stream, std::function<Code()> work) {
  if (!state().streams.contains(stream)) return invalid_handle;
  stream->work.push_back(std::move(work));
  return success;
}

Code allocate(Address* into, std::size_t bytes, bool managed) {
  auto& script = state().script;
  Allocation made{
      .bytes = bytes, .offset = script.allocation_offset, .device = current.back()->device, .managed = managed};
  const auto whole = (made.offset + bytes + page - 1) / page * page;
  made.memfd = ::memfd_create("fake GPU", MFD_CLOEXEC);
  if (made.memfd < 0 || ::ftruncate(made.memfd, static_cast<off_t>(whole)) != 0) return out_of_memory;
  // Behind the shadow lies a page that nobody may touch, so that a kernel that reads on crashes.
  auto* const area = ::mmap(nullptr, whole + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::mmap(area, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, made.memfd, 0);
  made.shadow = static_cast<std::byte*>(area);
  made.reserved = ::mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *into = reinterpret_cast<Address>(made.reserved) + made.offset;
  state().allocations.emplace(*into, made);
  return success;
}

}  // namespace

FAKE FakeCuda* fake_cuda() { return &state().script; }

FAKE Code cuInit(unsigned flags) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuInit", false); code != success && code != not_initialized) return code;
  if (state().process != 0 && state().process != ::getpid()) return not_initialized;
  if (flags != 0) return invalid_value;
  if (state().script.devices == 0) return no_device;
  state().process = ::getpid();
  for (std::size_t i = 0; i < state().contexts.size(); ++i) state().contexts[i].device = static_cast<Ordinal>(i);
  return success;
}
FAKE Code cuDriverGetVersion(int* version) {
  const std::scoped_lock turn(one_at_a_time());
  *version = state().script.version;
  return success;
}
FAKE Code cuGetErrorName(Code code, const char** name) {
  const std::scoped_lock turn(one_at_a_time());
  static const std::map<Code, const char*> names{{1, "CUDA_ERROR_INVALID_VALUE"},
                                                 {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                 {3, "CUDA_ERROR_NOT_INITIALIZED"},
                                                 {100, "CUDA_ERROR_NO_DEVICE"},
                                                 {101, "CUDA_ERROR_INVALID_DEVICE"},
                                                 {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                 {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
                                                 {400, "CUDA_ERROR_INVALID_HANDLE"},
                                                 {500, "CUDA_ERROR_NOT_FOUND"},
                                                 {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                 {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
                                                 {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
                                                 {801, "CUDA_ERROR_NOT_SUPPORTED"},
                                                 {999, "CUDA_ERROR_UNKNOWN"}};
  const auto found = names.find(code);
  *name = found == names.end() ? nullptr : found->second;
  return found == names.end() ? invalid_value : success;
}
FAKE Code cuDeviceGetCount(int* count) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuDeviceGetCount", false)) return code;
  *count = state().script.devices;
  return success;
}
FAKE Code cuDeviceGet(Ordinal* device, int ordinal) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuDeviceGet", false)) return code;
  if (ordinal < 0 || ordinal >= state().script.devices) return invalid_device;
  *device = ordinal;
  return success;
}
FAKE Code cuDeviceGetName(char* name, int bytes, Ordinal device) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuDeviceGetName", false)) return code;
  const auto text = fmt::format("Fake GPU {}", device);
  std::snprintf(name, static_cast<std::size_t>(bytes), "%s", text.c_str());
  return success;
}
FAKE Code cuDeviceGetAttribute(int* value, DeviceAttribute which, Ordinal /*device*/) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuDeviceGetAttribute", false)) return code;
  const auto& script = state().script;
  switch (which) {
    case DeviceAttribute::dma_buf_supported:
      *value = script.dma_buf;
      return success;
    case DeviceAttribute::read_only_host_register_supported:
      *value = script.registers_read_only;
      return success;
    case DeviceAttribute::gpu_direct_rdma_flush_writes_options:
      *value = 1;
      return success;
    case DeviceAttribute::gpu_direct_rdma_writes_ordering:
      *value = script.orders_writes ? 100 : 0;
      return success;
  }
  return invalid_value;
}
FAKE Code cuDevicePrimaryCtxRetain(Context* context, Ordinal device) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuDevicePrimaryCtxRetain", false)) return code;
  *context = &state().contexts.at(static_cast<std::size_t>(device));
  ++state().script.live;
  return success;
}
FAKE Code cuDevicePrimaryCtxRelease_v2(Ordinal /*device*/) {
  const std::scoped_lock turn(one_at_a_time());
  --state().script.live;
  return enter("cuDevicePrimaryCtxRelease", false);
}
FAKE Code cuCtxPushCurrent_v2(Context context) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuCtxPushCurrent", false)) return code;
  if (!context) return invalid_context;
  current.push_back(context);
  ++state().script.live;
  return success;
}
FAKE Code cuCtxPopCurrent_v2(Context* context) {
  const std::scoped_lock turn(one_at_a_time());
  if (current.empty()) return invalid_context;
  *context = current.back();
  current.pop_back();
  --state().script.live;
  return enter("cuCtxPopCurrent", false);
}
FAKE Code cuPointerGetAttribute(void* value, PointerAttribute which, Address at) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuPointerGetAttribute", false)) return code;
  const auto put = [value](auto what) {
    std::memcpy(value, &what, sizeof what);
    return success;
  };
  const auto* const found = holder(at, 1);
  if (!found) return which == PointerAttribute::memory_type && inside(state().pinned, at, 1) ? put(1U) : invalid_value;
  switch (which) {
    case PointerAttribute::memory_type:
      return put(memory_type_device);
    case PointerAttribute::is_managed:
      return put(found->second.managed ? 1U : 0U);
    case PointerAttribute::device_ordinal:
      return put(found->second.device);
    case PointerAttribute::range_start_addr:
      return put(found->first);
    case PointerAttribute::range_size:
      return put(found->second.bytes);
  }
  return invalid_value;
}
FAKE Code cuMemAlloc_v2(Address* into, std::size_t bytes) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuMemAlloc")) return code;
  return allocate(into, bytes, false);
}
FAKE Code cuMemAllocManaged(Address* into, std::size_t bytes, unsigned /*flags*/) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuMemAllocManaged")) return code;
  return allocate(into, bytes, true);
}
FAKE Code cuMemFree_v2(Address at) {
  const std::scoped_lock turn(one_at_a_time());
  auto& all = state().allocations;
  const auto found = all.find(at);
  if (found == all.end()) return invalid_value;
  const auto& gone = found->second;
  const auto whole = (gone.offset + gone.bytes + page - 1) / page * page;
  ::munmap(gone.shadow, whole + page);
  ::munmap(gone.reserved, whole);
  ::close(gone.memfd);
  all.erase(found);
  return success;
}
FAKE Code cuStreamCreate(Stream* stream, unsigned flags) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuStreamCreate")) return code;
  if (flags != stream_non_blocking) return invalid_value;
  auto made = std::make_unique<CUstream_st>();
  *stream = made.get();
  state().streams.emplace(*stream, std::move(made));
  ++state().script.live;
  return success;
}
FAKE Code cuStreamDestroy_v2(Stream stream) {
  const std::scoped_lock turn(one_at_a_time());
  if (current.empty()) return invalid_context;
  if (state().streams.erase(stream) == 0) return invalid_handle;
  --state().script.live;
  return enter("cuStreamDestroy", false);
}
FAKE Code cuStreamSynchronize(Stream stream) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuStreamSynchronize")) return code;
  const auto work = std::exchange(stream->work, {});
  for (const auto& one : work)
    if (const auto code = one()) return code;
  return success;
}
#ifndef FAKE_CUDA_LACKS_NEEDED
FAKE Code cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Stream stream) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuMemcpyHtoDAsync")) return code;
  auto* const into = shadow(to, bytes);
  if (!into) return invalid_value;
  return queue(stream, [=] { return std::memcpy(into, from, bytes), success; });
}
#endif
FAKE Code cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Stream stream) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuMemcpyDtoHAsync")) return code;
  const auto* const source = shadow(from, bytes);
  if (!source) return invalid_value;
  return queue(stream, [=] { return std::memcpy(to, source, bytes), success; });
}
FAKE Code cuMemsetD8Async(Address at, unsigned char value, std::size_t bytes, Stream stream) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuMemsetD8Async")) return code;
  auto* const into = shadow(at, bytes);
  if (!into) return invalid_value;
  return queue(stream, [=] { return std::memset(into, value, bytes), success; });
}
FAKE Code cuMemHostRegister_v2(void* at, std::size_t bytes, unsigned flags) {
  const std::scoped_lock turn(one_at_a_time());
  auto& script = state().script;
  if (const auto code = enter("cuMemHostRegister")) return code;
  script.last_register_flags = flags;
  if (!script.registers) return not_supported;
  const bool read_only = (flags & host_register_read_only) != 0;
  if (read_only && !script.registers_read_only) return not_supported;
  const auto address = reinterpret_cast<Address>(at);
  if (bytes == 0 || !mapped(address, bytes, !read_only)) return invalid_value;
  for (const auto& [other, size] : state().registered)
    if (address < other + size && other < address + bytes) return host_memory_already_registered;
  state().registered.emplace(address, bytes);
  ++script.live;
  ++script.registered;
  return success;
}
FAKE Code cuMemHostUnregister(void* at) {
  const std::scoped_lock turn(one_at_a_time());
  if (current.empty()) return invalid_context;
  auto& script = state().script;
  if (state().registered.erase(reinterpret_cast<Address>(at)) == 0) return not_registered;
  --script.live;
  --script.registered;
  return enter("cuMemHostUnregister");
}
FAKE Code cuMemHostAlloc(void** into, std::size_t bytes, unsigned /*flags*/) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuMemHostAlloc")) return code;
  *into = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  state().pinned.emplace(reinterpret_cast<Address>(*into), bytes);
  ++state().script.live;
  return success;
}
FAKE Code cuMemFreeHost(void* at) {
  const std::scoped_lock turn(one_at_a_time());
  if (current.empty()) return invalid_context;
  const auto found = state().pinned.find(reinterpret_cast<Address>(at));
  if (found == state().pinned.end()) return invalid_value;
  ::munmap(at, found->second);
  state().pinned.erase(found);
  --state().script.live;
  return enter("cuMemFreeHost");
}
FAKE Code cuModuleLoadDataEx(Module* module, const void* image, unsigned options, int* option, void** values) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuModuleLoadDataEx")) return code;
  if (!state().script.compiles) {
    for (unsigned i = 0; i < options; ++i)
      if (option[i] == jit_error_log_buffer) std::strcpy(static_cast<char*>(values[i]), "line 7: unheard of");
    return unsupported_ptx;
  }
  auto made = std::make_unique<CUmod_st>(CUmod_st{static_cast<const char*>(image)});
  *module = made.get();
  state().modules.emplace(*module, std::move(made));
  ++state().script.live;
  return success;
}
FAKE Code cuModuleUnload(Module module) {
  const std::scoped_lock turn(one_at_a_time());
  if (current.empty()) return invalid_context;
  if (state().modules.erase(module) == 0) return invalid_handle;
  --state().script.live;
  return enter("cuModuleUnload");
}
FAKE Code cuModuleGetFunction(Function* function, Module module, const char* name) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuModuleGetFunction")) return code;
  if (module->text.find(fmt::format(".visible .entry {}(", name)) == std::string::npos) return not_found;
  *function = &state().functions.emplace(name, CUfunc_st{name}).first->second;
  return success;
}
FAKE Code cuLaunchKernel(Function function, unsigned blocks, unsigned y, unsigned z, unsigned threads, unsigned ty,
                         unsigned tz, unsigned shared, Stream stream, void** parameters, void** extra) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuLaunchKernel")) return code;
  if (blocks == 0 || y != 1 || z != 1 || ty != 1 || tz != 1 || threads == 0 || threads > 1024 || shared != 0 || extra)
    return invalid_value;
  const auto span = parameter<Address>(parameters, 0);
  if (function->name == "ciuic_heads") {
    const auto bytes = parameter<kernels::U64>(parameters, 1), from = parameter<kernels::U64>(parameters, 2),
               room = parameter<kernels::U64>(parameters, 3);
    auto* const into = parameter<kernels::Head*>(parameters, 4);
    auto* const end = parameter<kernels::Walk*>(parameters, 5);
    if (blocks != 1 || threads != 1) return invalid_value;
    return queue(stream, [=] {
      const auto* const at = shadow(span, bytes);
      if (!at || !shared_with_gpu(into, room * sizeof *into) || !shared_with_gpu(end, sizeof *end))
        return illegal_address;
      ciuic_heads(reinterpret_cast<const kernels::U8*>(at), bytes, from, room, into, end);
      return success;
    });
  }
  const auto* const pieces = parameter<const kernels::Piece*>(parameters, 1);
  const auto count = parameter<kernels::U64>(parameters, 2);
  auto* const into = parameter<kernels::U32*>(parameters, 3);
  if (threads != kernels::threads || kernels::U64{blocks} * threads < count) return invalid_value;
  return queue(stream, [=] {
    if (!shared_with_gpu(pieces, count * sizeof *pieces) || !shared_with_gpu(into, count * sizeof *into))
      return illegal_address;
    for (kernels::U64 i = 0; i < count; ++i)
      if (pieces[i].bytes != 0 && !shadow(span + pieces[i].at, pieces[i].bytes)) return illegal_address;
    ciuic_checksums(reinterpret_cast<const kernels::U8*>(shadow(span, 1)), pieces, count, into);
    return success;
  });
}
#ifndef FAKE_CUDA_LACKS_OPTIONAL
FAKE Code cuFlushGPUDirectRDMAWrites(int target, int scope) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuFlushGPUDirectRDMAWrites")) return code;
  ++state().script.flushes;
  return target == 0 && scope == writes_to_owner ? success : invalid_value;
}
FAKE Code cuMemGetHandleForAddressRange(void* handle, Address at, std::size_t bytes, int kind,
                                        unsigned long long flags) {
  const std::scoped_lock turn(one_at_a_time());
  if (const auto code = enter("cuMemGetHandleForAddressRange")) return code;
  if (!state().script.dma_buf) return not_supported;
  const auto* const found = holder(at, bytes);
  if (!found || at % page != 0 || bytes % page != 0 || kind != range_dma_buf_fd || flags != 0) return invalid_value;
  // A file description of its own: its position is where the dma-buf begins in the memfd.
  const int descriptor = ::open(fmt::format("/proc/self/fd/{}", found->second.memfd).c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return out_of_memory;
  ::lseek(descriptor, static_cast<off_t>(found->second.offset + (at - found->first)), SEEK_SET);
  std::memcpy(handle, &descriptor, sizeof descriptor);
  return success;
}
#endif

#if !defined(FAKE_CUDA_LACKS_OPTIONAL) && !defined(FAKE_CUDA_LACKS_NEEDED)
#define CIUIC_SAME(function, symbol, need, ...) static_assert(std::is_same_v<decltype(&symbol), Code (*)(__VA_ARGS__)>);
CIUIC_CUDA_FUNCTIONS(CIUIC_SAME)
#endif
