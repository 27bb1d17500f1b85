#pragma once
#include <endian.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "transport/base/bytes.h"

/// What travels as active messages (docs/protocol.md): the header below, and for `key` the packed rkey as data.
/// Big-endian numbers.
namespace ciuic::rdma::ucx {

inline constexpr std::uint64_t magic = 0x434955494F554331ULL;  // "CIUIOUC1"
inline constexpr std::uint32_t version = 1;

/// UCX's id of an active message.
enum class Kind : unsigned {
  hello = 1,    ///< reader: Hello
  welcome = 2,  ///< broker: Welcome
  ask = 3,      ///< reader: KeyWord, "what opens it?"
  key = 4,      ///< broker: KeyAnswer
  forget = 5,   ///< broker: KeyWord, "it ends"
  forgot = 6,   ///< reader: KeyWord, "no READ by it is under way, none will be"
};

enum class Status : std::uint32_t {
  ok = 0,
  refused = 1,       ///< token unknown, used or expired; too many connections; of a key: none of yours
  incompatible = 2,  ///< another version
  no_room = 3,       ///< the broker has no resources left
};

struct Hello {
  std::uint64_t magic_number;
  std::uint32_t version_number;
  std::uint32_t reserved;
  std::uint8_t token[32];
};
struct Welcome {
  std::uint64_t magic_number;
  std::uint32_t version_number;
  std::uint32_t status;
};
struct KeyWord {
  std::uint64_t key;
};
struct KeyAnswer {
  std::uint64_t key;
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t status;
};
static_assert(sizeof(Hello) == 48 && sizeof(Welcome) == 16 && sizeof(KeyWord) == 8 && sizeof(KeyAnswer) == 24);

/// The message that a header is; nothing if it has another length.
template <class Message>
[[nodiscard]] std::optional<Message> parse(Bytes data) {
  Message message;
  if (data.size() != sizeof message) return std::nullopt;
  std::memcpy(&message, data.data(), sizeof message);
  return message;
}

}  // namespace ciuic::rdma::ucx
