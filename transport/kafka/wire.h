#pragma once
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "transport/base/bytes.h"

/// Numbers as Kafka writes them: big-endian, and varints of Protocol Buffers (zigzag where signed).
namespace ciuic::kafka {

template <class T>
concept WireInteger = std::integral<T> && !std::same_as<T, bool>;

/// REQUIRES: sizeof(T) readable bytes at `from`.
template <WireInteger T>
[[nodiscard]] inline T load_be(const std::byte* from) {
  std::make_unsigned_t<T> raw;
  std::memcpy(&raw, from, sizeof raw);
  if constexpr (sizeof(T) == 2) raw = __builtin_bswap16(raw);
  if constexpr (sizeof(T) == 4) raw = __builtin_bswap32(raw);
  if constexpr (sizeof(T) == 8) raw = __builtin_bswap64(raw);
  return static_cast<T>(raw);
}

/// REQUIRES: sizeof(T) writable bytes at `to`.
template <WireInteger T>
inline void store_be(std::byte* to, T value) {
  auto raw = static_cast<std::make_unsigned_t<T>>(value);
  if constexpr (sizeof(T) == 2) raw = __builtin_bswap16(raw);
  if constexpr (sizeof(T) == 4) raw = __builtin_bswap32(raw);
  if constexpr (sizeof(T) == 8) raw = __builtin_bswap64(raw);
  std::memcpy(to, &raw, sizeof raw);
}

/// Sums and differences of numbers that come from outside: they wrap as Java's do, where C++ would be undefined.
[[nodiscard]] constexpr std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
[[nodiscard]] constexpr std::int64_t wrapping_sub(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

[[nodiscard]] constexpr std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
[[nodiscard]] constexpr std::int64_t unzigzag(std::uint64_t raw) {
  return static_cast<std::int64_t>(raw >> 1) ^ -static_cast<std::int64_t>(raw & 1);
}
/// Bytes that `value` takes as an unsigned varint: 1 … 10.
[[nodiscard]] constexpr std::size_t uvarint_size(std::uint64_t value) {
  return (static_cast<std::size_t>(std::bit_width(value | 1)) + 6) / 7;
}
/// Writes `value`; returns the byte after it. REQUIRES: uvarint_size(value) writable bytes.
inline std::byte* store_uvarint(std::byte* to, std::uint64_t value) {
  while (value >= 0x80) {
    *to++ = static_cast<std::byte>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<std::byte>(value);
  return to;
}

/// Reads from bytes that may be anything. After the first read that does not fit, `ok()` is false and every further
/// read gives zero: check once at the end.
class WireReader {
 public:
  explicit WireReader(Bytes bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
  [[nodiscard]] Bytes rest() const { return {at_, left()}; }
  void fail() {
    ok_ = false;
    at_ = end_;
  }

  template <WireInteger T>
  [[nodiscard]] T number() {
    if (left() < sizeof(T)) return fail(), T{};
    const T value = load_be<T>(at_);
    at_ += sizeof(T);
    return value;
  }
  /// At most 5 bytes; more, or bits above 32, is malformed.
  [[nodiscard]] std::uint32_t uvarint() {
    const std::uint64_t value = uvarlong();
    if (value > 0xFFFFFFFFU) return fail(), 0U;
    return static_cast<std::uint32_t>(value);
  }
  [[nodiscard]] std::uint64_t uvarlong() {
    // Nearly all are of one byte.
    if (at_ != end_ && static_cast<std::uint8_t>(*at_) < 0x80) return static_cast<std::uint8_t>(*at_++);
    return uvarlong_of_many();
  }
  [[nodiscard]] std::int32_t varint() {
    const std::int64_t value = varlong();
    if (value != static_cast<std::int32_t>(value)) return fail(), 0;
    return static_cast<std::int32_t>(value);
  }
  [[nodiscard]] std::int64_t varlong() { return unzigzag(uvarlong()); }
  [[nodiscard]] Bytes take(std::size_t count) {
    if (count > left()) return fail(), Bytes{};
    const Bytes taken(at_, count);
    at_ += count;
    return taken;
  }
  void skip(std::size_t count) { (void)take(count); }

 private:
  std::uint64_t uvarlong_of_many() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == end_) break;
      const auto byte = static_cast<std::uint8_t>(*at_++);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }

  const std::byte* at_;
  const std::byte* end_;
  bool ok_ = true;
};

/// Appends to a buffer that it does not own.
class WireWriter {
 public:
  explicit WireWriter(Buffer& out) : out_(out) {}

  template <WireInteger T>
  void number(T value) {
    const auto at = out_.size();
    out_.resize(at + sizeof(T));
    store_be(out_.data() + at, value);
  }
  void uvarint(std::uint64_t value) {
    const auto at = out_.size();
    out_.resize(at + uvarint_size(value));
    store_uvarint(out_.data() + at, value);
  }
  void varint(std::int64_t value) { uvarint(zigzag(value)); }
  void bytes(Bytes bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }

 private:
  Buffer& out_;
};

}  // namespace ciuic::kafka
