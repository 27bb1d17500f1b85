// The first byte chooses the codec (and whether the rest is packed first, which must then come back), the rest is
// input.
#include "transport/kafka/compression.h"

#include <cstdlib>

using namespace ciuic;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t limit = 1 << 20;
  if (size == 0) return 0;
  const auto codec = static_cast<kafka::Codec>(data[0] & 7);
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  Buffer out;
  if ((data[0] & 8) == 0) {
    (void)kafka::decompress(codec, input, out, limit);
    if (out.size() > limit) std::abort();
    return 0;
  }
  Buffer packed;
  if (!kafka::compress(codec, input, packed)) return 0;
  if (!kafka::decompress(codec, packed, out, limit + input.size())) std::abort();
  if (as_text(out) != as_text(input)) std::abort();
  return 0;
}
