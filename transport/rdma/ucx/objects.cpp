// Small things of UCX: contexts, workers, messages, errors.
#include "transport/rdma/ucx/objects.h"

#include <netinet/in.h>

#include <cstdlib>
#include <string_view>

#include "transport/base/log.h"

namespace ciuic::rdma::ucx {

namespace {

/// UCX gives back what a closed endpoint had (the other side hears of it only then) a little at each progress, and
/// neither says that there is more to do nor wakes us for it.
constexpr int settling_rounds = 16;

/// The transports of a context; empty: those that UCX_TLS names. Over TCP UCX answers READs by itself, and ends the
/// process where the reader is gone before the answer: whoever exposes uses it only where it is named.
std::string transports_of(Side side, const std::string& given) {
  if (side == Side::reading) return given;
  const char* const set = std::getenv("UCX_TLS");
  if (given.empty() && set == nullptr) return "^tcp";
  const std::string_view named = given.empty() ? std::string_view(set) : given;
  const bool has_tcp = named.starts_with('^') ? named.find("tcp") == named.npos
                                              : named.find("tcp") != named.npos || named.find("all") != named.npos;
  if (has_tcp)
    log::warn("rdma",
              "ucx: UCX_TLS={}: over tcp a reader that is killed amid a READ can end this process; leave tcp "
              "out, or use provider ofi for it",
              named);
  return given;
}

}  // namespace

Result<std::shared_ptr<const Context>> Context::open(const Library& library, Side side, const std::string& transports) {
  if (side == Side::exposing) {
    // Registrations end when they are ended: its cache keeps them. And a broker that restarts listens where it did.
    // Whoever has set them otherwise has it so.
    ::setenv("UCX_IB_REG_METHODS", "direct", 0);
    ::setenv("UCX_TCP_CM_REUSEADDR", "y", 0);
  }
  ucp_config_t* config = nullptr;
  if (const auto status = library.config_read(nullptr, nullptr, &config); status != UCS_OK) {
    log::error("rdma", "ucx: a UCX_ variable in the environment is not understood: {}", library.status_string(status));
    return Fault::no_device;
  }
  if (const auto chosen = transports_of(side, transports); !chosen.empty())
    (void)library.config_modify(config, "TLS", chosen.c_str());
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  ucp_context_h made = nullptr;
  const auto status = library.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &made);
  library.config_release(config);
  if (status != UCS_OK) {
    log::error("rdma", "ucx: it does not start: {}; do UCX_TLS and UCX_NET_DEVICES name what this host has?",
               library.status_string(status));
    return status == UCS_ERR_NO_MEMORY ? Fault::resources_exhausted : Fault::no_device;
  }
  return std::shared_ptr<const Context>(std::make_shared<Context>(library, made));
}

Result<std::unique_ptr<Worker>> Worker::open(std::shared_ptr<const Context> context) {
  const auto& library = context->library;
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h made = nullptr;
  if (const auto status = library.worker_create(context->handle, &params, &made); status != UCS_OK)
    return fault_of(status);
  auto worker = std::make_unique<Worker>(std::move(context), made, -1);
  if (const auto status = library.worker_get_efd(made, &worker->descriptor_); status != UCS_OK) return fault_of(status);
  return worker;
}

Worker::~Worker() {
  if (!fork_.in_child()) library_.worker_destroy(handle_);
}

Result<void> Worker::on(Kind kind, ucp_am_recv_callback_t call, void* with) {
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = static_cast<unsigned>(kind);
  params.flags = UCP_AM_FLAG_WHOLE_MSG;
  params.cb = call;
  params.arg = with;
  if (const auto status = library_.worker_set_am_recv_handler(handle_, &params); status != UCS_OK)
    return fault_of(status);
  return {};
}

void Worker::send_bytes(ucp_ep_h to, Kind kind, Bytes header, Bytes data) {
  // UCX reads both until it says that it is done.
  sent_.emplace_front();
  auto& sent = sent_.front();
  sent.all = &sent_;
  sent.self = sent_.begin();
  sent.library = &library_;
  sent.header.assign(header.begin(), header.end());
  sent.data.assign(data.begin(), data.end());
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = [](void* request, ucs_status_t, void* which) {
    const auto& one = *static_cast<Sent*>(which);
    one.library->request_free(request);
    one.all->erase(one.self);
  };
  params.user_data = &sent;
  const auto request = library_.am_send_nbx(to, static_cast<unsigned>(kind), sent.header.data(), sent.header.size(),
                                            sent.data.data(), sent.data.size(), &params);
  if (!UCS_PTR_IS_PTR(request)) sent_.erase(sent_.begin());
}

void Worker::cut(ucp_ep_h endpoint) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const auto request = library_.ep_close_nbx(endpoint, &params);
  if (UCS_PTR_IS_PTR(request)) closures_.push_back(request);
  settling_ = settling_rounds;
}

bool Worker::is_cutting() {
  std::erase_if(closures_, [this](void* request) {
    if (library_.request_check_status(request) == UCS_INPROGRESS) return false;
    library_.request_free(request);
    return true;
  });
  return !closures_.empty() || settling_ > 0;
}

void Worker::progress() {
  if (settling_ > 0) --settling_;
  // Bounded: whoever calls has more to do.
  for (int n = 0; n < 64; ++n)
    if (library_.worker_progress(handle_) == 0) return;
}

bool Worker::arm() { return library_.worker_arm(handle_) == UCS_OK; }

ucs_sock_addr_t sockaddr_of(const Address& address) {
  return {reinterpret_cast<const sockaddr*>(&address.storage),
          static_cast<socklen_t>(address.storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in))};
}

Fault fault_of(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_UNSUPPORTED:
      return Fault::no_device;
    case UCS_ERR_BUSY:
    case UCS_ERR_REJECTED:
      return Fault::refused;
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
      return Fault::peer_gone;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_INVALID_ADDR:
      return Fault::address_unreachable;
    case UCS_ERR_IO_ERROR:
      return Fault::device_lost;
    default:
      return Fault::resources_exhausted;
  }
}

}  // namespace ciuic::rdma::ucx
