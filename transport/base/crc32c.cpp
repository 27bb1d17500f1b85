#include "transport/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

namespace ciuic {

std::uint32_t crc32c(Bytes bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  while (!bytes.empty()) {
    // isa-l takes an int length and a non-const pointer that it only reads.
    const auto piece = std::min<std::size_t>(bytes.size(), std::numeric_limits<int>::max());
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data())), static_cast<int>(piece),
                      crc);
    bytes = bytes.subspan(piece);
  }
  return ~crc;
}

}  // namespace ciuic
