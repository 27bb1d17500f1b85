#include "transport/kafka/compression.h"

#include <gtest/gtest.h>
#include <lz4frame.h>
#include <snappy.h>

#include <random>
#include <string>
#include <tuple>

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
