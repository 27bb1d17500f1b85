#include "transport/kafka/types.h"

#include <sys/random.h>

#include <cstring>

namespace {
constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
}

std::size_t std::hash<ciuic::kafka::Uuid>::operator()(const ciuic::kafka::Uuid& id) const noexcept {
  std::size_t high = 0;
  std::size_t low = 0;
  std::memcpy(&high, id.bytes.data(), 8);
  std::memcpy(&low, id.bytes.data() + 8, 8);
  return high ^ (low * 0x9E3779B97F4A7C15ULL);
}

namespace ciuic::kafka {

std::string Uuid::to_string() const {
  std::string text;
  text.reserve(22);
  std::uint32_t bits = 0;
  int held = 0;
  for (const auto byte : bytes) {
    bits = (bits << 8) | byte;
    held += 8;
    while (held >= 6) {
      held -= 6;
      text += alphabet[(bits >> held) & 63];
    }
  }
  text += alphabet[(bits << (6 - held)) & 63];
  return text;
}

std::optional<Uuid> Uuid::parse(std::string_view text) {
  if (text.size() != 22) return std::nullopt;
  Uuid id;
  std::uint32_t bits = 0;
  int held = 0;
  std::size_t at = 0;
  for (const char c : text) {
    const auto digit = alphabet.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held >= 8) {
      held -= 8;
      id.bytes[at++] = static_cast<std::uint8_t>(bits >> held);
    }
  }
  if ((bits & ((1U << held) - 1)) != 0) return std::nullopt;  // the last character has four bits of nothing
  return id;
}

Uuid Uuid::random() {
  Uuid id;
  do {
    // 16 bytes are never cut short once the kernel's pool is up; before, the call waits.
    while (::getrandom(id.bytes.data(), id.bytes.size(), 0) != static_cast<ssize_t>(id.bytes.size())) {
    }
    id.bytes[6] = static_cast<std::uint8_t>((id.bytes[6] & 0x0F) | 0x40);
    id.bytes[8] = static_cast<std::uint8_t>((id.bytes[8] & 0x3F) | 0x80);
  } while ((id.bytes[0] >> 2) == 62);  // '-' first: command lines take it for an option (KAFKA-9774)
  return id;
}

}  // namespace ciuic::kafka
