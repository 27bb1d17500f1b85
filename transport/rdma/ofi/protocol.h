#pragma once
#include <endian.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "transport/base/bytes.h"
#include "transport/rdma/fault.h"

/// What travels (docs/protocol.md), in a connection request's private data, or beside an endpoint without connections
/// over a socket: see further down.
/// At most 55 bytes in a request: libfabric's
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

[[nodiscard]] inline Fault fault_of(Status refusal) {
  switch (refusal) {
    case Status::refused:
      return Fault::refused;
    case Status::no_room:
      return Fault::resources_exhausted;
    default:
      return Fault::incompatible;
  }
}

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

/// Endpoints without connections: over a socket that stays open as long as the reader may read.
inline constexpr std::uint64_t rdm_magic = 0x434955494F465231ULL;  // "CIUIOFR1"
inline constexpr std::size_t name_bytes_max = 128;
struct RdmHello {
  std::uint64_t magic_number;
  std::uint32_t version_number;
  std::uint32_t name_bytes;
  std::uint8_t token[32];
  std::uint8_t name[name_bytes_max];  ///< of the reader's endpoint, as libfabric has it
};
struct RdmWelcome {
  std::uint64_t magic_number;
  std::uint32_t version_number;
  std::uint32_t status;
  std::uint64_t sample_address;  ///< what to read first: it must hold `sample`, or the way is none
  std::uint64_t sample_key;
  std::uint8_t sample[32];
  std::uint32_t name_bytes;
  std::uint32_t reserved;
  std::uint8_t name[name_bytes_max];  ///< of the broker's endpoint
};
static_assert(sizeof(RdmHello) == 176 && sizeof(RdmWelcome) == 200);

/// The name that a message holds; nothing if it is longer than there is room.
template <class Message>
[[nodiscard]] std::optional<Bytes> name_in(const Message& message) {
  const auto length = be32toh(message.name_bytes);
  if (length == 0 || length > name_bytes_max) return std::nullopt;
  return std::as_bytes(std::span(message.name)).first(length);
}

/// The message at the beginning of private data; nothing if it is shorter.
template <class Message>
[[nodiscard]] std::optional<Message> parse(Bytes data) {
  Message message;
  if (data.size() < sizeof message) return std::nullopt;
  std::memcpy(&message, data.data(), sizeof message);
  return message;
}

}  // namespace ciuic::rdma::ofi
