#include "transport/kafka/compression.h"

#include <lz4frame.h>
#include <snappy.h>
#include <sys/uio.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "transport/kafka/wire.h"

namespace ciuic::kafka {
namespace {

constexpr std::array<std::string_view, 5> names{"none", "gzip", "snappy", "lz4", "zstd"};
constexpr std::size_t step_bytes = 64 * 1024;
constexpr std::size_t step_bytes_max = 1 << 30;  // zlib counts in 32 bits

Error corrupt(const char* what) { return {ErrorCode::corrupt_message, what}; }
Error too_large(std::size_t limit) {
  return {ErrorCode::message_too_large, "records unpack to more than " + std::to_string(limit) + " bytes"};
}
Error failed(const char* what) { return {ErrorCode::unknown_server_error, what}; }

/// Grows `out` for a decoder that writes piece by piece; what was not used is given back by `shrink`.
class Growing {
 public:
  Growing(Buffer& out, std::size_t limit) : out_(out), start_(out.size()), limit_(limit), end_(out.size()) {}
  /// Room to write into, or empty when the limit is reached.
  MutableBytes room() {
    const auto used = end_ - start_;
    if (used >= limit_) return {};
    const auto want = std::min(limit_ - used, std::clamp(used, step_bytes, step_bytes_max));
    if (out_.size() < end_ + want) out_.resize(end_ + want);
    return MutableBytes(out_).subspan(end_, want);
  }
  void wrote(std::size_t bytes) { end_ += bytes; }
  [[nodiscard]] std::size_t used() const { return end_ - start_; }
  void shrink() { out_.resize(end_); }

 private:
  Buffer& out_;
  std::size_t start_;
  std::size_t limit_;
  std::size_t end_;
};

// --- gzip ---

ResultOf<void, Error> gzip_compress(Bytes plain, Buffer& out, int level) {
  z_stream stream{};
  if (deflateInit2(&stream, level == default_level ? Z_DEFAULT_COMPRESSION : level, Z_DEFLATED, 15 + 16, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return failed("gzip cannot start");
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, deflateEnd);
  const auto at = out.size();
  out.resize(at + deflateBound(&stream, plain.size()) + 64);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data() + at);
  stream.avail_out = static_cast<uInt>(out.size() - at);
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) return failed("gzip failed");
  out.resize(at + stream.total_out);
  return {};
}

ResultOf<void, Error> gzip_decompress(Bytes packed, Buffer& out, std::size_t limit) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return failed("gzip cannot start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  Growing growing(out, limit);
  for (;;) {
    const auto room = growing.room();
    // One byte beyond the limit tells "exactly the limit" from "more than it".
    Bytef beyond = 0;
    stream.next_out = room.empty() ? &beyond : reinterpret_cast<Bytef*>(room.data());
    stream.avail_out = room.empty() ? 1 : static_cast<uInt>(room.size());
    const auto before = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    const auto made = before - stream.avail_out;
    if (room.empty() && made != 0) return too_large(limit);
    growing.wrote(made);
    if (status == Z_STREAM_END) {
      // Java reads the next member too, and lets other bytes behind the last one be.
      const bool another = stream.avail_in >= 2 && stream.next_in[0] == 0x1f && stream.next_in[1] == 0x8b;
      if (another && inflateReset(&stream) == Z_OK) continue;
      growing.shrink();
      return {};
    }
    if (status != Z_OK || (made == 0 && stream.avail_in == 0)) return corrupt("gzip: not a whole gzip stream");
  }
}

// --- snappy ---

constexpr std::array<unsigned char, 8> xerial_magic{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
constexpr std::size_t xerial_header = 16;
constexpr std::size_t xerial_block = 32 * 1024;  // what Java's SnappyOutputStream cuts

ResultOf<void, Error> snappy_compress(Bytes plain, Buffer& out) {
  WireWriter writer(out);
  writer.bytes(std::as_bytes(std::span(xerial_magic)));
  writer.number(std::int32_t{1});
  writer.number(std::int32_t{1});
  for (std::size_t at = 0; at < plain.size(); at += xerial_block) {
    const auto block = plain.subspan(at, std::min(xerial_block, plain.size() - at));
    const auto length_at = out.size();
    out.resize(length_at + 4 + snappy::MaxCompressedLength(block.size()));
    std::size_t length = 0;
    snappy::RawCompress(reinterpret_cast<const char*>(block.data()), block.size(),
                        reinterpret_cast<char*>(out.data() + length_at + 4), &length);
    store_be(out.data() + length_at, static_cast<std::int32_t>(length));
    out.resize(length_at + 4 + length);
  }
  return {};
}

ResultOf<void, Error> snappy_block(Bytes block, Buffer& out, std::size_t start, std::size_t limit) {
  const auto* data = reinterpret_cast<const char*>(block.data());
  std::size_t plain = 0;
  if (!snappy::GetUncompressedLength(data, block.size(), &plain)) return corrupt("snappy: no length");
  if (plain > limit - (out.size() - start)) return too_large(limit);
  // Snappy packs at most 64 bytes into three or so: a larger claim is a lie, seen before memory is asked for.
  if (plain / 64 > block.size()) return corrupt("snappy: the length claimed cannot be in these bytes");
  const auto at = out.size();
  out.resize(at + plain);
  // Bounded by what was allocated and not by the length in the bytes, which may lie in memory that changes under us.
  const iovec room{out.data() + at, plain};
  if (!snappy::RawUncompressToIOVec(data, block.size(), &room, 1)) {
    return corrupt("snappy: malformed block");
  }
  return {};
}

bool xerial_begins(Bytes packed) {
  return packed.size() >= xerial_header && std::memcmp(packed.data(), xerial_magic.data(), xerial_magic.size()) == 0;
}

ResultOf<void, Error> snappy_decompress(Bytes packed, Buffer& out, std::size_t limit) {
  if (!xerial_begins(packed)) {
    return snappy_block(packed, out, out.size(), limit);
  }
  const auto start = out.size();
  WireReader reader(packed);
  while (reader.left() > 0) {
    if (xerial_begins(reader.rest())) {  // at the front, and where streams were put one behind the other
      (void)reader.take(xerial_header);
      continue;
    }
    const auto length = reader.number<std::int32_t>();
    if (length < 0) return corrupt("snappy: a block length is negative");
    const auto block = reader.take(static_cast<std::size_t>(length));
    if (!reader.ok()) return corrupt("snappy: a block is cut short");
    if (auto done = snappy_block(block, out, start, limit); !done) return done;
  }
  return {};
}

// --- lz4 ---

ResultOf<void, Error> lz4_compress(Bytes plain, Buffer& out, int level) {
  LZ4F_preferences_t preferences{};
  preferences.frameInfo.blockMode = LZ4F_blockIndependent;  // Java's reader refuses dependent blocks
  preferences.frameInfo.blockSizeID = LZ4F_max64KB;
  preferences.compressionLevel = level == default_level ? 0 : level;
  const auto at = out.size();
  out.resize(at + LZ4F_compressFrameBound(plain.size(), &preferences));
  const auto made = LZ4F_compressFrame(out.data() + at, out.size() - at, plain.data(), plain.size(), &preferences);
  if (LZ4F_isError(made)) return failed("lz4 failed");
  out.resize(at + made);
  return {};
}

ResultOf<void, Error> lz4_decompress(Bytes packed, Buffer& out, std::size_t limit) {
  LZ4F_dctx* raw = nullptr;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&raw, LZ4F_VERSION))) return failed("lz4 cannot start");
  const std::unique_ptr<LZ4F_dctx, LZ4F_errorCode_t (*)(LZ4F_dctx*)> context(raw, LZ4F_freeDecompressionContext);
  LZ4F_frameInfo_t info{};
  std::size_t header = packed.size();
  if (LZ4F_isError(LZ4F_getFrameInfo(context.get(), &info, packed.data(), &header)))
    return corrupt("lz4: malformed frame");
  if (info.frameType != LZ4F_frame) return corrupt("lz4: a skippable frame, which Java does not read");
  if (info.contentSize > limit) return too_large(limit);
  packed = packed.subspan(header);
  Growing growing(out, limit);
  for (std::size_t hint = 1; hint != 0;) {
    const auto room = growing.room();
    std::byte beyond{};
    std::size_t made = room.empty() ? 1 : room.size();
    std::size_t taken = packed.size();
    hint = LZ4F_decompress(context.get(), room.empty() ? &beyond : room.data(), &made, packed.data(), &taken, nullptr);
    if (LZ4F_isError(hint)) return corrupt("lz4: malformed frame");
    if (room.empty() && made != 0) return too_large(limit);
    growing.wrote(made);
    packed = packed.subspan(taken);
    if (hint != 0 && made == 0 && taken == 0) return corrupt("lz4: the frame is cut short");
  }
  growing.shrink();
  return {};
}

// --- zstd ---

ResultOf<void, Error> zstd_compress(Bytes plain, Buffer& out, int level) {
  const auto at = out.size();
  out.resize(at + ZSTD_compressBound(plain.size()));
  const auto made = ZSTD_compress(out.data() + at, out.size() - at, plain.data(), plain.size(),
                                  level == default_level ? ZSTD_CLEVEL_DEFAULT : level);
  if (ZSTD_isError(made)) return failed("zstd failed");
  out.resize(at + made);
  return {};
}

ResultOf<void, Error> zstd_decompress(Bytes packed, Buffer& out, std::size_t limit) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (!context) return failed("zstd cannot start");
  Growing growing(out, limit);
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  for (std::size_t hint = 0; hint != 0 || in.pos == 0 || in.pos < in.size;) {
    if (hint == 0) {  // a frame begins
      const auto claimed = ZSTD_getFrameContentSize(packed.data() + in.pos, in.size - in.pos);
      const bool known = claimed != ZSTD_CONTENTSIZE_UNKNOWN && claimed != ZSTD_CONTENTSIZE_ERROR;
      if (known && claimed > limit - growing.used()) return too_large(limit);
    }
    const auto room = growing.room();
    std::byte beyond{};
    ZSTD_outBuffer to{room.empty() ? &beyond : room.data(), room.empty() ? 1 : room.size(), 0};
    const auto taken = in.pos;
    hint = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(hint)) return corrupt("zstd: malformed frame");
    if (room.empty() && to.pos != 0) return too_large(limit);
    growing.wrote(to.pos);
    if (hint != 0 && to.pos == 0 && in.pos == taken && in.pos == in.size)
      return corrupt("zstd: the frame is cut short");
  }
  growing.shrink();
  return {};
}

}  // namespace

std::string_view name(Codec codec) { return names[static_cast<std::size_t>(codec)]; }

std::optional<Codec> parse_codec(std::string_view text) {
  const auto* const found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<Codec>(found - names.begin());
}

ResultOf<void, Error> compress(Codec codec, Bytes plain, Buffer& out, int level) {
  switch (codec) {
    case Codec::none:
      out.insert(out.end(), plain.begin(), plain.end());
      return {};
    case Codec::gzip:
      return gzip_compress(plain, out, level);
    case Codec::snappy:
      return snappy_compress(plain, out);
    case Codec::lz4:
      return lz4_compress(plain, out, level);
    case Codec::zstd:
      return zstd_compress(plain, out, level);
  }
  return failed("unknown codec");
}

ResultOf<void, Error> decompress(Codec codec, Bytes packed, Buffer& out, std::size_t limit) {
  switch (codec) {
    case Codec::none:
      if (packed.size() > limit) return too_large(limit);
      out.insert(out.end(), packed.begin(), packed.end());
      return {};
    case Codec::gzip:
      return gzip_decompress(packed, out, limit);
    case Codec::snappy:
      return snappy_decompress(packed, out, limit);
    case Codec::lz4:
      return lz4_decompress(packed, out, limit);
    case Codec::zstd:
      return zstd_decompress(packed, out, limit);
  }
  return {ErrorCode::unsupported_compression_type, "the codec number is none of Kafka's"};
}

}  // namespace ciuic::kafka
