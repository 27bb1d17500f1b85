// Small things of rdma_cm and verbs: events, registration and what their errors mean.
#include "transport/rdma/verbs/objects.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/base/log.h"

namespace ciuic::rdma::verbs {

Result<Owned<rdma_event_channel>> make_channel(const Library& library) {
  library.meet_new_devices();
  // Fails with ENODEV or ENOENT where the kernel has no rdma_ucm, or a container no /dev/infiniband.
  Owned<rdma_event_channel> channel(library.rdma_create_event_channel(), Closer{&library});
  if (!channel) return errno == EMFILE || errno == ENOMEM ? Fault::resources_exhausted : Fault::no_device;
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(channel->fd, F_SETFD, FD_CLOEXEC) != 0)
    return Fault::resources_exhausted;
  return channel;
}

std::optional<Event> next_event(const Library& library, rdma_event_channel& channel) {
  rdma_cm_event* raw = nullptr;
  if (library.rdma_get_cm_event(&channel, &raw) != 0) return std::nullopt;
  Event event;
  event.type = raw->event;
  event.id = raw->id;
  event.listening = raw->listen_id;
  event.status = raw->status;
  event.responder_resources = raw->param.conn.responder_resources;
  event.initiator_depth = raw->param.conn.initiator_depth;
  if (raw->param.conn.private_data != nullptr) {
    event.data_bytes = std::min<std::size_t>(raw->param.conn.private_data_len, event.data.size());
    std::memcpy(event.data.data(), raw->param.conn.private_data, event.data_bytes);
  }
  (void)library.rdma_ack_cm_event(raw);
  return event;
}

Result<Owned<rdma_cm_id>> make_id(const Library& library, rdma_event_channel& channel) {
  rdma_cm_id* id = nullptr;
  if (library.rdma_create_id(&channel, &id, nullptr, RDMA_PS_TCP) != 0) return fault_of(errno);
  return Owned<rdma_cm_id>(id, Closer{&library});
}

Result<Owned<rdma_cm_id>> keep_device(const Library& library, Address address) {
  rdma_cm_id* raw = nullptr;
  if (library.rdma_create_id(nullptr, &raw, nullptr, RDMA_PS_TCP) != 0) return fault_of(errno);
  Owned<rdma_cm_id> id(raw, Closer{&library});
  address.set_port(0);
  if (library.rdma_bind_addr(id.get(), address.get()) != 0) return fault_of(errno);
  if (id->verbs == nullptr) return Fault::no_device;
  return id;
}

Fault fault_of(int error) {
  switch (error) {
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
      return Fault::address_unreachable;
    default:
      return Fault::resources_exhausted;
  }
}

namespace {

/// What a refused registration's errno means.
Fault refused_by(int error) {
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
  return limited ? Fault::memlock_limit : Fault::resources_exhausted;
}

}  // namespace

Result<Owned<ibv_mr>> register_memory(const Library& library, ibv_pd& pd, const std::byte* at, std::size_t bytes,
                                      unsigned access) {
  auto* const start = const_cast<std::byte*>(at);
  Owned<ibv_mr> mr(library.ibv_reg_mr_iova2(&pd, start, bytes, reinterpret_cast<std::uintptr_t>(start), access),
                   Closer{&library});
  if (mr) return mr;
  return refused_by(errno);
}

Result<Owned<ibv_mr>> register_device_memory(const Library& library, ibv_pd& pd, const LandingMemory& memory,
                                             unsigned access) {
  if (memory.dma_buf >= 0 && library.ibv_reg_dmabuf_mr != nullptr) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.bytes.data());
    Owned<ibv_mr> mr(library.ibv_reg_dmabuf_mr(&pd, memory.dma_buf_offset, memory.bytes.size(), address, memory.dma_buf,
                                               static_cast<int>(access)),
                     Closer{&library});
    if (mr) return mr;
    log::debug("rdma", "verbs: the card or its driver takes no dma-buf errno={}", errno);
  }
  return register_memory(library, pd, memory.bytes.data(), memory.bytes.size(), access);
}

}  // namespace ciuic::rdma::verbs
