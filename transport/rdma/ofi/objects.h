#pragma once
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include <bit>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "transport/base/bytes.h"
#include "transport/rdma/address.h"
#include "transport/rdma/ofi/kinds.h"
#include "transport/rdma/ofi/library.h"

/// libfabric's objects as owned values, its events as plain ones.
namespace ciuic::rdma::ofi {

struct Closer {
  template <class Object>
  void operator()(Object* object) const {
    (void)fi_close(&object->fid);
  }
};
template <class T>
using Owned = std::unique_ptr<T, Closer>;

struct InfoCloser {
  const Library* library = nullptr;
  void operator()(fi_info* info) const { library->fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoCloser>;

/// A network interface as one provider of libfabric has it. What is opened on it ends before it.
struct Device {
  const Library& library;
  const Kind& kind;
  Info info;
  Owned<fid_fabric> fabric;

  /// In a forked child: its objects are the parent's, and ending them here would end them there.
  void leave_to_parent() {
    (void)fabric.release();
    (void)info.release();
  }
};

enum class Side : std::uint8_t { listening, connecting };
/// The device for an address of ours, or that leads to the address. Errors: no_device, address_unreachable,
/// resources_exhausted.
[[nodiscard]] Result<std::shared_ptr<Device>> open_device(const Library& library, const Kind& kind, Side side,
                                                          Address address, const std::optional<Address>& source);
/// Whether the host has anything for it.
[[nodiscard]] bool is_usable(const Library& library, const Kind& kind);

[[nodiscard]] Result<Owned<fid_domain>> open_domain(const Device& device);
/// Where a software provider listens there: connections that it takes, and which say half a sentence, hold it up for 20
/// ms and no longer. (libfabric's tcp reads a connection request with a call that waits.)
void limit_patience(const Address& listening);
[[nodiscard]] Result<Owned<fid_av>> open_peers(const Device& device, fid_domain& domain);
/// With a descriptor to wait on.
[[nodiscard]] Result<Owned<fid_eq>> open_event_queue(const Device& device);
enum class Wait : std::uint8_t { by_descriptor, none };
/// `by_descriptor`: with a descriptor to wait on, unless the provider has none.
[[nodiscard]] Result<Owned<fid_cq>> open_completions(fid_domain& domain, std::size_t length,
                                                     Wait wait = Wait::by_descriptor);
/// Enabled, its events by `events`, its completions by `completions`.
[[nodiscard]] Result<Owned<fid_ep>> open_endpoint(fid_domain& domain, fi_info& info, fid_eq& events,
                                                  fid_cq& completions);
/// Without connections: enabled, its completions by `completions`, whom it knows in `peers`.
[[nodiscard]] Result<Owned<fid_ep>> open_endpoint(fid_domain& domain, fi_info& info, fid_av& peers,
                                                  fid_cq& completions);
/// The descriptor of a queue that has one; -1: none.
[[nodiscard]] int descriptor_of(fid& queue);

/// What an operation is known by in its completion: a number, for none of our providers looks behind it.
[[nodiscard]] inline void* mark_of(std::uint64_t number) { return std::bit_cast<void*>(number); }
[[nodiscard]] inline std::uint64_t number_of(const void* mark) { return reinterpret_cast<std::uintptr_t>(mark); }

struct Event {
  std::uint32_t type = 0;  ///< FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN; 0: `error` says what ended
  fid_t object = nullptr;
  int error = 0;
  Info info;    ///< of FI_CONNREQ
  Buffer data;  ///< what the other side said
};
/// The next one; nothing if there is none now.
[[nodiscard]] std::optional<Event> next_event(const Library& library, fid_eq& events);

enum class Use : std::uint8_t { exposed, landing };
/// Registers for READs from afar, or for what lands here. `endpoint`: that it is bound to, where the provider ties
/// regions to endpoints. Errors: memlock_limit, not_registrable, device_lost, resources_exhausted.
[[nodiscard]] Result<Owned<fid_mr>> register_memory(const Device& device, fid_domain& domain, fid_ep* endpoint,
                                                    Bytes memory, Use use);
/// How a peer names it. Nothing: by a key longer than a span has room for.
[[nodiscard]] std::optional<RemoteSpan> span_of(const Device& device, fid_mr& region, Bytes memory);

/// What a failed call's error means; with either sign.
[[nodiscard]] Fault fault_of(int error);

}  // namespace ciuic::rdma::ofi
