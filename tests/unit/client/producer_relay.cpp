// One thread, poll over all connections: the order of the dice is that of the bytes.
#include "tests/unit/client/producer_relay.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>

namespace ciuic::client::test {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

bool write_all(int to, const char* from, std::size_t size) {
  while (size > 0) {
    const auto sent = ::send(to, from, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace

CuttingRelay::CuttingRelay(std::uint64_t seed, std::uint32_t one_in) : one_in_(one_in), dice_(seed) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no port for the relay");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

CuttingRelay::~CuttingRelay() {
  stop_.store(true);
  thread_.join();
  for (const auto& [one, other] : peer_) ::close(one);
  ::close(listener_);
}

bool CuttingRelay::forward(int from, int to) {
  std::array<char, 4096> piece;
  const auto got = ::recv(from, piece.data(), piece.size(), MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return true;  // the number was another connection's when poll looked
  if (got <= 0) return false;
  auto size = static_cast<std::size_t>(got);
  const auto one_in = one_in_.load();
  const bool cut = one_in != 0 && dice_() % one_in == 0;
  if (cut) {
    cuts_.fetch_add(1);
    size = dice_() % 3 * size / 2;
  }
  return write_all(to, piece.data(), size) && !cut;
}

void CuttingRelay::run() {
  const int on = 1;
  while (!stop_.load()) {
    std::vector<pollfd> wanted{{listener_, POLLIN, 0}};
    for (const auto& [one, other] : peer_) wanted.push_back({one, POLLIN, 0});
    if (::poll(wanted.data(), wanted.size(), 20) <= 0) continue;
    for (const auto& one : wanted) {
      if (one.revents == 0) continue;
      if (one.fd == listener_) {
        const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        const int broker = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const auto address = loopback(target_.load());
        if (client < 0 || ::connect(broker, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
          if (client >= 0) ::close(client);
          ::close(broker);
          continue;
        }
        ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ::setsockopt(broker, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        peer_[client] = broker;
        peer_[broker] = client;
        continue;
      }
      const auto found = peer_.find(one.fd);
      if (found == peer_.end() || forward(one.fd, found->second)) continue;
      const int other = found->second;
      peer_.erase(one.fd);
      peer_.erase(other);
      ::close(one.fd);
      ::close(other);
    }
  }
}

}  // namespace ciuic::client::test
