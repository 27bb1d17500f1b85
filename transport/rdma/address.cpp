// IP addresses as text and back, and those of this host.
#include "transport/rdma/address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstring>

namespace ciuic::rdma {

void Address::set_port(std::uint16_t port) {
  if (storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
}

std::string Address::text() const {
  std::array<char, INET6_ADDRSTRLEN> name{};
  if (storage.ss_family == AF_INET6) {
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&storage);
    ::inet_ntop(AF_INET6, &in->sin6_addr, name.data(), name.size());
    return fmt::format("[{}]:{}", name.data(), ntohs(in->sin6_port));
  }
  const auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
  ::inet_ntop(AF_INET, &in->sin_addr, name.data(), name.size());
  return fmt::format("{}:{}", name.data(), ntohs(in->sin_port));
}

Bytes Address::network_bytes() const {
  if (storage.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
    return std::as_bytes(std::span(in.s6_addr));
  }
  return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, 1));
}

std::optional<Address> Address::parse(std::string_view text) {
  constexpr std::size_t longest = 80;
  if (text.empty() || text.size() > longest) return std::nullopt;
  std::string host;
  std::string_view rest;
  const bool v6 = text.front() == '[';
  if (v6) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else {
    const auto colon = text.find(':');
    host = text.substr(0, colon);
    if (colon != std::string_view::npos) rest = text.substr(colon);
  }
  std::uint16_t port = 0;
  if (!rest.empty()) {
    if (rest.front() != ':' || rest.size() == 1) return std::nullopt;
    const auto* end = rest.data() + rest.size();
    const auto [stopped, error] = std::from_chars(rest.data() + 1, end, port);
    if (error != std::errc() || stopped != end) return std::nullopt;
  }
  Address address;
  if (v6) {
    auto* in = reinterpret_cast<sockaddr_in6*>(&address.storage);
    in->sin6_family = AF_INET6;
    if (::inet_pton(AF_INET6, host.c_str(), &in->sin6_addr) != 1) return std::nullopt;
  } else {
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    in->sin_family = AF_INET;
    if (::inet_pton(AF_INET, host.c_str(), &in->sin_addr) != 1) return std::nullopt;
  }
  address.set_port(port);
  return address;
}

std::optional<std::vector<Address>> parse_addresses(std::string_view text) {
  std::vector<Address> all;
  while (true) {
    const auto comma = text.find(',');
    const auto one = Address::parse(text.substr(0, comma));
    if (!one) return std::nullopt;
    all.push_back(*one);
    if (comma == std::string_view::npos) return all;
    text.remove_prefix(comma + 1);
  }
}

std::vector<Address> host_addresses() {
  std::vector<Address> all;
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return all;
  for (const auto family : {AF_INET, AF_INET6}) {
    for (const auto* one = interfaces; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || (one->ifa_flags & IFF_UP) == 0 ||
          (one->ifa_flags & IFF_LOOPBACK) != 0)
        continue;
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr))
        continue;
      Address address;
      std::memcpy(&address.storage, one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      address.set_port(0);
      all.push_back(address);
    }
  }
  ::freeifaddrs(interfaces);
  return all;
}

}  // namespace ciuic::rdma
