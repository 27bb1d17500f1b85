// The producer against a real broker: what is sent is there, once, in order, where Java's producer would have put it.
#include "ciuic/producer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "ciuic/consumer.h"
#include "client/core/partitioner.h"
#include "tests/unit/client/support/test_broker.h"

namespace ciuic::client {
namespace {

using namespace std::chrono_literals;
using test::TestBroker;

Producer open(const std::string& address, Config more = {}) {
  Config config{{"bootstrap.servers", address}};
  config.insert(config.end(), more.begin(), more.end());
  return Producer::open(config).value();
}

struct Got {
  std::int64_t offset = -1;
  std::int64_t timestamp = -1;
  std::string key{}, value{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

/// Everything of a topic by partition, until `count` records came or the time is over.
std::map<std::int32_t, std::vector<Got>> read(const std::string& address, const std::string& topic,
                                              std::int32_t partitions, std::size_t count, Milliseconds timeout = 20s) {
  auto consumer = Consumer::open({{"bootstrap.servers", address}, {"transport", "tcp"}}).value();
  std::vector<TopicPartitionOffset> all;
  for (std::int32_t i = 0; i < partitions; ++i) all.push_back({topic, i, offset_beginning, {}});
  consumer.assign(all).value();
  std::map<std::int32_t, std::vector<Got>> out;
  RecordReader reader;
  std::size_t got = 0;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto quiet_until = deadline;
  // After the last one it looks on for a while: a doubled record would come now.
  while (std::chrono::steady_clock::now() < std::min(deadline, quiet_until)) {
    const auto batches = consumer.poll(50ms).value();
    for (const auto& batch : batches) {
      reader.open(batch).value();
      while (const auto* record = reader.next()) {
        Got one{record->offset,
                record->timestamp,
                std::string(as_text(record->key.value_or(Bytes{}))),
                std::string(as_text(record->value.value_or(Bytes{}))),
                {}};
        for (const auto& header : record->headers)
          one.headers.emplace_back(header.key, as_text(header.value.value_or(Bytes{})));
        out[batch.partition()].push_back(std::move(one));
        ++got;
      }
    }
    if (got >= count && quiet_until == deadline) quiet_until = std::chrono::steady_clock::now() + 200ms;
  }
  return out;
}

RecordToSend record(std::string_view topic, std::string_view value) {
  RecordToSend out;
  out.topic = topic;
  out.value = as_bytes(value);
  return out;
}

class Codecs : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Every, Codecs,
                         ::testing::Combine(::testing::Values("none", "gzip", "snappy", "lz4", "zstd"),
                                            ::testing::Values("all", "1", "0")),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + "_acks_" + std::get<1>(one.param);
                         });

TEST_P(Codecs, WhatIsSentIsThereInOrderAndWhereTheAnswerSays) {
  TestBroker broker;
  broker.create_topic("data", 3);
  const auto [codec, acks] = GetParam();
  auto producer = open(broker.address(), {{"compression.type", codec}, {"acks", acks}, {"batch.size", "2000"}});
  constexpr int count = 600;
  std::vector<std::pair<std::int32_t, std::int64_t>> where(count, {-2, -2});
  for (int i = 0; i < count; ++i) {
    const auto value = "value " + std::to_string(i);
    const Header header{"n", as_bytes(value)};
    auto one = record("data", value);
    one.partition = i % 3;
    one.timestamp = 1'700'000'000'000 + i;
    one.headers = {&header, 1};
    ASSERT_TRUE(producer.send(one, [&where, i](const Result<Written>& result) {
      ASSERT_TRUE(result) << result.error().text;
      EXPECT_EQ(where[static_cast<std::size_t>(i)].first, -2) << "called twice";
      where[static_cast<std::size_t>(i)] = {result->partition, result->offset};
      EXPECT_EQ(result->timestamp, 1'700'000'000'000 + i);
    }));
  }
  ASSERT_TRUE(producer.flush(20s));
  const auto got = read(broker.address(), "data", 3, count);
  for (int i = 0; i < count; ++i) {
    const auto partition = i % 3;
    const auto offset = i / 3;
    const auto& there = got.at(partition).at(static_cast<std::size_t>(offset));
    ASSERT_EQ(there.value, "value " + std::to_string(i));
    ASSERT_EQ(there.timestamp, 1'700'000'000'000 + i);
    ASSERT_EQ(there.headers, (std::vector<std::pair<std::string, std::string>>{{"n", there.value}}));
    EXPECT_EQ(where[static_cast<std::size_t>(i)],
              std::make_pair(partition, std::string_view(acks) == "0" ? -1 : std::int64_t{offset}));
  }
}

}  // namespace
}  // namespace ciuic::client
