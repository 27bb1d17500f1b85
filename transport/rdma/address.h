#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/bytes.h"

/// Where providers that cross hosts listen and connect.
namespace ciuic::rdma {

/// An IPv4 or IPv6 address with a port.
struct Address {
  sockaddr_storage storage{};
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] std::string text() const;
  void set_port(std::uint16_t port);
  /// The address alone, most significant byte first.
  [[nodiscard]] Bytes network_bytes() const;

  /// `10.0.0.1:7471`, `[fd00::1]:7471`; without a port: port 0. Nothing: neither.
  [[nodiscard]] static std::optional<Address> parse(std::string_view text);
};
/// Comma-separated; nothing if one of them is none, or there is none at all.
[[nodiscard]] std::optional<std::vector<Address>> parse_addresses(std::string_view text);

/// Addresses of interfaces that are up, IPv4 first; no loopback, no link-local ones. Port 0.
[[nodiscard]] std::vector<Address> host_addresses();

}  // namespace ciuic::rdma
