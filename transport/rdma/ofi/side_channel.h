#pragma once
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/// The socket beside an endpoint without connections, for both ends.
namespace ciuic::rdma::ofi {

/// A host that vanishes is noticed within some 10 s: nothing else is said over the socket.
inline void notice_silence(int socket) {
  const int on = 1, idle = 5, between = 1, tries = 5;
  (void)::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

}  // namespace ciuic::rdma::ofi
