#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace ciuic::kafka {

/// The protocol's error codes, names as in Kafka's protocol guide in lower case.
enum class ErrorCode : std::int16_t {
#define CIUIC_ERROR(name, code, retriable) name = (code),
#include "transport/kafka/error_code.def"
#undef CIUIC_ERROR
};

/// "UNKNOWN_TOPIC_OR_PARTITION"; "UNKNOWN_SERVER_ERROR" for a number that is no code.
[[nodiscard]] std::string_view name(ErrorCode code);
/// True where a client may send the same request again and hope.
[[nodiscard]] bool retriable(ErrorCode code);

/// An error as a handler answers it: the code, and words for people (may be empty).
struct Error {
  ErrorCode code = ErrorCode::none;
  std::string text{};

  Error() = default;
  Error(ErrorCode error_code) : code(error_code) {}  // NOLINT: a code alone is an error
  Error(ErrorCode error_code, std::string words) : code(error_code), text(std::move(words)) {}
  bool operator==(const Error&) const = default;
};

}  // namespace ciuic::kafka
