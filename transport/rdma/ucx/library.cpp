// UCX by dlopen: the package of the host, or none.
#include "transport/rdma/ucx/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <csignal>
#include <cstdarg>
#include <cstdio>

#include "transport/base/log.h"

namespace ciuic::rdma::ucx {

namespace {

template <class Function>
void look_up(void* handle, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (!function) missing = name;
}

/// The signal handlers of the process, put back: UCX takes those of crashes when it is loaded.
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

/// UCX writes to standard output, which is a program's own. Peers can cause lines: they are few a second.
ucs_log_func_rc_t tell(const char* /*file*/, unsigned /*line*/, const char* /*function*/, ucs_log_level_t level,
                       const ucs_log_component_config_t* /*component*/, const char* message, va_list words) {
  std::array<char, 512> text{};
  (void)std::vsnprintf(text.data(), text.size(), message, words);
  // A peer that goes away is an error to UCX; what it means to us is said where it is handled.
  const auto how = level == UCS_LOG_LEVEL_FATAL ? log::Level::error : log::Level::debug;
  log::bounded(how, "rdma", "ucx: {}", text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

Result<const Library*> Library::load_once() {
  static Library library;
  const KeptHandlers handlers;
  // Read when it is loaded. UCX would else patch mmap, madvise and their like for the whole process, a trainer's too,
  // for a cache of registrations that is not used here.
  ::setenv("UCX_MEM_EVENTS", "n", 0);
  void* handle = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* services = handle != nullptr ? ::dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : nullptr;
  if (handle == nullptr || services == nullptr) {
    log::debug("rdma", "ucx: not on this host: {}; install libucx0 to have it", ::dlerror());
    return Fault::no_device;
  }
  std::string missing;
  look_up(handle, "ucp_get_version_string", library.get_version_string, missing);
  look_up(handle, "ucp_config_read", library.config_read, missing);
  look_up(handle, "ucp_config_modify", library.config_modify, missing);
  look_up(handle, "ucp_config_release", library.config_release, missing);
  look_up(handle, "ucp_init_version", library.init_version, missing);
  look_up(handle, "ucp_cleanup", library.cleanup, missing);
  look_up(handle, "ucp_worker_create", library.worker_create, missing);
  look_up(handle, "ucp_worker_destroy", library.worker_destroy, missing);
  look_up(handle, "ucp_worker_progress", library.worker_progress, missing);
  look_up(handle, "ucp_worker_get_efd", library.worker_get_efd, missing);
  look_up(handle, "ucp_worker_arm", library.worker_arm, missing);
  look_up(handle, "ucp_worker_signal", library.worker_signal, missing);
  look_up(handle, "ucp_worker_set_am_recv_handler", library.worker_set_am_recv_handler, missing);
  look_up(handle, "ucp_listener_create", library.listener_create, missing);
  look_up(handle, "ucp_listener_destroy", library.listener_destroy, missing);
  look_up(handle, "ucp_listener_query", library.listener_query, missing);
  look_up(handle, "ucp_listener_reject", library.listener_reject, missing);
  look_up(handle, "ucp_ep_create", library.ep_create, missing);
  look_up(handle, "ucp_ep_close_nbx", library.ep_close_nbx, missing);
  look_up(handle, "ucp_am_send_nbx", library.am_send_nbx, missing);
  look_up(handle, "ucp_get_nbx", library.get_nbx, missing);
  look_up(handle, "ucp_request_check_status", library.request_check_status, missing);
  look_up(handle, "ucp_request_free", library.request_free, missing);
  look_up(handle, "ucp_mem_map", library.mem_map, missing);
  look_up(handle, "ucp_mem_unmap", library.mem_unmap, missing);
  look_up(handle, "ucp_rkey_pack", library.rkey_pack, missing);
  look_up(handle, "ucp_rkey_buffer_release", library.rkey_buffer_release, missing);
  look_up(handle, "ucp_ep_rkey_unpack", library.ep_rkey_unpack, missing);
  look_up(handle, "ucp_rkey_destroy", library.rkey_destroy, missing);
  look_up(services, "ucs_status_string", library.status_string, missing);
  decltype(&::ucs_log_push_handler) push_handler = nullptr;
  look_up(services, "ucs_log_push_handler", push_handler, missing);
  if (!missing.empty()) {
    log::warn("rdma", "ucx: UCX of this host lacks {}: version 1.13 or newer is needed", missing);
    return Fault::no_device;
  }
  push_handler(&tell);
  return &library;
}

Result<const Library*> Library::load() {
  static const auto loaded = load_once();
  return loaded;
}

}  // namespace ciuic::rdma::ucx
