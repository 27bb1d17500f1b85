// The producer against a real broker: what is sent is there, once, in order, where Java's producer would have put it.
#include "ciuic/producer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <thread>

#include "ciuic/consumer.h"
#include "tests/unit/client/producer_relay.h"
#include "tests/unit/client/support/test_broker.h"
#include "transport/kafka/error_code.h"

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

std::int64_t metric(const Producer& producer, std::string_view name) {
  for (const auto& one : producer.metrics()) {
    if (one.name == name) return one.value;
  }
  ADD_FAILURE() << "no metric " << name;
  return -1;
}

void expect_numbers(const std::vector<Got>& got, int first, int count, int step = 1) {
  ASSERT_EQ(got.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(got[static_cast<std::size_t>(i)].offset, i);
    ASSERT_EQ(got[static_cast<std::size_t>(i)].value, std::to_string(first + i * step));
  }
}

TEST(Producers, AKeyGoesToJavasPartition) {
  TestBroker broker;
  broker.create_topic("data", 7);
  auto producer = open(broker.address());
  // Murmur2 of these as in Apache Kafka's UtilsTest, made positive, modulo 7.
  const std::map<std::string, std::int32_t> keys{{"21", (-973932308 & 0x7fffffff) % 7},
                                                 {"foobar", (-790332482 & 0x7fffffff) % 7},
                                                 {"a-little-bit-long-string", (-985981536 & 0x7fffffff) % 7},
                                                 {"abc", 479470107 % 7}};
  for (const auto& [key, partition] : keys) {
    auto one = record("data", key);
    one.key = as_bytes(key);
    const auto written = producer.send_future(one).value().get();
    ASSERT_TRUE(written) << written.error().text;
    EXPECT_EQ(written->partition, partition) << key;
  }
  EXPECT_EQ(producer.partition_count("data").value(), 7);
}

TEST(Producers, NullsAndEmptiesStayWhatTheyAre) {
  TestBroker broker;
  broker.create_topic("data", 1);
  auto producer = open(broker.address());
  RecordToSend tombstone;
  tombstone.topic = "data";
  tombstone.key = as_bytes("k");
  RecordToSend empty;
  empty.topic = "data";
  empty.key = Bytes{};
  empty.value = Bytes{};
  ASSERT_TRUE(producer.send(tombstone));
  ASSERT_TRUE(producer.send(empty));
  ASSERT_TRUE(producer.flush(10s));
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}, {"transport", "tcp"}}).value();
  consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, offset_beginning, {}}}).value();
  RecordReader reader;
  std::vector<std::pair<bool, bool>> there;
  for (int i = 0; i < 100 && there.size() < 2; ++i) {
    for (const auto& batch : consumer.poll(100ms).value()) {
      reader.open(batch).value();
      while (const auto* one = reader.next()) there.emplace_back(one->key.has_value(), one->value.has_value());
    }
  }
  EXPECT_EQ(there, (std::vector<std::pair<bool, bool>>{{true, false}, {true, true}}));
}

/// A relay in front of a broker that announces the relay as its address.
struct Relayed {
  explicit Relayed(std::uint64_t seed, std::uint32_t one_in)
      : relay(seed, one_in), broker({{"advertised.listeners", "PLAINTEXT://" + relay.address()}}) {
    relay.relay_to(static_cast<std::uint16_t>(std::stoi(broker.address().substr(broker.address().rfind(':') + 1))));
  }
  test::CuttingRelay relay;
  TestBroker broker;
};

std::vector<std::uint64_t> seeds() {
  if (const char* const given = std::getenv("CIUIC_SEED"); given != nullptr) return {std::strtoull(given, nullptr, 10)};
  return {1, 2, 3, std::random_device{}()};
}

TEST(Producers, OverConnectionsThatAreLostEveryRecordIsThereOnceAndInOrder) {
  constexpr int partitions = 3;
  constexpr int count_min = 3000;
  constexpr int count_max = 60000;
  for (const auto seed : seeds()) {
    SCOPED_TRACE("replay: CIUIC_SEED=" + std::to_string(seed) + " tools/test -R producer_test");
    Relayed there(seed, 10);
    there.broker.create_topic("data", partitions);
    auto producer = open(there.relay.address(), {{"batch.size", "300"},
                                                 {"linger.ms", "0"},
                                                 {"retry.backoff.ms", "1"},
                                                 {"reconnect.backoff.ms", "1"},
                                                 {"compression.type", seed % 2 == 0 ? "zstd" : "none"}});
    std::vector<std::atomic<int>> outcomes(count_max);
    // On a busy machine much goes in few pieces: it sends until enough connections were lost.
    const auto enough = [&] {
      return there.relay.cuts() >= 5 && metric(producer, "ciuic_client_producer_retries_total") >= 1;
    };
    int count = 0;
    for (; count < count_max && (count < count_min || count % partitions != 0 || !enough()); ++count) {
      const int i = count;
      const auto value = std::to_string(i);
      auto one = record("data", value);
      one.partition = i % partitions;
      ASSERT_TRUE(producer.send(one, [&outcomes, i](const Result<Written>& result) {
        ASSERT_TRUE(result) << result.error().text;
        if (result->offset >= 0) {
          EXPECT_EQ(result->offset, i / partitions);
        }
        ++outcomes[static_cast<std::size_t>(i)];
      }));
      if (i % 50 == 0) std::this_thread::sleep_for(1ms);
    }
    const auto flushed = producer.flush(60s);
    ASSERT_TRUE(flushed) << flushed.error().text;
    for (int i = 0; i < count; ++i) ASSERT_EQ(outcomes[static_cast<std::size_t>(i)], 1) << i;
    EXPECT_TRUE(enough());
    EXPECT_EQ(metric(producer, "ciuic_client_producer_new_epochs_total"), 0) << "no gap was there to be seen";
    there.relay.set_one_in(0);
    const auto got = read(there.relay.address(), "data", partitions, static_cast<std::size_t>(count));
    for (int p = 0; p < partitions; ++p) expect_numbers(got.at(p), p, count / partitions, partitions);
  }
}

TEST(Producers, OverARestartOfTheBrokerEveryRecordIsThereOnceAndInOrder) {
  TestBroker broker;
  broker.create_topic("data", 1);
  auto producer = open(broker.address(), {{"batch.size", "500"}, {"linger.ms", "1"}, {"retry.backoff.ms", "20"}});
  constexpr int count = 2000;
  std::atomic<int> written{0};
  for (int i = 0; i < count; ++i) {
    if (i == 700) {
      broker.stop();
    }
    if (i == 1300) broker.start();
    const auto value = std::to_string(i);
    ASSERT_TRUE(producer.send(record("data", value), [&](const Result<Written>& result) {
      EXPECT_TRUE(result) << result.error().text;
      ++written;
    }));
    if (i % 10 == 0) std::this_thread::sleep_for(1ms);
  }
  ASSERT_TRUE(producer.flush(30s));
  EXPECT_EQ(written, count);
  expect_numbers(read(broker.address(), "data", 1, count).at(0), 0, count);
}

TEST(Producers, ABatchTooLargeForTheTopicComesApart) {
  for (const char* const codec : {"none", "lz4"}) {
    TestBroker broker;
    broker.create_topic("data", 1, {{"max.message.bytes", "1000"}});
    auto producer = open(broker.address(), {{"linger.ms", "1000"}, {"compression.type", codec}});
    constexpr int count = 300;
    std::vector<std::int64_t> offsets(count, -2);
    for (int i = 0; i < count; ++i) {
      const auto value = std::to_string(i);
      // What does not compress, so that the batch stays too large.
      std::string noise(30, ' ');
      for (auto& c : noise) c = static_cast<char>(std::rand());
      const Header header{"noise", as_bytes(noise)};
      auto one = record("data", value);
      one.headers = {&header, 1};
      ASSERT_TRUE(producer.send(one, [&offsets, i](const Result<Written>& result) {
        ASSERT_TRUE(result) << result.error().text;
        offsets[static_cast<std::size_t>(i)] = result->offset;
      }));
    }
    ASSERT_TRUE(producer.flush(20s));
    for (int i = 0; i < count; ++i) EXPECT_EQ(offsets[static_cast<std::size_t>(i)], i);
    EXPECT_GE(metric(producer, "ciuic_client_producer_splits_total"), 1);
    expect_numbers(read(broker.address(), "data", 1, count).at(0), 0, count);
    // One record that is too large for the topic by itself fails with the broker's word, and the next goes on.
    std::string noise(3000, ' ');
    for (auto& c : noise) c = static_cast<char>(std::rand());
    const auto too_large = producer.send_future(record("data", noise)).value().get();
    ASSERT_FALSE(too_large);
    EXPECT_EQ(too_large.error().kafka_code, static_cast<std::int16_t>(kafka::ErrorCode::message_too_large));
    ASSERT_TRUE(producer.send_future(record("data", "next")).value().get());
  }
}

TEST(Producers, WhatCannotBeSentIsSaidBySend) {
  TestBroker broker({{"auto.create.topics.enable", "false"}});
  broker.create_topic("data", 2);
  auto producer = open(broker.address(), {{"max.request.size", "5000"}});
  const auto trouble = [&](const RecordToSend& one) {
    const auto result = producer.send(one, [](const auto&) { ADD_FAILURE() << "a callback of what was refused"; });
    EXPECT_FALSE(result);
    return result ? Error{} : result.error();
  };
  auto nowhere = record("data", "x");
  nowhere.partition = 2;
  EXPECT_EQ(trouble(nowhere).trouble, Trouble::invalid_argument);
  nowhere.partition = -1;
  EXPECT_EQ(trouble(nowhere).trouble, Trouble::invalid_argument);
  EXPECT_EQ(trouble(record("", "x")).trouble, Trouble::invalid_argument);
  auto early = record("data", "x");
  early.timestamp = -5;
  EXPECT_EQ(trouble(early).trouble, Trouble::invalid_argument);
  const auto large = trouble(record("data", std::string(6000, 'x')));
  EXPECT_EQ(large.trouble, Trouble::broker);
  EXPECT_EQ(large.kafka_code, static_cast<std::int16_t>(kafka::ErrorCode::message_too_large));
  const auto unknown = trouble(record("nothing", "x"));
  EXPECT_EQ(unknown.trouble, Trouble::broker);
  EXPECT_EQ(unknown.kafka_code, static_cast<std::int16_t>(kafka::ErrorCode::unknown_topic_or_partition));
  ASSERT_TRUE(producer.close());
  EXPECT_EQ(trouble(record("data", "x")).trouble, Trouble::invalid_state);
  EXPECT_EQ(producer.partition_count("data").error().trouble, Trouble::invalid_state);
}

TEST(Producers, WithoutABrokerSendEndsAfterMaxBlockMs) {
  auto producer = open("127.0.0.1:1", {{"max.block.ms", "200"}});
  const auto began = std::chrono::steady_clock::now();
  const auto refused = producer.send(record("data", "x"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().trouble, Trouble::timed_out);
  EXPECT_NE(refused.error().text.find("127.0.0.1:1"), std::string::npos) << refused.error().text;
  EXPECT_LT(std::chrono::steady_clock::now() - began, 2s);
}

/// CPU seconds of this process while `work` runs.
template <class Work>
double cpu_seconds_of(Work work) {
  const auto before = std::clock();
  work();
  return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
}

TEST(Producers, WithoutABrokerNobodyIsBusy) {
  auto producer = open("127.0.0.1:1", {{"max.block.ms", "1000"}});
  EXPECT_LT(cpu_seconds_of([&] { EXPECT_FALSE(producer.send(record("data", "x"))); }), 0.3) << "of one second";
  auto consumer = Consumer::open({{"bootstrap.servers", "127.0.0.1:1"}, {"group.id", "g"}}).value();
  ASSERT_TRUE(consumer.subscribe({"data"}));
  EXPECT_LT(cpu_seconds_of([&] { (void)consumer.poll(Milliseconds(1000)); }), 0.3) << "of one second";
}

TEST(Producers, PartitionsThatAreAddedAreFound) {
  TestBroker broker;
  broker.create_topic("data", 1);
  auto producer = open(broker.address(), {{"metadata.max.age.ms", "100"}, {"allow.auto.create.topics", "false"}});
  ASSERT_TRUE(producer.send_future(record("data", "x")).value().get());
  broker.delete_topic("data");
  broker.create_topic("data", 4);
  auto one = record("data", "y");
  one.partition = 3;
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (producer.partition_count("data").value() != 4 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(20ms);
  const auto written = producer.send_future(one).value().get();
  ASSERT_TRUE(written) << written.error().text;
  EXPECT_EQ(written->partition, 3);
}

TEST(Producers, ManyThreadsSendEachInItsOrder) {
  TestBroker broker;
  broker.create_topic("data", 2);
  auto producer =
      open(broker.address(), {{"batch.size", "4000"}, {"buffer.memory", "100000"}, {"compression.type", "snappy"}});
  constexpr int threads = 4;
  constexpr int each = 5000;
  std::atomic<int> written{0};
  std::vector<std::thread> senders;
  for (int t = 0; t < threads; ++t) {
    senders.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        const auto value = std::to_string(t) + " " + std::to_string(i);
        auto one = record("data", value);
        one.partition = t % 2;
        const auto sent = producer.send(one, [&](const Result<Written>& result) { written += result ? 1 : 0; });
        ASSERT_TRUE(sent) << sent.error().text;
      }
    });
  }
  for (auto& sender : senders) sender.join();
  ASSERT_TRUE(producer.flush(30s));
  EXPECT_EQ(written, threads * each);
  std::array<int, threads> next{};
  for (const auto& [partition, records] : read(broker.address(), "data", 2, threads * each)) {
    for (const auto& one : records) {
      const int thread = std::stoi(one.value);
      EXPECT_EQ(one.value, std::to_string(thread) + " " + std::to_string(next.at(static_cast<std::size_t>(thread))++));
    }
  }
  for (const auto count : next) EXPECT_EQ(count, each);
}

TEST(Producers, InAForkedChildEveryCallSaysSoAndTheEndDoesNothing) {
  TestBroker broker;
  broker.create_topic("data", 1);
  auto producer = std::make_unique<Producer>(open(broker.address()));
  ASSERT_TRUE(producer->send_future(record("data", "x")).value().get());
  const auto child = ::fork();
  if (child == 0) {
    bool right = producer->send(record("data", "y")).error().trouble == Trouble::forked_child;
    right = right && producer->flush().error().trouble == Trouble::forked_child;
    right = right && producer->partition_count("data").error().trouble == Trouble::forked_child;
    right = right && producer->metrics().empty();
    producer.reset();
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(producer->send_future(record("data", "z")).value().get());
}

TEST(Producers, WhatIsLeftWhenTheProducerGoesFailsOnce) {
  TestBroker broker;
  broker.create_topic("data", 1);
  std::atomic<int> called{0};
  {
    auto producer = open(broker.address(), {{"linger.ms", "60000"}});
    ASSERT_TRUE(producer.partition_count("data"));
    ASSERT_TRUE(producer.send(record("data", "x"), [&](const Result<Written>&) { ++called; }));
  }
  EXPECT_EQ(called, 1);
}

}  // namespace
}  // namespace ciuic::client
