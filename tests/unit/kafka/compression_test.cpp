#include "transport/kafka/compression.h"

#include <gtest/gtest.h>
#include <lz4frame.h>
#include <snappy.h>
#include <zstd.h>

#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "transport/kafka/wire.h"

namespace ciuic::kafka {
namespace {

constexpr Codec every_codec[] = {Codec::none, Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd};
constexpr std::size_t no_limit = 64 << 20;

/// Half of it compressible, half of it not.
Buffer mixed(std::size_t size) {
  std::mt19937_64 dice(size);
  Buffer bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i / 512) % 2 == 0 ? dice() : i / 4096);
  return bytes;
}

Buffer packed_by(Codec codec, Bytes plain, int level = default_level) {
  Buffer packed;
  const auto done = compress(codec, plain, packed, level);
  EXPECT_TRUE(done) << name(codec);
  return packed;
}

TEST(Compression, WhatGoesInComesOutForEveryCodecAndSize) {
  for (const auto codec : every_codec) {
    for (const std::size_t size : {0U, 1U, 61U, 32768U, 32769U, 65536U, 65537U, 1000000U}) {
      const auto plain = mixed(size);
      const auto packed = packed_by(codec, plain);
      Buffer out = to_buffer(as_bytes("kept"));
      const auto done = decompress(codec, packed, out, no_limit);
      ASSERT_TRUE(done) << name(codec) << " " << size << ": " << done.error().text;
      EXPECT_EQ(as_text(Bytes(out).first(4)), "kept");
      EXPECT_TRUE(std::equal(plain.begin(), plain.end(), out.begin() + 4, out.end())) << name(codec) << " " << size;
    }
  }
}

TEST(Compression, ExactlyTheLimitIsAllowedAndOneByteLessIsNot) {
  for (const auto codec : every_codec) {
    const auto plain = mixed(200'000);
    const auto packed = packed_by(codec, plain);
    Buffer out;
    EXPECT_TRUE(decompress(codec, packed, out, plain.size())) << name(codec);
    out.clear();
    const auto refused = decompress(codec, packed, out, plain.size() - 1);
    ASSERT_TRUE(refused.has_error()) << name(codec);
    EXPECT_EQ(refused.error().code, ErrorCode::message_too_large) << name(codec);
    EXPECT_LE(out.size(), plain.size());
  }
}

TEST(Compression, ABombStopsAtTheLimit) {
  const Buffer zeros(32 << 20);
  for (const auto codec : {Codec::gzip, Codec::lz4, Codec::zstd, Codec::snappy}) {
    const auto packed = packed_by(codec, zeros);
    Buffer out;
    const auto refused = decompress(codec, packed, out, 100'000);
    ASSERT_TRUE(refused.has_error()) << name(codec);
    EXPECT_EQ(refused.error().code, ErrorCode::message_too_large) << name(codec);
    EXPECT_LE(out.capacity(), 400'000U) << name(codec);
  }
}

/// A form of packed bytes: what they hold as Java reads them, and what of it the header claims (a lie or not).
struct Form {
  std::string what;
  Codec codec;
  Buffer packed;
  std::size_t holds;
};

Buffer joined(Bytes first, Bytes second) {
  Buffer out(first.begin(), first.end());
  out.insert(out.end(), second.begin(), second.end());
  return out;
}

Buffer zstd_streamed(Bytes plain) {  // no content size in the frame, as Java's clients write it
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  Buffer out(ZSTD_compressBound(plain.size()) + 64);
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  ZSTD_inBuffer in{plain.data(), plain.size() / 2, 0};
  EXPECT_FALSE(ZSTD_isError(ZSTD_compressStream2(context.get(), &to, &in, ZSTD_e_flush)));
  in.size = plain.size();
  EXPECT_EQ(ZSTD_compressStream2(context.get(), &to, &in, ZSTD_e_end), 0U);
  out.resize(to.pos);
  EXPECT_EQ(ZSTD_getFrameContentSize(out.data(), out.size()), ZSTD_CONTENTSIZE_UNKNOWN);
  return out;
}

Buffer lz4_frame(Bytes plain, bool declare, LZ4F_blockSizeID_t block) {
  LZ4F_preferences_t preferences{};
  preferences.frameInfo.blockMode = LZ4F_blockIndependent;
  preferences.frameInfo.blockSizeID = block;
  preferences.frameInfo.contentSize = declare ? plain.size() : 0;
  Buffer out(LZ4F_compressFrameBound(plain.size(), &preferences));
  out.resize(LZ4F_compressFrame(out.data(), out.size(), plain.data(), plain.size(), &preferences));
  return out;
}

/// XXH32 with seed 0 of fewer than 16 bytes: what an lz4 frame's header is checked by.
std::uint32_t short_xxh32(Bytes bytes) {
  constexpr std::uint32_t p1 = 0x9E3779B1, p2 = 0x85EBCA77, p3 = 0xC2B2AE3D, p4 = 0x27D4EB2F, p5 = 0x165667B1;
  auto hash = p5 + static_cast<std::uint32_t>(bytes.size());
  std::size_t at = 0;
  for (; at + 4 <= bytes.size(); at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + at, 4);
    hash = std::rotl(hash + word * p3, 17) * p4;
  }
  for (; at < bytes.size(); ++at) hash = std::rotl(hash + static_cast<std::uint32_t>(bytes[at]) * p5, 11) * p1;
  hash = (hash ^ hash >> 15) * p2;
  hash = (hash ^ hash >> 13) * p3;
  return hash ^ hash >> 16;
}

std::vector<Form> every_form(Bytes plain) {
  std::vector<Form> forms;
  for (const auto codec : every_codec)
    forms.push_back({"as we write it", codec, packed_by(codec, plain), plain.size()});
  for (const auto codec : {Codec::gzip, Codec::snappy, Codec::zstd}) {
    const auto one = packed_by(codec, plain);
    forms.push_back({"two, one behind the other", codec, joined(one, one), 2 * plain.size()});
  }
  forms.push_back({"no declared size", Codec::zstd, zstd_streamed(plain), plain.size()});
  forms.push_back({"declared, then not", Codec::zstd, joined(packed_by(Codec::zstd, plain), zstd_streamed(plain)),
                   2 * plain.size()});
  const std::string skippable("\x50\x2a\x4d\x18\x03\0\0\0abc", 11);
  forms.push_back({"behind a skippable frame", Codec::zstd, joined(as_bytes(skippable), packed_by(Codec::zstd, plain)),
                   plain.size()});
  for (const auto block : {LZ4F_max64KB, LZ4F_max4MB}) {
    forms.push_back({"declared size", Codec::lz4, lz4_frame(plain, true, block), plain.size()});
    forms.push_back({"no declared size", Codec::lz4, lz4_frame(plain, false, block), plain.size()});
  }
  const auto lz4 = lz4_frame(plain, true, LZ4F_max64KB);
  forms.push_back({"two frames, of which Java reads one", Codec::lz4, joined(lz4, lz4), plain.size()});
  std::string raw;
  snappy::Compress(reinterpret_cast<const char*>(plain.data()), plain.size(), &raw);
  forms.push_back({"raw", Codec::snappy, to_buffer(as_bytes(raw)), plain.size()});
  forms.push_back(
      {"other bytes behind it", Codec::gzip, joined(packed_by(Codec::gzip, plain), as_bytes("behind")), plain.size()});
  return forms;
}

TEST(Compression, TheLimitIsExactForEveryFormAndNoMemoryIsAskedForBeyondIt) {
  for (const bool zeros : {false, true}) {
    const auto plain = zeros ? Buffer(3'000'001) : mixed(200'001);
    for (const auto& form : every_form(plain)) {
      SCOPED_TRACE(std::string(name(form.codec)) + ": " + form.what + (zeros ? ", zeros" : ""));
      Buffer out;
      const auto done = decompress(form.codec, form.packed, out, form.holds);
      ASSERT_TRUE(done) << done.error().text;
      ASSERT_EQ(out.size(), form.holds);
      EXPECT_TRUE(std::equal(plain.begin(), plain.end(), out.begin()));
      for (const std::size_t limit : {form.holds - 1, form.holds / 2, std::size_t{100'000}, std::size_t{0}}) {
        Buffer less;
        const auto refused = decompress(form.codec, form.packed, less, limit);
        ASSERT_TRUE(refused.has_error()) << limit;
        EXPECT_EQ(refused.error().code, ErrorCode::message_too_large) << limit;
        EXPECT_NE(refused.error().text.find(std::to_string(limit)), std::string::npos) << refused.error().text;
        EXPECT_LE(less.capacity(), 2 * limit + 128 * 1024) << limit;
      }
    }
  }
}

TEST(Compression, ASizeThatLiesIsNeverBelieved) {
  const auto plain = mixed(100'000);
  const auto zstd = packed_by(Codec::zstd, plain);  // magic, descriptor, content size in four bytes (one segment)
  const auto lz4 = lz4_frame(plain, true, LZ4F_max64KB);
  const auto set = [](Buffer bytes, std::size_t at, std::uint64_t claim, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<std::byte>(claim >> (8 * i));
    return bytes;
  };
  ASSERT_EQ(static_cast<unsigned>(zstd[4]) >> 5, 5U) << "single segment, a size of four bytes";
  for (const std::uint64_t claim :
       {std::uint64_t{1}, std::uint64_t{99'999}, std::uint64_t{100'001}, std::uint64_t{1} << 31}) {
    Buffer out;
    const auto refused = decompress(Codec::zstd, set(zstd, 5, claim, 4), out, 200'000);
    ASSERT_TRUE(refused.has_error()) << claim;
    EXPECT_LE(out.capacity(), 528'000U) << claim;
    // A frame's header has a checksum in lz4: made right again, so that only the size is wrong.
    auto lied = set(lz4, 6, claim, 8);
    lied[14] = static_cast<std::byte>(short_xxh32(Bytes(lied).subspan(4, 10)) >> 8);
    Buffer unpacked;
    const auto also = decompress(Codec::lz4, lied, unpacked, 200'000);
    ASSERT_TRUE(also.has_error()) << claim;
    EXPECT_LE(unpacked.capacity(), 528'000U) << claim;
  }
  // gzip says its length at its end, modulo 2^32.
  auto gzip = packed_by(Codec::gzip, plain);
  gzip = set(gzip, gzip.size() - 4, 5, 4);
  Buffer out;
  EXPECT_EQ(decompress(Codec::gzip, gzip, out, 200'000).error().code, ErrorCode::corrupt_message);
}

TEST(Compression, WhatJavaDoesNotReadIsCorrupt) {
  Buffer out;
  const auto plain = mixed(1000);
  const std::string skippable("\x50\x2a\x4d\x18\x03\0\0\0abc", 11);
  EXPECT_EQ(decompress(Codec::lz4, joined(as_bytes(skippable), packed_by(Codec::lz4, plain)), out, 0).error().code,
            ErrorCode::corrupt_message);
  EXPECT_EQ(
      decompress(Codec::zstd, joined(packed_by(Codec::zstd, plain), as_bytes("behind")), out, no_limit).error().code,
      ErrorCode::corrupt_message);
}

TEST(Compression, CutShortIsCorruptAtEveryLength) {
  const auto plain = mixed(3000);
  for (const auto codec : {Codec::gzip, Codec::lz4, Codec::zstd}) {
    const auto packed = packed_by(codec, plain);
    for (std::size_t size = 0; size < packed.size(); size += 7) {
      Buffer out;
      const auto refused = decompress(codec, Bytes(packed).first(size), out, no_limit);
      ASSERT_TRUE(refused.has_error()) << name(codec) << " " << size;
      EXPECT_EQ(refused.error().code, ErrorCode::corrupt_message);
    }
  }
}

TEST(Compression, SnappyIsFramedAsJavaFramesIt) {
  const auto packed = packed_by(Codec::snappy, mixed(100'000));
  ASSERT_GT(packed.size(), 20U);
  EXPECT_EQ(as_text(Bytes(packed).first(8)), std::string_view("\x82SNAPPY\0", 8));
  EXPECT_EQ(load_be<std::int32_t>(packed.data() + 8), 1) << "version is big-endian: strict readers check it";
  EXPECT_EQ(load_be<std::int32_t>(packed.data() + 12), 1);
  std::size_t blocks = 0;
  for (std::size_t at = 16; at < packed.size(); ++blocks)
    at += 4 + static_cast<std::size_t>(load_be<std::int32_t>(packed.data() + at));
  EXPECT_EQ(blocks, 4U);
}

TEST(Compression, RawSnappyIsReadToo) {
  const auto plain = mixed(50'000);
  std::string raw;
  snappy::Compress(reinterpret_cast<const char*>(plain.data()), plain.size(), &raw);
  Buffer out;
  ASSERT_TRUE(decompress(Codec::snappy, as_bytes(raw), out, no_limit));
  EXPECT_EQ(out, plain);
}

TEST(Compression, ASnappyLengthThatLiesAsksForNoMemory) {
  // A raw block of six bytes that claims 2^31 - 1 plain ones, below a generous limit.
  const std::string lie("\xff\xff\xff\xff\x07\x00", 6);
  Buffer out;
  const auto refused = decompress(Codec::snappy, as_bytes(lie), out, std::size_t{1} << 40);
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code, ErrorCode::corrupt_message);
  EXPECT_LT(out.capacity(), 1024U);
}

TEST(Compression, AFramedSnappyBlockBeyondTheEndIsCorrupt) {
  auto packed = packed_by(Codec::snappy, mixed(1000));
  store_be(packed.data() + 16, std::int32_t{1 << 30});
  Buffer out;
  EXPECT_EQ(decompress(Codec::snappy, packed, out, no_limit).error().code, ErrorCode::corrupt_message);
  store_be(packed.data() + 16, std::int32_t{-5});
  EXPECT_EQ(decompress(Codec::snappy, packed, out, no_limit).error().code, ErrorCode::corrupt_message);
}

TEST(Compression, Lz4BlocksAreIndependent) {
  const auto packed = packed_by(Codec::lz4, mixed(300'000));
  EXPECT_EQ(load_be<std::uint32_t>(packed.data()), 0x04224D18U);
  EXPECT_NE(static_cast<unsigned>(packed[4]) & 0x20U, 0U) << "the flag of independent blocks";
}

TEST(Compression, ADamagedLz4HeaderIsCorrupt) {
  auto packed = packed_by(Codec::lz4, mixed(1000));
  packed[6] ^= std::byte{1};  // the header's checksum
  Buffer out;
  EXPECT_EQ(decompress(Codec::lz4, packed, out, no_limit).error().code, ErrorCode::corrupt_message);
}

TEST(Compression, LevelsAreUsed) {
  Buffer text;
  for (int i = 0; i < 20'000; ++i) text.push_back(static_cast<std::byte>("the quick brown fox"[(i * i) % 19]));
  for (const auto& [codec, fast, best] : {std::tuple{Codec::gzip, 1, 9}, {Codec::zstd, 1, 19}, {Codec::lz4, 1, 12}}) {
    EXPECT_LE(packed_by(codec, text, best).size(), packed_by(codec, text, fast).size()) << name(codec);
  }
}

TEST(Compression, OtherBytesAreCorruptNotACrash) {
  std::mt19937_64 dice(5);
  for (int round = 0; round < 300; ++round) {
    Buffer noise(dice() % 200);
    for (auto& byte : noise) byte = static_cast<std::byte>(dice());
    for (const auto codec : {Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd}) {
      Buffer out;
      (void)decompress(codec, noise, out, 1 << 20);
      EXPECT_LE(out.size(), std::size_t{1} << 20);
    }
  }
}

TEST(Compression, ANumberThatIsNoCodecIsUnsupported) {
  Buffer out;
  EXPECT_EQ(decompress(static_cast<Codec>(5), {}, out, 10).error().code, ErrorCode::unsupported_compression_type);
  EXPECT_TRUE(compress(static_cast<Codec>(7), {}, out).has_error());
}

TEST(Compression, NamesGoBothWays) {
  for (const auto codec : every_codec) EXPECT_EQ(parse_codec(name(codec)), codec);
  EXPECT_FALSE(parse_codec("brotli"));
}

}  // namespace
}  // namespace ciuic::kafka
