// Small things of libfabric: finding a device, opening what belongs to it, events, registration, errors.
#include "transport/rdma/ofi/objects.h"

#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "transport/base/log.h"

namespace ciuic::rdma::ofi {

namespace {

constexpr std::size_t events_held = 256;

/// An endpoint that reads and is read, whatever its provider wants of registrations. Keys longer than 64 bits
/// (FI_MR_RAW) are not among it: a provider that has no others is not found.
Info wanted(const Library& library, const Kind& kind) {
  Info hints(library.fi_dupinfo(nullptr), InfoCloser{&library});
  if (!hints) return hints;
  hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (kind.manner == Manner::connected) {
    hints->caps |= FI_MSG | FI_SEND | FI_RECV;
    hints->mode = FI_RX_CQ_DATA;
    hints->ep_attr->type = FI_EP_MSG;
  } else {
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode |= FI_MR_ENDPOINT;
    // By the thread that waits, not by one of the library's.
    hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  }
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->fabric_attr->prov_name = ::strdup(std::string(kind.name).c_str());
  if (!kind.fabric.empty()) hints->fabric_attr->name = ::strdup(std::string(kind.fabric).c_str());
  return hints;
}

/// The first that is no variant with shared receive queues.
Info first_of(const Library& library, fi_info* list) {
  const Info all(list, InfoCloser{&library});
  for (const auto* one = list; one != nullptr; one = one->next) {
    const std::string_view domain = one->domain_attr->name != nullptr ? one->domain_attr->name : "";
    if (domain.ends_with("-xrc")) continue;
    return Info(library.fi_dupinfo(one), InfoCloser{&library});
  }
  return Info(nullptr, InfoCloser{&library});
}

std::size_t length_of(const Address& address) {
  return address.storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

/// For fi_freeinfo to free.
void* copy_of(const Address& address) {
  void* copy = std::malloc(length_of(address));
  if (copy != nullptr) std::memcpy(copy, &address.storage, length_of(address));
  return copy;
}

std::uint64_t random_key(std::size_t bytes) {
  std::uint64_t key = 0;
  const auto length = std::clamp<std::size_t>(bytes, 1, sizeof key);
  if (::getrandom(&key, length, 0) != static_cast<ssize_t>(length)) std::abort();  // a guessable key is worse
  return key;
}

}  // namespace

Result<std::shared_ptr<Device>> open_device(const Library& library, const Kind& kind, Side side, Address address,
                                            const std::optional<Address>& source) {
  const auto hints = wanted(library, kind);
  if (!hints) return Fault::resources_exhausted;
  // fi_getinfo takes text: the host without brackets, and the port.
  const auto text = address.text();
  const auto colon = text.rfind(':');
  auto host = text.substr(0, colon);
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  const auto port = text.substr(colon + 1);
  std::uint64_t flags = 0;
  if (kind.by_ip) {
    hints->addr_format = address.storage.ss_family == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
    flags = FI_NUMERICHOST | (side == Side::listening ? FI_SOURCE : 0);
    if (source) {
      hints->src_addr = copy_of(*source);
      hints->src_addrlen = length_of(*source);
    }
  }
  fi_info* list = nullptr;
  if (const int error =
          library.find(flags, kind.by_ip ? host.c_str() : nullptr, kind.by_ip ? port.c_str() : nullptr, *hints, list);
      error != 0) {
    if (-error == ENOMEM) return Fault::resources_exhausted;
    return side == Side::listening ? Fault::no_device : Fault::address_unreachable;
  }
  auto info = first_of(library, list);
  if (!info) return Fault::no_device;
  fid_fabric* fabric = nullptr;
  if (const int error = library.fi_fabric(info->fabric_attr, &fabric, nullptr); error != 0) return fault_of(error);
  return std::make_shared<Device>(Device{library, kind, std::move(info), Owned<fid_fabric>(fabric)});
}

bool is_usable(const Library& library, const Kind& kind) {
  const auto hints = wanted(library, kind);
  if (!hints) return false;
  fi_info* list = nullptr;
  if (library.find(0, nullptr, nullptr, *hints, list) != 0) return false;
  return first_of(library, list) != nullptr;
}

void limit_patience(const Address& listening) {
  // libfabric keeps the socket to itself, but it is a descriptor of ours, and what it accepts inherits its options.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    int accepts = 0;
    socklen_t size = sizeof accepts;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) != 0 || accepts == 0) continue;
    Address bound;
    size = sizeof bound.storage;
    if (::getsockname(descriptor, bound.get(), &size) != 0 || bound.storage.ss_family != listening.storage.ss_family ||
        bound.text() != listening.text())
      continue;
    timeval patience{};
    patience.tv_usec = 20'000;
    if (::setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
      log::warn("rdma", "ofi: a stranger who connects to {} can hold up readers: SO_RCVTIMEO: {}", listening.text(),
                std::strerror(errno));
  }
}

Result<Owned<fid_domain>> open_domain(const Device& device) {
  fid_domain* domain = nullptr;
  if (const int error = fi_domain(device.fabric.get(), device.info.get(), &domain, nullptr); error != 0)
    return fault_of(error);
  return Owned<fid_domain>(domain);
}

Result<Owned<fid_eq>> open_event_queue(const Device& device) {
  fi_eq_attr attributes{};
  attributes.size = events_held;
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* events = nullptr;
  if (const int error = fi_eq_open(device.fabric.get(), &attributes, &events, nullptr); error != 0)
    return fault_of(error);
  return Owned<fid_eq>(events);
}

Result<Owned<fid_av>> open_peers(const Device& device, fid_domain& domain) {
  fi_av_attr attributes{};
  attributes.type = device.info->domain_attr->av_type;
  if (attributes.type == FI_AV_UNSPEC) attributes.type = FI_AV_TABLE;
  fid_av* peers = nullptr;
  if (const int error = fi_av_open(&domain, &attributes, &peers, nullptr); error != 0) return fault_of(error);
  return Owned<fid_av>(peers);
}

Result<Owned<fid_cq>> open_completions(fid_domain& domain, std::size_t length, Wait wait) {
  fi_cq_attr attributes{};
  attributes.size = length;
  attributes.format = FI_CQ_FORMAT_CONTEXT;
  attributes.wait_obj = wait == Wait::by_descriptor ? FI_WAIT_FD : FI_WAIT_NONE;
  fid_cq* completions = nullptr;
  int error = fi_cq_open(&domain, &attributes, &completions, nullptr);
  if (error == -FI_ENOSYS || error == -EOPNOTSUPP) {
    attributes.wait_obj = FI_WAIT_NONE;
    error = fi_cq_open(&domain, &attributes, &completions, nullptr);
  }
  if (error != 0) return fault_of(error);
  return Owned<fid_cq>(completions);
}

namespace {

/// Bound to its completions and to one thing more.
Result<Owned<fid_ep>> open_bound(fid_domain& domain, fi_info& info, fid& other, fid_cq& completions) {
  fid_ep* raw = nullptr;
  if (const int error = fi_endpoint(&domain, &info, &raw, nullptr); error != 0) return fault_of(error);
  Owned<fid_ep> endpoint(raw);
  for (const auto& [queue, flags] :
       {std::pair<fid_t, std::uint64_t>{&other, 0}, {&completions.fid, FI_TRANSMIT | FI_RECV}})
    if (const int error = fi_ep_bind(raw, queue, flags); error != 0) return fault_of(error);
  if (const int error = fi_enable(raw); error != 0) return fault_of(error);
  return endpoint;
}

}  // namespace

Result<Owned<fid_ep>> open_endpoint(fid_domain& domain, fi_info& info, fid_eq& events, fid_cq& completions) {
  return open_bound(domain, info, events.fid, completions);
}

Result<Owned<fid_ep>> open_endpoint(fid_domain& domain, fi_info& info, fid_av& peers, fid_cq& completions) {
  return open_bound(domain, info, peers.fid, completions);
}

int descriptor_of(fid& queue) {
  int descriptor = -1;
  return fi_control(&queue, FI_GETWAIT, &descriptor) == 0 ? descriptor : -1;
}

std::optional<Event> next_event(const Library& library, fid_eq& events) {
  // An entry, and behind it what the other side said.
  constexpr std::size_t head = offsetof(fi_eq_cm_entry, data), said_max = 256;
  alignas(fi_eq_cm_entry) std::array<std::byte, head + said_max> read{};
  Event event;
  const auto got = fi_eq_read(&events, &event.type, read.data(), read.size(), 0);
  if (got == -FI_EAVAIL) {
    fi_eq_err_entry failure{};
    failure.err_data = read.data();
    failure.err_data_size = read.size();
    if (fi_eq_readerr(&events, &failure, 0) < 0) return std::nullopt;
    event.type = 0;
    event.object = failure.fid;
    event.error = failure.err;
    const auto length = std::min(failure.err_data_size, read.size());
    if (failure.err_data != nullptr) {
      const auto* const said = static_cast<const std::byte*>(failure.err_data);
      event.data.assign(said, said + length);
    }
    return event;
  }
  if (got < static_cast<ssize_t>(head)) return std::nullopt;
  const auto* const entry = reinterpret_cast<const fi_eq_cm_entry*>(read.data());
  event.object = entry->fid;
  if (event.type == FI_CONNREQ) event.info = Info(entry->info, InfoCloser{&library});
  if (static_cast<std::size_t>(got) > head) event.data.assign(read.data() + head, read.data() + got);
  return event;
}

Result<Owned<fid_mr>> register_memory(const Device& device, fid_domain& domain, fid_ep* endpoint, Bytes memory,
                                      Use use) {
  const auto access = use == Use::exposed ? std::uint64_t{FI_REMOTE_READ} : std::uint64_t{FI_READ};
  const auto& attributes = *device.info->domain_attr;
  const bool chosen_by_us = (attributes.mr_mode & FI_MR_PROV_KEY) == 0;
  int error = 0;
  // A key that is taken is the one in many that chance picked twice.
  for (int tries = 0; tries < 8; ++tries) {
    const auto wish = chosen_by_us ? random_key(attributes.mr_key_size) : 0;
    fid_mr* region = nullptr;
    error = -fi_mr_reg(&domain, memory.data(), memory.size(), access, 0, wish, 0, &region, nullptr);
    Owned<fid_mr> registered(error == 0 ? region : nullptr);
    if (error == 0 && (attributes.mr_mode & FI_MR_ENDPOINT) != 0) {
      error = endpoint == nullptr ? EINVAL : -fi_mr_bind(region, &endpoint->fid, 0);
      if (error == 0) error = -fi_mr_enable(region);
    }
    if (error == 0) return registered;
    if (error != FI_ENOKEY) break;
  }
  switch (error) {
    case EFAULT:
    case EINVAL:
    case EOPNOTSUPP:
      return Fault::not_registrable;
    case ENODEV:
    case EIO:
      return Fault::device_lost;
    default:
      break;
  }
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited && device.kind.pins_memory ? Fault::memlock_limit : Fault::resources_exhausted;
}

std::optional<RemoteSpan> span_of(const Device& device, fid_mr& region, Bytes memory) {
  const auto key = fi_mr_key(&region);
  if (key == FI_KEY_NOTAVAIL) return std::nullopt;
  const bool by_address = (device.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const auto address = by_address ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0;
  return RemoteSpan{address, static_cast<std::uint32_t>(memory.size()), key};
}

Fault fault_of(int error) {
  switch (std::abs(error)) {
    case ENODEV:
    case EIO:
      return Fault::device_lost;
    case EADDRINUSE:
    case EACCES:
    case EPERM:
      return Fault::refused;
    case EADDRNOTAVAIL:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ECONNREFUSED:
    case ETIMEDOUT:
    case FI_ENODATA:
      return Fault::address_unreachable;
    default:
      return Fault::resources_exhausted;
  }
}

}  // namespace ciuic::rdma::ofi
