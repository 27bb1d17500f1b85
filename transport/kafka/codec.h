#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/result.h"
#include "transport/kafka/frame.h"
#include "transport/kafka/records.h"
#include "transport/kafka/types.h"
#include "transport/kafka/wire.h"

/// Encoding and decoding of the generated messages (<build>/gen/transport/kafka/messages). A message struct has
/// `api_key` (-1 for records and data), `valid_versions`, `flexible_from`, and Apache's defaults when
/// default-constructed. Fields that the version does not carry are neither written nor read. Functions are pure; any
/// thread.
namespace ciuic::kafka {

struct VersionRange {
  std::int16_t min;
  std::int16_t max;
  [[nodiscard]] constexpr bool holds(std::int16_t version) const { return version >= min && version <= max; }
};
inline constexpr std::int16_t never_flexible = std::numeric_limits<std::int16_t>::max();

/// Why bytes are not a message. `what` is a literal.
struct DecodeError {
  const char* what;
};

/// Reads one message that fills `bytes`. Records fields are spans into `bytes`, everything else is copied. Trusts
/// nothing: element counts are capped by the bytes left, memory by 64 times the bytes; bytes left over are an error.
template <class M>
[[nodiscard]] ResultOf<M, DecodeError> decode(Bytes bytes, std::int16_t version);

/// Appends one message. REQUIRES: M::valid_versions.holds(version); a null where the version has none is written empty.
template <class M>
void encode_into(Frame& frame, const M& message, std::int16_t version);

template <class M>
[[nodiscard]] Frame encode(const M& message, std::int16_t version) {
  Frame frame;
  encode_into(frame, message, version);
  return frame;
}

/// What the schemas say of an API; nullptr for a key that has none.
struct ApiInfo {
  std::int16_t key;
  std::string_view name;  // "Fetch"
  VersionRange versions;
  std::int16_t flexible_from;
};
[[nodiscard]] const ApiInfo* find_api(std::int16_t key);

inline constexpr std::int16_t api_versions_key = 18;

/// A request as it came: the header, and the body still encoded. `flexible` tells which header it had.
struct RequestView {
  std::int16_t api_key = 0;
  std::int16_t api_version = 0;
  std::int32_t correlation_id = 0;
  std::optional<std::string_view> client_id{};
  Bytes body{};
};
/// Splits a frame (without its 4-byte length) into header and body; borrows from it. For an API or version that the
/// schemas do not know, only the two keys and the correlation id are read and `body` is empty.
[[nodiscard]] ResultOf<RequestView, DecodeError> split_request(Bytes frame);

/// A response's correlation id and body. `version` is the request's; ApiVersions answers with header v0 always, so that
/// a client whose version the broker does not know can still read it (KIP-511).
struct ResponseView {
  std::int32_t correlation_id;
  Bytes body;
};
[[nodiscard]] ResultOf<ResponseView, DecodeError> split_response(Bytes frame, std::int16_t api_key,
                                                                 std::int16_t version);

namespace detail {
void begin_request(Frame& frame, std::int16_t api_key, std::int16_t version, std::int32_t correlation_id,
                   std::optional<std::string_view> client_id, bool flexible);
void begin_response(Frame& frame, std::int16_t api_key, std::int32_t correlation_id, bool flexible);
/// Writes the 4-byte length in front. REQUIRES: the frame is under 2 GiB.
void finish(Frame& frame);
}  // namespace detail

/// Length, header and body, ready for a socket.
template <class M>
[[nodiscard]] Frame encode_request(std::int32_t correlation_id, std::optional<std::string_view> client_id,
                                   const M& message, std::int16_t version) {
  Frame frame;
  detail::begin_request(frame, M::api_key, version, correlation_id, client_id, version >= M::flexible_from);
  encode_into(frame, message, version);
  detail::finish(frame);
  return frame;
}
template <class M>
[[nodiscard]] Frame encode_response(std::int32_t correlation_id, const M& message, std::int16_t version) {
  Frame frame;
  detail::begin_response(frame, M::api_key, correlation_id, version >= M::flexible_from);
  encode_into(frame, message, version);
  detail::finish(frame);
  return frame;
}

}  // namespace ciuic::kafka
