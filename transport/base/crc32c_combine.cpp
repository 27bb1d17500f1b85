// A CRC is linear: zeros behind it multiply it by a matrix of bits. Squaring the matrix of one zero bit gives those of
// 2, 4, … (as zlib's crc32_combine does).
#include "transport/base/crc32c_combine.h"

#include <bit>

namespace ciuic {

namespace {

using Matrix = std::array<std::uint32_t, 32>;  // what each bit of a CRC becomes

std::uint32_t times(const Matrix& matrix, std::uint32_t crc) {
  std::uint32_t product = 0;
  for (; crc != 0; crc &= crc - 1) product ^= matrix[static_cast<std::size_t>(std::countr_zero(crc))];
  return product;
}

Matrix times(const Matrix& left, const Matrix& right) {
  Matrix product{};
  for (std::size_t bit = 0; bit < 32; ++bit) product[bit] = times(left, right[bit]);
  return product;
}

}  // namespace

Crc32cCombine::Crc32cCombine(std::size_t bytes_of_b) {
  Matrix power{};  // of 1 zero bit, then 2, 4, …
  power[0] = 0x82f63b78;
  for (std::size_t bit = 1; bit < 32; ++bit) power[bit] = 1U << (bit - 1);
  for (int doubling = 0; doubling < 3; ++doubling) power = times(power, power);
  Matrix all{};
  for (std::size_t bit = 0; bit < 32; ++bit) all[bit] = 1U << bit;
  for (; bytes_of_b != 0; bytes_of_b >>= 1, power = times(power, power))
    if ((bytes_of_b & 1) != 0) all = times(power, all);
  for (std::size_t byte = 0; byte < 4; ++byte)
    for (std::uint32_t value = 0; value < 256; ++value) tables_[byte][value] = times(all, value << (8 * byte));
}

}  // namespace ciuic
