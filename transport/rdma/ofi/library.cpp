// libfabric by dlopen: the package of the host, or none.
#include "transport/rdma/ofi/library.h"

#include <dlfcn.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

#include "transport/base/log.h"

namespace ciuic::rdma::ofi {

namespace {

/// By the version of the structures that the headers have: newer libraries keep the older functions beside.
template <class Function>
void look_up(void* handle, const char* name, const char* version, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(::dlvsym(handle, name, version));
  if (!function) missing = name;
}

/// The signal handlers of the process, put back: libraries that libfabric brings along take those of crashes.
class KeptHandlers {
 public:
  KeptHandlers() {
    for (std::size_t i = 0; i < kept_.size(); ++i) (void)::sigaction(static_cast<int>(i) + 1, nullptr, &kept_[i]);
  }
  ~KeptHandlers() {
    for (std::size_t i = 0; i < kept_.size(); ++i) (void)::sigaction(static_cast<int>(i) + 1, &kept_[i], nullptr);
  }
  KeptHandlers(const KeptHandlers&) = delete;
  KeptHandlers& operator=(const KeptHandlers&) = delete;

 private:
  std::array<struct sigaction, 31> kept_{};  // the classic ones
};

enum class Cache { undecided, off, on };
std::mutex mutex;
Cache cache = Cache::undecided;

}  // namespace

Result<const Library*> Library::load_once() {
  static Library library;
  const KeptHandlers handlers;
  void* handle = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    log::debug("rdma", "ofi: not on this host: {}; install libfabric1 to have it", ::dlerror());
    return Fault::no_device;
  }
  std::string missing;
  look_up(handle, "fi_getinfo", "FABRIC_1.3", library.fi_getinfo_, missing);
  look_up(handle, "fi_freeinfo", "FABRIC_1.3", library.fi_freeinfo, missing);
  look_up(handle, "fi_dupinfo", "FABRIC_1.3", library.fi_dupinfo, missing);
  look_up(handle, "fi_fabric", "FABRIC_1.1", library.fi_fabric, missing);
  look_up(handle, "fi_version", "FABRIC_1.0", library.fi_version, missing);
  look_up(handle, "fi_strerror", "FABRIC_1.0", library.fi_strerror, missing);
  if (!missing.empty()) {
    log::warn("rdma", "ofi: libfabric of this host lacks {}: version 1.17 or newer is needed", missing);
    return Fault::no_device;
  }
  return &library;
}

bool Library::without_cache() const {
  const std::scoped_lock lock(mutex);
  if (cache == Cache::undecided) {
    // It registers for all rights what was asked for with fewer. Nobody may switch it on again.
    ::setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
    ::setenv("FI_MR_CACHE_MONITOR", "disabled", 1);
    // So that a key of Slingshot's is never another region's later, and that its end is an end (fi_cxi's manual).
    ::setenv("FI_CXI_OPTIMIZED_MRS", "0", 1);
    ::setenv("FI_CXI_MR_MATCH_EVENTS", "1", 1);
    cache = Cache::off;
  }
  return cache == Cache::off;
}

int Library::find(std::uint64_t flags, const char* node, const char* service, const fi_info& hints,
                  fi_info*& list) const {
  {
    const std::scoped_lock lock(mutex);
    if (cache == Cache::undecided) cache = Cache::on;
  }
  static std::once_flag first;  // providers are set up in it
  std::optional<KeptHandlers> handlers;
  std::call_once(first, [&] { handlers.emplace(); });
  return fi_getinfo_(FI_VERSION(1, 17), node, service, flags, &hints, &list);
}

Result<const Library*> Library::load() {
  static const auto loaded = load_once();
  return loaded;
}

}  // namespace ciuic::rdma::ofi
