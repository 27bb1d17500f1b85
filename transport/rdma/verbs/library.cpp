// librdmacm and libibverbs by dlopen: the packages of the host's own rdma-core, or none.
#include "transport/rdma/verbs/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "transport/base/log.h"

namespace ciuic::rdma::verbs {

namespace {

struct Handles {
  void* rdmacm = nullptr;
  void* ibverbs = nullptr;
};

void* open(const char* file, std::string& why) {
  void* handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) why = ::dlerror();
  return handle;
}

template <class Function>
void find(void* handle, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (!function) missing = name;
}

Result<const Library*> load_once() {
  static Library library;
  std::string why;
  Handles handles;
  handles.ibverbs = open("libibverbs.so.1", why);
  if (handles.ibverbs) handles.rdmacm = open("librdmacm.so.1", why);
  if (!handles.rdmacm) {
    log::debug("rdma", "verbs: not on this host: {}; install rdma-core to have it", why);
    return Fault::no_device;
  }
  std::string missing;
#define CIUIC_FIND(from, function) find(handles.from, #function, library.function, missing);
  CIUIC_VERBS_FUNCTIONS(CIUIC_FIND)
#undef CIUIC_FIND
  if (!missing.empty()) {
    log::warn("rdma", "verbs: rdma-core of this host lacks {}: version 28 or newer is needed", missing);
    return Fault::no_device;
  }
  // Kernels before 5.12 do not copy pinned pages at fork; later ones answer that it is not needed.
  (void)library.ibv_fork_init();
  return &library;
}

}  // namespace

Result<const Library*> Library::load() {
  static const auto loaded = load_once();
  return loaded;
}

}  // namespace ciuic::rdma::verbs
