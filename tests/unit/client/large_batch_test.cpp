// What the records of a batch may unpack to: a setting of the consumer that the batch came from.
#include <gtest/gtest.h>

#include <chrono>

#include "ciuic/consumer.h"
#include "tests/unit/client/support/test_broker.h"
#include "transport/kafka/error_code.h"

namespace ciuic::client {
namespace {

using namespace std::chrono_literals;
using test::TestBroker;

TEST(LargeBatch, MoreThanTheSettingIsAnErrorThatNamesItAndTheNextBatchIsRead) {
  TestBroker broker;
  broker.create_topic("t", 1);
  for (const auto codec : {kafka::Codec::gzip, kafka::Codec::snappy, kafka::Codec::lz4, kafka::Codec::zstd}) {
    const auto at = broker.append("t", 0, {{"k", std::string(6U << 20, 'v')}}, codec);
    broker.append("t", 0, {{"k", "small"}}, codec);
    for (const auto* transport : {"tcp", "rdma"}) {
      for (const bool enough : {true, false}) {
        SCOPED_TRACE(std::string(kafka::name(codec)) + " " + transport + (enough ? " enough" : " too little"));
        auto consumer = Consumer::open({{"bootstrap.servers", broker.address()},
                                        {"transport", transport},
                                        {"max.decompressed.batch.bytes", enough ? "7000000" : "6000000"}});
        ASSERT_TRUE(consumer) << consumer.error().text;
        ASSERT_TRUE(consumer->assign(std::vector<TopicPartitionOffset>{{"t", 0, at, {}}}));
        std::vector<RecordBatch> batches;
        for (int i = 0; i < 100 && batches.size() < 2; ++i) {
          auto got = consumer->poll(100ms);
          ASSERT_TRUE(got) << got.error().text;
          for (auto& batch : *got) batches.push_back(std::move(batch));
        }
        ASSERT_GE(batches.size(), 2U);
        RecordReader reader;
        // A copy keeps the limit of the consumer it came from.
        for (const auto& large : {batches[0], *batches[0].copy()}) {
          const auto opened = reader.open(large);
          EXPECT_EQ(static_cast<bool>(opened), enough);
          if (opened) continue;
          const auto& error = opened.error();
          EXPECT_EQ(error.trouble, Trouble::corrupt);
          EXPECT_EQ(error.kafka_code, static_cast<std::int16_t>(kafka::ErrorCode::message_too_large));
          for (const auto& part :
               {"t-0 at offset " + std::to_string(at), std::to_string(large.bytes().size()) + " bytes",
                std::string("6000000"), std::string("max.decompressed.batch.bytes"),
                "seek to offset " + std::to_string(at + 1)})
            EXPECT_NE(error.text.find(part), std::string::npos) << part << ": " << error.text;
        }
        ASSERT_TRUE(reader.open(batches[1]));
        const auto* const record = reader.next();
        ASSERT_NE(record, nullptr);
        EXPECT_EQ(as_text(*record->value), "small");
      }
    }
  }
}

}  // namespace
}  // namespace ciuic::client
