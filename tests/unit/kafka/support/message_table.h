#pragma once
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string_view>

#include "transport/base/bytes.h"
#include "transport/kafka/codec.h"

/// Every generated message by name, so that one test body runs over all of them.
namespace ciuic::kafka::testing {

enum class MessageKind { request, response, data, header, metadata, coordinator_key, coordinator_value };

/// What decoding some bytes came to.
struct Again {
  const char* error = nullptr;  // why decoding refused; the rest is then empty
  Buffer bytes{};               // encoded again
  bool stable = false;          // decoding these gives an equal message
};

struct MessageCase {
  std::string_view name;
  MessageKind kind;
  std::int16_t api_key;
  VersionRange versions;
  std::int16_t flexible_from;
  Again (*again)(Bytes bytes, std::int16_t version);
  /// Decodes only; for measuring what it costs.
  bool (*decodes)(Bytes bytes, std::int16_t version);
  /// A message with Apache's defaults, encoded.
  Buffer (*defaults)(std::int16_t version);
  /// A random message of this version, encoded; nothing if decoding did not give back an equal one.
  std::optional<Buffer> (*random)(std::mt19937_64& dice, std::int16_t version);
};

[[nodiscard]] std::span<const MessageCase> every_message();
[[nodiscard]] const MessageCase* find_message(std::string_view name);

}  // namespace ciuic::kafka::testing
