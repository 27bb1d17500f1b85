#pragma once
#include <cstdint>

#include "transport/base/bytes.h"

namespace ciuic {

/// CRC32C (Castagnoli, RFC 3720), as record batches, slots and grants carry it. `crc32c(b, crc32c(a))` is that of a‖b.
[[nodiscard]] std::uint32_t crc32c(Bytes bytes, std::uint32_t before = 0);

}  // namespace ciuic
