// What is appended is what is read: offsets, acknowledgement after the write, memory and disk.
#include <gtest/gtest.h>

#include "broker/log/stored_batch.h"
#include "tests/unit/log/support/log_world.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {
namespace {

using testing::BatchOf;
using testing::LogWorld;
using testing::make_batch;

std::vector<std::int64_t> counting(std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> numbers;
  for (auto i = from; i < to; ++i) numbers.push_back(i);
  return numbers;
}

class AppendAndRead : public ::testing::Test {
 protected:
  void SetUp() override { world.start(); }
  LogWorld world;
};

TEST_F(AppendAndRead, OffsetsFollowOneAnother) {
  const auto partition = world.create("t");
  for (int i = 0; i < 10; ++i) {
    const auto result = world.append(*partition, make_batch({.records = 3}));
    ASSERT_TRUE(result) << result.error().error.text;
    EXPECT_EQ(result->base_offset, kafka::Offset(3 * i));
    EXPECT_EQ(result->last_offset, kafka::Offset(3 * i + 2));
    EXPECT_EQ(result->log_append_time_ms, -1);
  }
  EXPECT_EQ(partition->high_watermark(), kafka::Offset(30));
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(0)), counting(0, 30));
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(17)), counting(17, 30));
}

TEST_F(AppendAndRead, NothingIsReadableOrAcknowledgedBeforeItIsInTheFile) {
  const auto partition = world.create("t");
  bool acknowledged = false;
  partition->append(make_batch({}), {}, [&acknowledged](const auto& result) { acknowledged = result.has_value(); });
  EXPECT_EQ(partition->log_end_offset(), kafka::Offset(1));
  EXPECT_EQ(partition->high_watermark(), kafka::Offset(0));
  const auto early = partition->read({.offset = kafka::Offset(0)});
  ASSERT_TRUE(early);
  EXPECT_TRUE(early->spans.empty());
  world.executor.run_ready();
  EXPECT_FALSE(acknowledged);
  world.settle();
  EXPECT_TRUE(acknowledged);
  EXPECT_EQ(world.disk.content("/logs/t-0/00000000000000000000.log").size(),
            partition->read({.offset = kafka::Offset(0)})->bytes);
}

TEST_F(AppendAndRead, ReadsOutsideTheLogAreOutOfRange) {
  const auto partition = world.create("t");
  ASSERT_TRUE(world.append(*partition, make_batch({.records = 5})));
  EXPECT_EQ(partition->read({.offset = kafka::Offset(6)}).error().code, kafka::ErrorCode::offset_out_of_range);
  EXPECT_TRUE(partition->read({.offset = kafka::Offset(5)})->spans.empty());
}

TEST_F(AppendAndRead, RestartedReadsComeFromDiskAndAreTheSame) {
  auto partition = world.create("t");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(world.append(*partition, make_batch({.records = 2, .value_bytes = 700})));
  partition.reset();
  world.restart();
  partition = world.find("t");
  EXPECT_EQ(partition->log_end_offset(), kafka::Offset(200));
  EXPECT_EQ(partition->resident(kafka::Offset(0)), nullptr);
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(0)), counting(0, 200));
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(151)), counting(151, 200));
  ASSERT_TRUE(world.append(*partition, make_batch({.records = 2})));
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(190)), counting(190, 202));
}

TEST_F(AppendAndRead, SegmentsRollAndReadOnAcrossTheBorder) {
  LogConfig config;
  config.segment_bytes = 5000;
  auto partition = world.create("t", 0, config);
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(world.append(*partition, make_batch({.records = 2, .value_bytes = 400})));
  EXPECT_GT(partition->segment_count(), 5U);
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(0)), counting(0, 120));
  partition.reset();
  world.restart();
  partition = world.find("t");
  EXPECT_GT(partition->segment_count(), 5U);
  EXPECT_EQ(world.offsets(*partition, kafka::Offset(0)), counting(0, 120));
}

TEST_F(AppendAndRead, AtLeastOneBatchIsGivenWhateverTheLimit) {
  const auto partition = world.create("t");
  ASSERT_TRUE(world.append(*partition, make_batch({.value_bytes = 3000})));
  ASSERT_TRUE(world.append(*partition, make_batch({.value_bytes = 3000})));
  const auto one = partition->read({.offset = kafka::Offset(0), .max_bytes = 10});
  EXPECT_GT(one->bytes, 3000U);
  EXPECT_LT(one->bytes, 6000U);
  EXPECT_EQ(partition->read({.offset = kafka::Offset(0), .max_bytes = 10, .at_least_one_batch = false})->bytes, 0U);
}

TEST_F(AppendAndRead, SpansOutliveEvictionByTheirPins) {
  const auto partition = world.create("t");
  ASSERT_TRUE(world.append(*partition, make_batch({.records = 4})));
  auto held = partition->read({.offset = kafka::Offset(0)});
  const auto before = to_buffer(held->spans.front());
  partition->abandon(kafka::ErrorCode::kafka_storage_error);
  world.settle();
  EXPECT_EQ(to_buffer(held->spans.front()), before);
}

}  // namespace
}  // namespace ciuic::broker
