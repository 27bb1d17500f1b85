// What may not enter the log, with Kafka's own error codes; and what happens to what may (timestamps, codecs).
#include <gtest/gtest.h>

#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using kafka::ErrorCode;
using testing::BatchOf;
using testing::LogWorld;
using testing::make_batch;

class Validation : public ::testing::Test {
 protected:
  void SetUp() override { world.start(); }
  ErrorCode append(LogConfig config, Bytes batch) {
    if (!world.find("t")) world.create("t");
    world.find("t")->set_config(config);
    const auto result = world.append(*world.find("t"), batch);
    return result ? ErrorCode::none : result.error().error.code;
  }
  LogWorld world;
};

TEST_F(Validation, BrokenBytesAreCorruptAndNothingIsAppended) {
  const auto good = make_batch({.records = 3});
  for (std::size_t at = 17; at < good.size(); ++at) {
    auto wrong = good;
    wrong[at] ^= std::byte{0x10};
    EXPECT_EQ(append({}, wrong), ErrorCode::corrupt_message) << at;
  }
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(append({}, Bytes(good).first(size)), ErrorCode::none) << size;
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(0));
}

TEST_F(Validation, ExactlyOneBatch) {
  auto two = make_batch({});
  const auto second = make_batch({});
  two.insert(two.end(), second.begin(), second.end());
  EXPECT_EQ(append({}, two), ErrorCode::invalid_record);
}

TEST_F(Validation, OldFormatsAreRefusedByName) {
  auto old = make_batch({});
  old[kafka::batch_at::magic] = std::byte{1};
  EXPECT_EQ(append({}, old), ErrorCode::invalid_record);
}

TEST_F(Validation, CountsMustAgree) {
  auto wrong = make_batch({.records = 3});
  kafka::store_be(wrong.data() + kafka::batch_at::record_count, std::int32_t{2});
  kafka::set_crc(wrong);
  EXPECT_EQ(append({}, wrong), ErrorCode::invalid_record);
  kafka::store_be(wrong.data() + kafka::batch_at::last_offset_delta, std::int32_t{1});
  kafka::set_crc(wrong);
  EXPECT_EQ(append({}, wrong), ErrorCode::invalid_record);
}

TEST_F(Validation, ClientsWriteNoControlRecords) {
  EXPECT_EQ(append({}, testing::make_marker(kafka::ProducerId(1), kafka::ProducerEpoch(0), true, 0)),
            ErrorCode::invalid_record);
}

TEST_F(Validation, SizesAreBounded) {
  LogConfig config;
  config.max_message_bytes = 500;
  EXPECT_EQ(append(config, make_batch({.value_bytes = 1000})), ErrorCode::message_too_large);
  config.max_message_bytes = 5000;
  config.segment_bytes = 600;
  EXPECT_EQ(append(config, make_batch({.value_bytes = 1000})), ErrorCode::record_list_too_large);
}

TEST_F(Validation, TimestampsOutsideTheirBoundsAreRefusedRecordByRecord) {
  LogConfig config;
  config.timestamp_after_max_ms = 1000;
  world.create("t");
  world.find("t")->set_config(config);
  const auto far = make_batch({.records = 2, .timestamp = world.clock.wall_ms() + 5000});
  const auto result = world.append(*world.find("t"), far);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().error.code, ErrorCode::invalid_timestamp);
  ASSERT_EQ(result.error().records.size(), 2U);
  EXPECT_EQ(result.error().records[1].batch_index, 1);
  config.timestamp_before_max_ms = 1000;
  EXPECT_EQ(append(config, make_batch({.timestamp = world.clock.wall_ms() - 5000})), ErrorCode::invalid_timestamp);
  EXPECT_EQ(append(config, make_batch({.timestamp = world.clock.wall_ms()})), ErrorCode::none);
}

TEST_F(Validation, CompactedTopicsNeedKeys) {
  LogConfig config;
  config.cleanup_compact = true;
  EXPECT_EQ(append(config, make_batch({.null_key = true})), ErrorCode::invalid_record);
  EXPECT_EQ(append(config, make_batch({})), ErrorCode::none);
}

TEST_F(Validation, LogAppendTimeIsTheBrokersAndTheChecksumHolds) {
  LogConfig config;
  config.timestamp_type = TimestampType::log_append_time;
  const auto partition = world.create("t", 0, config);
  const auto result = world.append(*partition, make_batch({.records = 3, .timestamp = 5}));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->log_append_time_ms, world.clock.wall_ms());
  const auto read = partition->read({.offset = kafka::Offset(0)});
  const auto batch = kafka::RecordBatchView::parse(read->spans.front());
  EXPECT_TRUE(batch->log_append_time());
  EXPECT_EQ(batch->max_timestamp(), world.clock.wall_ms());
  EXPECT_TRUE(batch->crc_valid());
}

TEST_F(Validation, TheTopicsCodecReplacesTheProducers) {
  for (const auto from :
       {kafka::Codec::none, kafka::Codec::gzip, kafka::Codec::snappy, kafka::Codec::lz4, kafka::Codec::zstd}) {
    for (const auto to : {LogCompression::uncompressed, LogCompression::gzip, LogCompression::snappy,
                          LogCompression::lz4, LogCompression::zstd}) {
      LogConfig config;
      config.compression_type = to;
      ASSERT_EQ(append(config, make_batch({.records = 20, .codec = from})), ErrorCode::none);
      const auto partition = world.find("t");
      const auto read = partition->read({.offset = partition->log_end_offset() - 20});
      const auto batch = kafka::RecordBatchView::parse(read->spans.front());
      EXPECT_EQ(static_cast<int>(batch->codec()), static_cast<int>(to));
    }
  }
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(), 500U);
}

}  // namespace
}  // namespace ciuic::broker
