#pragma once
#include <cstdint>
#include <cstring>
#include <optional>

#include "transport/base/bytes.h"

/// What travels in rdma_cm's private data (docs/protocol.md). At most 56 bytes in a request; the other side may see
/// zeros behind what was sent. Big-endian numbers: ends may differ.
namespace ciuic::rdma::verbs {

inline constexpr std::uint64_t magic = 0x4349554956524231ULL;  // "CIUIVRB1"
inline constexpr std::uint32_t version = 1;

enum class Status : std::uint32_t {
  ok = 0,
  refused = 1,       ///< token unknown, used or expired; too many connections
  incompatible = 2,  ///< another version
  no_room = 3,       ///< the broker's device or host has no resources left
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
  std::uint32_t rail;  ///< which of a region's keys opens it over this connection
  std::uint32_t reserved;
};
static_assert(sizeof(Hello) == 48 && sizeof(Welcome) == 24);

/// The message at the beginning of private data; nothing if it is shorter.
template <class Message>
[[nodiscard]] std::optional<Message> parse(const void* data, std::size_t length) {
  Message message;
  if (data == nullptr || length < sizeof message) return std::nullopt;
  std::memcpy(&message, data, sizeof message);
  return message;
}

/// A region has one 32-bit key a rail: the span's 64-bit key holds both, rail 0 in its low half.
inline constexpr std::size_t rails_max = 2;
[[nodiscard]] constexpr std::uint32_t rkey_of(std::uint64_t key, std::uint32_t rail) {
  return static_cast<std::uint32_t>(key >> (32 * rail));
}

}  // namespace ciuic::rdma::verbs
