// librdmacm and libibverbs by dlopen: the packages of the host's own rdma-core, or none.
#include "transport/rdma/verbs/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

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
  std::string unused;
  find(handles.ibverbs, "ibv_reg_dmabuf_mr", library.ibv_reg_dmabuf_mr, unused);
  if (!missing.empty()) {
    log::warn("rdma", "verbs: rdma-core of this host lacks {}: version 28 or newer is needed", missing);
    return Fault::no_device;
  }
  // Kernels before 5.12 do not copy pinned pages at fork; later ones answer that it is not needed.
  (void)library.ibv_fork_init();
  return &library;
}

/// The thread in which libibverbs meets devices.
class Librarian {
 public:
  explicit Librarian(const Library& library) : library_(library), thread_([this] { work(); }) {}
  /// Any thread; returns when all devices that were there at the call are known.
  void look() { ask(false); }
  /// And librdmacm knows what is gone, from now on within `interval`.
  void forget_removed() { ask(true); }

 private:
  static constexpr std::chrono::seconds interval{1};

  void ask(bool forget) {
    std::unique_lock lock(mutex_);
    forget_ |= forget;
    watching_ |= forget;
    const auto mine = ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return answered_ >= mine; });
  }

  void work() {
    std::set<const ibv_device*> known;
    std::unique_lock lock(mutex_);
    while (true) {
      const auto is_asked = [&] { return answered_ < asked_; };
      if (watching_)
        changed_.wait_for(lock, interval, is_asked);
      else
        changed_.wait(lock, is_asked);
      const auto now = asked_;
      bool forget = std::exchange(forget_, false);
      const bool watching = watching_;
      lock.unlock();
      std::set<const ibv_device*> present;
      if (ibv_device** const devices = library_.ibv_get_device_list(nullptr)) {
        for (auto** one = devices; *one != nullptr; ++one) present.insert(*one);
        library_.ibv_free_device_list(devices);
      }
      const auto is_gone = [&](const ibv_device* one) { return !present.contains(one); };
      forget |= watching && std::any_of(known.begin(), known.end(), is_gone);
      known = std::move(present);
      if (ibv_context** const all = forget ? library_.rdma_get_devices(nullptr) : nullptr)
        library_.rdma_free_devices(all);
      lock.lock();
      answered_ = now;
      changed_.notify_all();
    }
  }

  const Library& library_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t asked_ = 0, answered_ = 0;
  bool forget_ = false, watching_ = false;
  std::thread thread_;
};

/// Never ended: at the process's end somebody may be in the middle of it.
Librarian& librarian(const Library& library) {
  static auto& only = *new Librarian(library);
  return only;
}

}  // namespace

void Library::meet_new_devices() const { librarian(*this).look(); }

void Library::notice_removed_devices() const { librarian(*this).forget_removed(); }

Result<const Library*> Library::load() {
  static const auto loaded = load_once();
  return loaded;
}

}  // namespace ciuic::rdma::verbs
