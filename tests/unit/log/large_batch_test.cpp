// Batches that unpack to more than they look: how much they may, where that is found out, and who waits for it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using kafka::Codec;
using kafka::ErrorCode;
using testing::LogWorld;
using testing::make_batch;

constexpr Codec packing[] = {Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd};

std::size_t unpacked_size(Bytes bytes) {
  const auto batch = kafka::RecordBatchView::parse(bytes);
  Buffer scratch;
  return kafka::RecordReader::open(*batch, scratch, 1U << 30)->plain().size();
}

class LargeBatch : public ::testing::TestWithParam<bool> {
 protected:
  LargeBatch() {
    if (GetParam()) world.checks = &world.io;
    world.limits.decompressed_batch_bytes_max = 6U << 20;
    world.start();
  }
  LogWorld world;
};

TEST_P(LargeBatch, TheLimitIsExactAndTheErrorNamesSizeAndSetting) {
  const auto partition = world.create("t");
  for (const auto codec : packing) {
    const auto batch = make_batch({.value_bytes = 3U << 20, .codec = codec});
    const auto holds = unpacked_size(batch);
    for (const bool enough : {true, false}) {
      world.limits.decompressed_batch_bytes_max = enough ? holds : holds - 1;
      world.restart();
      const auto end = world.find("t")->log_end_offset();
      const auto result = world.append(*world.find("t"), batch);
      EXPECT_EQ(result.has_value(), enough) << name(codec);
      if (result) continue;
      EXPECT_EQ(result.error().error.code, ErrorCode::message_too_large) << name(codec);
      const auto& text = result.error().error.text;
      EXPECT_NE(text.find("max.decompressed.batch.bytes"), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(holds - 1)), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(batch.size())), std::string::npos) << text;
      EXPECT_EQ(world.find("t")->log_end_offset(), end);
    }
  }
}

TEST_P(LargeBatch, WhatMayBeStoredUncompressedMayBeCompressedToo) {
  LogConfig config;
  config.max_message_bytes = 10 << 20;
  const auto partition = world.create("t", 0, config);
  for (const auto codec : {Codec::none, Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd})
    EXPECT_TRUE(world.append(*partition, make_batch({.value_bytes = 9U << 20, .codec = codec}))) << name(codec);
}

TEST_P(LargeBatch, AppendsTakeEffectInTheOrderOfTheCalls) {
  const auto partition = world.create("t");
  const auto marker = kafka::ProducerId(77);
  std::vector<Buffer> batches;
  std::vector<std::int64_t> offsets;
  std::int32_t sequence = 0;
  for (int i = 0; i < 60; ++i) {
    const bool large = world.random() % 3 == 0;
    testing::BatchOf of;
    of.records = 2;
    of.value_bytes = large ? 1U << 20 : 20;
    of.codec = large ? packing[world.random() % 4] : Codec::none;
    of.producer_id = marker;
    of.producer_epoch = kafka::ProducerEpoch(0);
    of.base_sequence = sequence;
    sequence += 2;
    batches.push_back(make_batch(of));
  }
  for (const auto& batch : batches) {
    partition->append(batch, {}, [&offsets](const ResultOf<AppendResult, AppendError>& result) {
      ASSERT_TRUE(result) << result.error().error.text;  // a sequence out of order would be refused
      offsets.push_back(result->base_offset.value);
    });
    for (auto steps = world.random() % 4; steps > 0; --steps) world.step();
  }
  world.settle();
  ASSERT_EQ(offsets.size(), batches.size());
  for (std::size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(offsets[i], static_cast<std::int64_t>(2 * i));
}

TEST_P(LargeBatch, ACoordinatorsRecordsBehindOneAreItsOwn) {
  const auto partition = world.create("t");
  const auto large = make_batch({.value_bytes = 3U << 20, .codec = Codec::zstd});
  int done = 0;
  const auto count = [&done](const ResultOf<AppendResult, AppendError>& result) {
    EXPECT_TRUE(result);
    ++done;
  };
  partition->append(large, {}, count);
  {
    auto gone = make_batch({.records = 3});
    partition->append(gone, {AppendOrigin::coordinator, {}}, count);
    std::fill(gone.begin(), gone.end(), std::byte{0xee});
  }
  world.settle();
  EXPECT_EQ(done, 2);
  EXPECT_EQ(partition->log_end_offset(), kafka::Offset(4));
}

TEST_P(LargeBatch, APartitionThatGoesAnswersWhatWaited) {
  const auto partition = world.create("t");
  const auto large = make_batch({.value_bytes = 3U << 20, .codec = Codec::zstd});
  const auto small = make_batch({});
  std::vector<ErrorCode> codes;
  const auto note = [&codes](const ResultOf<AppendResult, AppendError>& result) {
    codes.push_back(result ? ErrorCode::none : result.error().error.code);
  };
  partition->append(large, {}, note);
  partition->append(small, {}, note);
  partition->append(large, {}, note);
  partition->abandon(ErrorCode::kafka_storage_error);
  world.settle();
  ASSERT_EQ(codes.size(), 3U);
  for (const auto code : codes) EXPECT_EQ(code, ErrorCode::kafka_storage_error);
}

TEST_P(LargeBatch, RecordErrorsAreListedUpToABound) {
  LogConfig config;
  config.cleanup_compact = true;
  const auto partition = world.create("t", 0, config);
  const auto result = world.append(
      *partition, make_batch({.records = 100'000, .value_bytes = 20, .null_key = true, .codec = Codec::zstd}));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().records.size(), record_errors_max);
  EXPECT_NE(result.error().error.text.find("100000 record errors"), std::string::npos) << result.error().error.text;
}

INSTANTIATE_TEST_SUITE_P(Checks, LargeBatch, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "elsewhere" : "in_the_call"; });

/// The owner's thread looks through a mebibyte and no more: what is beyond waits for a job elsewhere.
TEST(LargeBatchElsewhere, OnlyLargeOnesLeaveTheOwnersThread) {
  LogWorld world;
  world.checks = &world.io;
  world.limits.journal_bytes = 0;
  world.start();
  for (const auto codec : packing) {
    for (const bool large : {false, true}) {
      const auto partition = world.create(std::string(name(codec)) + (large ? "-large" : "-small"));
      const auto batch = make_batch({.value_bytes = (large ? 2U << 20 : 900'000), .codec = codec});
      partition->append(batch, {}, [](const auto& result) { EXPECT_TRUE(result); });
      EXPECT_EQ(partition->log_end_offset(), kafka::Offset(large ? 0 : 1)) << name(codec);
      world.settle();
      EXPECT_EQ(partition->log_end_offset(), kafka::Offset(1)) << name(codec);
    }
  }
}

}  // namespace
}  // namespace ciuic::broker
