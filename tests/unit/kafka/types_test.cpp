#include "transport/kafka/types.h"

#include <gtest/gtest.h>

#include <limits>

#include "transport/kafka/wire.h"

namespace ciuic::kafka {
namespace {

TEST(Uuid, PrintsAndParsesAsKafkaDoes) {
  Uuid id;
  for (std::size_t i = 0; i < 16; ++i) id.bytes[i] = static_cast<std::uint8_t>(i * 17);
  EXPECT_EQ(id.to_string(), "ABEiM0RVZneImaq7zN3u_w");
  EXPECT_EQ(Uuid::parse(id.to_string()), id);
  EXPECT_EQ(Uuid{}.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
  EXPECT_TRUE(Uuid{}.is_zero());
}

TEST(Uuid, WordsThatAreNoIdAreRefused) {
  EXPECT_FALSE(Uuid::parse(""));
  EXPECT_FALSE(Uuid::parse("AAAAAAAAAAAAAAAAAAAAA"));
  EXPECT_FALSE(Uuid::parse("AAAAAAAAAAAAAAAAAAAA=="));
  EXPECT_FALSE(Uuid::parse("AAAAAAAAAAAAAAAAAAAAAB")) << "bits beyond the sixteenth byte";
}

TEST(Uuid, RandomOnesDifferAndNeverStartWithADash) {
  std::optional<Uuid> before;
  for (int i = 0; i < 500; ++i) {
    const auto id = Uuid::random();
    EXPECT_NE(id.to_string().front(), '-');
    EXPECT_EQ(id.bytes[6] >> 4, 4);
    EXPECT_NE(before, id);
    EXPECT_NE(std::hash<Uuid>{}(id), std::hash<Uuid>{}(Uuid{}));
    before = id;
  }
}

TEST(Errors, NamesAndRetriabilityByCode) {
  EXPECT_EQ(name(ErrorCode::unknown_topic_or_partition), "UNKNOWN_TOPIC_OR_PARTITION");
  EXPECT_EQ(name(ErrorCode::none), "NONE");
  EXPECT_TRUE(retriable(ErrorCode::not_leader_or_follower));
  EXPECT_FALSE(retriable(ErrorCode::message_too_large));
}

TEST(Errors, ANumberThatIsNoCodeIsTheUnknownError) {
  for (const int number : {-2, 9999, -32768, 32767}) {
    const auto code = static_cast<ErrorCode>(number);
    EXPECT_EQ(name(code), "UNKNOWN_SERVER_ERROR");
    EXPECT_FALSE(retriable(code));
  }
}

TEST(Wire, VarintsOfEveryLengthComeBack) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const std::uint64_t value :
         {std::uint64_t{1} << bit, (std::uint64_t{1} << bit) - 1, ~(std::uint64_t{1} << bit)}) {
      Buffer out;
      WireWriter(out).uvarint(value);
      EXPECT_EQ(out.size(), uvarint_size(value));
      WireReader in(out);
      EXPECT_EQ(in.uvarlong(), value);
      EXPECT_TRUE(in.ok() && in.left() == 0);
      EXPECT_EQ(unzigzag(zigzag(static_cast<std::int64_t>(value))), static_cast<std::int64_t>(value));
    }
  }
}

TEST(Wire, VarintsTooLongOrTooLargeAreRefused) {
  Buffer endless(11, std::byte{0x80});
  WireReader in(endless);
  (void)in.uvarlong();
  EXPECT_FALSE(in.ok());
  Buffer out;
  WireWriter(out).uvarint(std::uint64_t{1} << 32);
  WireReader wide(out);
  (void)wide.uvarint();
  EXPECT_FALSE(wide.ok());
  Buffer ten(9, std::byte{0xFF});
  ten.push_back(std::byte{2});  // bit 64
  WireReader beyond(ten);
  (void)beyond.uvarlong();
  EXPECT_FALSE(beyond.ok());
}

TEST(Wire, AfterAFailureEveryReadIsZero) {
  const Buffer three(3, std::byte{0xFF});
  WireReader in(three);
  EXPECT_EQ(in.number<std::int32_t>(), 0);
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.number<std::int8_t>(), 0);
  EXPECT_TRUE(in.take(1).empty());
  EXPECT_EQ(in.left(), 0U);
}

TEST(Wire, SumsOfForeignNumbersWrap) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(wrapping_add(most, 1), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(wrapping_sub(std::numeric_limits<std::int64_t>::min(), 1), most);
}

}  // namespace
}  // namespace ciuic::kafka
