// Keys go where other clients' producers put them.
#include <gtest/gtest.h>

#include "client/core/partitioner.h"

namespace ciuic::client::core {
namespace {

std::int32_t signed_murmur2(std::string_view text) { return static_cast<std::int32_t>(murmur2(as_bytes(text))); }

TEST(Partitioners, Murmur2IsJavas) {
  // From Apache Kafka's UtilsTest.testMurmur2.
  EXPECT_EQ(signed_murmur2("21"), -973932308);
  EXPECT_EQ(signed_murmur2("foobar"), -790332482);
  EXPECT_EQ(signed_murmur2("a-little-bit-long-string"), -985981536);
  EXPECT_EQ(signed_murmur2("a-little-bit-longer-string"), -1486304829);
  EXPECT_EQ(signed_murmur2("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8"), -58897971);
  EXPECT_EQ(signed_murmur2("abc"), 479470107);
}

TEST(Partitioners, AKeyGoesWhereJavaAndLibrdkafkaPutIt) {
  constexpr std::int32_t n = 17;
  const std::optional<Bytes> hejsan = as_bytes("hejsan");
  EXPECT_EQ(partition_of(Partitioner::murmur2_random, as_bytes("foobar"), n), (-790332482 & 0x7fffffff) % n);
  EXPECT_EQ(partition_of(Partitioner::murmur2, as_bytes("foobar"), n), (-790332482 & 0x7fffffff) % n);
  // CRC32 as zlib's, as in librdkafka's unit test of its partitioners.
  EXPECT_EQ(partition_of(Partitioner::consistent, hejsan, n), static_cast<std::int32_t>(0xd077037eU % n));
  EXPECT_EQ(partition_of(Partitioner::consistent_random, hejsan, n), static_cast<std::int32_t>(0xd077037eU % n));
  EXPECT_EQ(partition_of(Partitioner::consistent, as_bytes("this is another string with more length to it perhaps"), n),
            static_cast<std::int32_t>(0xb0150df7U % n));
}

TEST(Partitioners, WithoutAKeyEachDoesAsItsNameSays) {
  constexpr std::int32_t n = 17;
  const std::optional<Bytes> none;
  const std::optional<Bytes> empty = Bytes{};
  EXPECT_FALSE(partition_of(Partitioner::murmur2_random, none, n));
  EXPECT_TRUE(partition_of(Partitioner::murmur2_random, empty, n));
  EXPECT_EQ(partition_of(Partitioner::murmur2, none, n), partition_of(Partitioner::murmur2, empty, n));
  EXPECT_FALSE(partition_of(Partitioner::consistent_random, none, n));
  EXPECT_FALSE(partition_of(Partitioner::consistent_random, empty, n));
  EXPECT_EQ(partition_of(Partitioner::consistent, none, n), 0);
  EXPECT_EQ(partition_of(Partitioner::consistent, empty, n), 0);
  EXPECT_FALSE(partition_of(Partitioner::random, as_bytes("key"), n));
}

}  // namespace
}  // namespace ciuic::client::core
