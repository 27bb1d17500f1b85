#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace ciuic {

/// Puts CRC32Cs of neighbouring bytes together without the bytes: for a‖b where b is always of the same size, so that
/// tables serve. `behind(crc32c(a), crc32c(b))` is crc32c(a‖b).
class Crc32cCombine {
 public:
  explicit Crc32cCombine(std::size_t bytes_of_b);

  [[nodiscard]] std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    return tables_[0][a & 255] ^ tables_[1][a >> 8 & 255] ^ tables_[2][a >> 16 & 255] ^ tables_[3][a >> 24] ^ b;
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> tables_{};
};

}  // namespace ciuic
