#pragma once
#include <cstdint>
#include <cstring>
#include <optional>

#include "transport/base/bytes.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/provider.h"

/// The shm handshake, as it lies in SOCK_SEQPACKET messages (docs/protocol.md). Both ends are on one host: native
/// order.
namespace ciuic::rdma::shm {

inline constexpr std::uint64_t magic = 0x314d485343495543ULL;  // "CUICSHM1" read as little-endian
inline constexpr std::uint32_t version = 1;

enum class Status : std::uint32_t {
  ok = 0,
  refused = 1,        ///< token unknown, used, expired; too many connections
  incompatible = 2,   ///< another version
  unknown_key = 3,    ///< no such region in this connection's domain
  no_descriptor = 4,  ///< the broker could not open one: its descriptors are used up, or /proc is not mounted
};

/// Client's first message.
struct Hello {
  std::uint64_t magic_number = magic;
  std::uint32_t version_number = version;
  std::uint32_t reserved = 0;
  std::uint8_t token[32]{};
};
/// The answer to it. Unless status is ok the broker closes.
struct Welcome {
  std::uint64_t magic_number = magic;
  std::uint32_t version_number = version;
  Status status = Status::ok;
};
/// Client: what is this key?
struct Ask {
  std::uint32_t kind = 1;
  std::uint32_t reserved = 0;
  std::uint64_t key = 0;
};
/// Broker: it is `length` bytes at `offset` of memfd `backing`. The descriptor comes with the first answer that names
/// it.
struct Answer {
  std::uint32_t kind = 2;
  Status status = Status::ok;
  std::uint64_t key = 0;
  std::uint64_t backing = 0;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t has_descriptor = 0;
};
static_assert(sizeof(Hello) == 48 && sizeof(Welcome) == 16 && sizeof(Ask) == 16 && sizeof(Answer) == 40);

/// The bytes of exactly one message as its struct; nothing for any other length.
template <class Message>
[[nodiscard]] std::optional<Message> parse(Bytes bytes) {
  Message message;
  if (bytes.size() != sizeof message) return std::nullopt;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

/// What a region's key means, told by the domain.
struct Known {
  std::shared_ptr<const Backing> backing;
  std::uint64_t offset;
  std::uint32_t length;
};
/// The broker's table of one principal. Any thread.
class KeyTable : public Domain {
 public:
  [[nodiscard]] virtual std::optional<Known> find(std::uint64_t key) const = 0;
};

[[nodiscard]] const Caps& shm_caps();
[[nodiscard]] Result<std::unique_ptr<Listener>> listen(const ListenOptions& options, const Clock& clock);
[[nodiscard]] Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                                        const ConnectOptions& options, const Clock& clock);

}  // namespace ciuic::rdma::shm
