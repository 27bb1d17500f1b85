#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "transport/base/bytes.h"
#include "transport/base/result.h"
#include "transport/kafka/types.h"

/// The four codecs of record batches, by their libraries. Any thread; no state is kept.
namespace ciuic::kafka {

enum class Codec : std::int8_t { none = 0, gzip = 1, snappy = 2, lz4 = 3, zstd = 4 };

[[nodiscard]] std::string_view name(Codec codec);
/// "none", "gzip", "snappy", "lz4", "zstd"; nothing for other words.
[[nodiscard]] std::optional<Codec> parse_codec(std::string_view text);

/// The library's own default level.
inline constexpr int default_level = -1'000'000;

/// Appends the compressed form of `plain` to `out`, as Java's clients frame it: gzip; snappy in xerial framing
/// (version 1, big-endian); lz4 frame with independent blocks and header checksum; zstd frame.
/// Errors: UNKNOWN_SERVER_ERROR if a library fails (out of memory).
[[nodiscard]] ResultOf<void, Error> compress(Codec codec, Bytes plain, Buffer& out, int level = default_level);

/// Appends what `packed` holds to `out`; snappy both framed and raw. At most `limit` bytes are produced, and memory for
/// about twice as many asked for, whatever the packed form claims; a claim above `limit` is refused before any is.
/// As Java reads them: all members of a gzip, all streams of a snappy and frames of a zstd, the first frame of an lz4;
/// `limit` holds for their sum. Errors: CORRUPT_MESSAGE (not this codec's bytes, or cut short), MESSAGE_TOO_LARGE (more
/// than `limit`).
[[nodiscard]] ResultOf<void, Error> decompress(Codec codec, Bytes packed, Buffer& out, std::size_t limit);

}  // namespace ciuic::kafka
