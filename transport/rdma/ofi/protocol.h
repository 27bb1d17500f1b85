#pragma once
#include <cstdint>
#include <cstring>
#include <optional>

#include "transport/base/bytes.h"

/// What travels in a connection request's private data (docs/protocol.md). At most 55 bytes in a request: libfabric's
/// verbs provider takes one of rdma_cm's 56. The other side may see zeros behind what was sent. Big-endian numbers.
namespace ciuic::rdma::ofi {

inline constexpr std::uint64_t magic = 0x434955494F464931ULL;  // "CIUIOFI1"
inline constexpr std::uint32_t version = 1;

enum class Status : std::uint32_t {
  ok = 0,
  refused = 1,       ///< token unknown, used or expired; too many connections
  incompatible = 2,  ///< another version
  no_room = 3,       ///< the broker has no resources left
};

/// In the connection request.
struct Hello {
  std::uint64_t magic_number;
  std::uint32_t version_number;
  std::uint32_t reserved;
  std::uint8_t token[32];
};
/// In the acceptance or the rejection.
struct Welcome {
  std::uint64_t magic_number;
  std::uint32_t version_number;
  std::uint32_t status;
};
static_assert(sizeof(Hello) == 48 && sizeof(Welcome) == 16);

/// The message at the beginning of private data; nothing if it is shorter.
template <class Message>
[[nodiscard]] std::optional<Message> parse(Bytes data) {
  Message message;
  if (data.size() < sizeof message) return std::nullopt;
  std::memcpy(&message, data.data(), sizeof message);
  return message;
}

}  // namespace ciuic::rdma::ofi
