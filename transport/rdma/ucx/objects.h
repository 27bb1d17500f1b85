#pragma once
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/fork_guard.h"
#include "transport/rdma/address.h"
#include "transport/rdma/ucx/library.h"
#include "transport/rdma/ucx/protocol.h"

/// UCX's objects as owned values.
namespace ciuic::rdma::ucx {

enum class Side : std::uint8_t { exposing, reading };

/// A context of UCX: the transports that UCX_TLS, UCX_NET_DEVICES and the hardware leave. Any thread.
class Context {
 public:
  Context(const Library& all, ucp_context_h made) : library(all), handle(made) {}
  ~Context() {
    if (!fork_.in_child()) library.cleanup(handle);  // it is the parent's
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  /// `transports`: instead of UCX_TLS, if it is not empty. Errors: no_device, resources_exhausted.
  [[nodiscard]] static Result<std::shared_ptr<const Context>> open(const Library& library, Side side,
                                                                   const std::string& transports);
  const Library& library;
  const ucp_context_h handle;

 private:
  ForkGuard fork_{};
};

/// A worker, which one thread at a time may use, and what it has to do before it ends: messages and closures under way.
class Worker {
 public:
  Worker(std::shared_ptr<const Context> context, ucp_worker_h made, int descriptor)
      : context_(std::move(context)), library_(context_->library), handle_(made), descriptor_(descriptor) {}
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  [[nodiscard]] static Result<std::unique_ptr<Worker>> open(std::shared_ptr<const Context> context);

  /// `call` takes messages of the kind, within `progress`.
  [[nodiscard]] Result<void> on(Kind kind, ucp_am_recv_callback_t call, void* with);
  /// Sends and never waits. Nothing is said of a failure: the endpoint's error handler hears of it.
  template <class Message>
  void send(ucp_ep_h to, Kind kind, const Message& message, Bytes data = {}) {
    send_bytes(to, kind, std::as_bytes(std::span(&message, 1)), data);
  }
  /// Ends an endpoint by force: what is under way on it ends with an error, in `progress`.
  void cut(ucp_ep_h endpoint);
  /// Closures still under way.
  [[nodiscard]] bool is_cutting();
  /// Does what there is to do.
  void progress();
  /// Readable from now on once there is something to do; false: there is already.
  [[nodiscard]] bool arm();
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] ucp_worker_h handle() const { return handle_; }

 private:
  struct Sent {
    std::list<Sent>* all = nullptr;
    std::list<Sent>::iterator self{};
    const Library* library = nullptr;
    Buffer header, data;
  };
  void send_bytes(ucp_ep_h to, Kind kind, Bytes header, Bytes data);

  std::shared_ptr<const Context> context_;
  const Library& library_;
  ucp_worker_h handle_;
  int descriptor_;
  std::list<Sent> sent_;
  std::vector<void*> closures_;
  int settling_ = 0;
  ForkGuard fork_{};
};

/// For a call: it points into the address.
[[nodiscard]] ucs_sock_addr_t sockaddr_of(const Address& address);
/// The bytes of a callback.
[[nodiscard]] inline Bytes bytes_of(const void* data, std::size_t length) {
  return {static_cast<const std::byte*>(data), length};
}
/// What a failed call's status means.
[[nodiscard]] Fault fault_of(ucs_status_t status);

}  // namespace ciuic::rdma::ucx
