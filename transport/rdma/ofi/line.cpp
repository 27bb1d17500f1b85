// What both kinds of line have.
#include "transport/rdma/ofi/line.h"

#include <sys/epoll.h>

#include <algorithm>

namespace ciuic::rdma::ofi {

Result<void> Line::watch(std::initializer_list<int> descriptors) {
  news_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!news_) return Fault::resources_exhausted;
  for (const int each : descriptors) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    if (::epoll_ctl(news_.get(), EPOLL_CTL_ADD, each, &wanted) != 0) return Fault::resources_exhausted;
  }
  return {};
}

Caps caps_of(const Device& device) {
  auto caps = device.kind.caps;
  const auto& info = *device.info;
  caps.reads_outstanding_max =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(info.tx_attr->size, 1, caps.reads_outstanding_max));
  caps.read_bytes_max =
      static_cast<std::uint32_t>(std::min<std::size_t>(info.ep_attr->max_msg_size, caps.read_bytes_max));
  return caps;
}

}  // namespace ciuic::rdma::ofi
