// libcuda.so.1 by dlopen: it comes with the kernel's driver, and programs run on hosts without.
#include "transport/device/cuda_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>

namespace ciuic::device::cuda {

namespace {

enum class Need { needed, optional };

constexpr const char* update = "CUDA 11.0's driver (450) or a newer one is needed: update it";

struct Remedy {
  Code code;
  const char* text;
};
constexpr const char* lost = "the process has lost its GPU: only a new process gets it back (dmesg tells more, by Xid)";
constexpr std::array<Remedy, 21> remedies{{
    {2, "free memory of the GPU, or host memory that is pinned"},
    {3, "CUDA that began before a fork is of no use in the child: start it anew (Python's multiprocessing: spawn)"},
    {34, "a stub stands before the driver: take CUDA's stubs folder out of LD_LIBRARY_PATH"},
    {46, "another process has the GPU for itself: nvidia-smi -c DEFAULT lets several in"},
    {100, "no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES; a container needs --gpus"},
    {214, lost},
    {218, "the driver cannot compile our kernels: update it"},
    {220, lost},
    {221, "libnvidia-ptxjitcompiler.so is missing; in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
    {222, "the driver cannot compile our kernels: update it"},
    {223, "CUDA_DISABLE_PTX_JIT is set: our kernels are compiled at run time"},
    {700, lost},
    {709, lost},
    {710, lost},
    {host_memory_already_registered, "somebody in this process pinned it already: copies from it are as fast"},
    {714, lost},
    {715, lost},
    {719, lost},
    {802, "NVSwitch machines need the fabric manager: systemctl start nvidia-fabricmanager"},
    {803, "libcuda is not of the loaded kernel module's version: reload the module, or reboot"},
    {999, "dmesg tells more, by Xid"},
}};

template <class Signature>
void find(void* handle, const char* symbol, Need need, Signature& function, std::string& missing) {
  function = reinterpret_cast<Signature>(::dlsym(handle, symbol));
  if (!function && need == Need::needed) missing = symbol;
}

}  // namespace

Result<Library> Library::load(const char* file) {
  void* const handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) return Error{fmt::format("no NVIDIA driver on this host: {}", ::dlerror())};
  Library library;
  std::string missing;
#define CIUIC_FIND(function, symbol, need, ...) find(handle, #symbol, Need::need, library.function, missing);
  CIUIC_CUDA_FUNCTIONS(CIUIC_FIND)
#undef CIUIC_FIND
  if (!missing.empty()) return Error{fmt::format("{} lacks {}: {}", file, missing, update)};
  int version = 0;
  if (const auto code = library.cuDriverGetVersion(&version)) return library.failed("cuDriverGetVersion", code);
  if (version < 11000)
    return Error{fmt::format("the NVIDIA driver is CUDA {}.{}'s: {}", version / 1000, version % 1000 / 10, update)};
  return library;
}

Result<const Library*> Library::load() {
  static const auto loaded = load("libcuda.so.1");
  if (!loaded) return loaded.error();
  return &*loaded;
}

Code Library::finish(Stream stream) const {
  const auto code = cuStreamSynchronize(stream);
  // Waiting may have failed, not the work. A context that fails at it again is lost, and runs nothing.
  if (code != success) (void)cuStreamSynchronize(stream);
  return code;
}

Error Library::failed(const char* call, Code code) const {
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != success || !name) name = "an error that it has no name for";
  for (const auto& remedy : remedies)
    if (remedy.code == code) return {fmt::format("{}: {} ({}); {}", call, name, code, remedy.text)};
  return {fmt::format("{}: {} ({})", call, name, code)};
}

int Library::attribute(DeviceAttribute which, Ordinal device) const {
  int value = 0;
  return cuDeviceGetAttribute(&value, which, device) == success ? value : 0;
}

std::string Library::device_name(Ordinal device) const {
  std::array<char, 256> text{};
  if (cuDeviceGetName(text.data(), static_cast<int>(text.size()) - 1, device) != success) return "a GPU without a name";
  return text.data();
}

}  // namespace ciuic::device::cuda
