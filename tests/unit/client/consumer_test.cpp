// The consumer against a real broker: the same stream by every path, places, resets, views, restarts. Long: the helpers
// that read and compare serve all of it.
#include "ciuic/consumer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <list>
#include <random>
#include <thread>

#include "client/core/consumer_impl.h"
#include "tests/unit/client/support/test_broker.h"

namespace ciuic::client {
namespace {

using namespace std::chrono_literals;
using test::TestBroker;

struct Read {
  std::int64_t offset;
  std::string key, value;
  bool operator==(const Read&) const = default;
};

/// Polls until `count` records came, or the time is over.
std::vector<Read> read(Consumer& consumer, std::size_t count, Milliseconds timeout = 20s) {
  std::vector<Read> out;
  RecordReader reader;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (out.size() < count && std::chrono::steady_clock::now() < deadline) {
    const auto batches = consumer.poll(100ms);
    if (!batches) {
      ADD_FAILURE() << batches.error().text;
      return out;
    }
    for (const auto& batch : *batches) {
      EXPECT_TRUE(reader.open(batch));
      while (const auto* record = reader.next())
        out.push_back({record->offset, std::string(as_text(*record->key)), std::string(as_text(*record->value))});
      EXPECT_EQ(reader.error(), nullptr);
      EXPECT_TRUE(batch.in_force());
    }
  }
  return out;
}

void expect_numbers(const std::vector<Read>& got, std::int64_t first, std::int64_t count) {
  ASSERT_EQ(got.size(), static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& one = got[static_cast<std::size_t>(i)];
    ASSERT_EQ(one.offset, first + i);
    ASSERT_EQ(one.value, std::to_string(first + i));
    ASSERT_EQ(one.key, "k" + one.value);
  }
}

struct Way {
  const char* transport;
  bool landing = false;  // in memory of the test's
};
class Transports : public ::testing::TestWithParam<Way> {
 protected:
  [[nodiscard]] bool one_sided() const { return std::string_view(GetParam().transport) == "rdma"; }
  [[nodiscard]] bool in_place() const { return one_sided() && !GetParam().landing; }
  [[nodiscard]] Consumer open(const TestBroker& broker, Config more = {}) {
    Config config{{"bootstrap.servers", broker.address()},
                  {"transport", GetParam().transport},
                  {"auto.offset.reset", "earliest"}};
    config.insert(config.end(), more.begin(), more.end());
    auto consumer = Consumer::open(config).value();
    if (GetParam().landing) {
      landing_.emplace_back(4U << 20);
      consumer.land_in({Memory::host, landing_.back().data(), landing_.back().size()}).value();
    }
    return consumer;
  }

 private:
  std::list<std::vector<std::byte>> landing_;
};
INSTANTIATE_TEST_SUITE_P(Paths, Transports,
                         ::testing::Values(Way{"tcp"}, Way{"rdma"}, Way{"tcp", true}, Way{"rdma", true}),
                         [](const auto& one) {
                           return std::string(one.param.transport) + (one.param.landing ? "_landing" : "");
                         });

TEST_P(Transports, ReadsWhatWasWrittenWithEveryCodec) {
  TestBroker broker;
  broker.create_topic("data", 1);
  std::int64_t next = 0;
  for (const auto codec :
       {kafka::Codec::none, kafka::Codec::gzip, kafka::Codec::snappy, kafka::Codec::lz4, kafka::Codec::zstd}) {
    broker.append_numbers("data", 0, next, 50, 7, codec);
    next += 50;
  }
  auto consumer = open(broker);
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, offset_beginning, {}}}));
  expect_numbers(read(consumer, 250), 0, 250);
  const auto path = consumer.path({"data", 0});
  EXPECT_EQ(path.path, one_sided() ? Path::one_sided : Path::tcp_fetch) << path.reason;
  EXPECT_EQ(path.provider, one_sided() ? "shm" : "");
  EXPECT_EQ(consumer.position({"data", 0}).value(), 250);
  EXPECT_EQ(consumer.lags().at(0).records, 0);
}

TEST_P(Transports, NewRecordsArriveAtTheEnd) {
  TestBroker broker;
  broker.create_topic("data", 3);
  auto consumer = open(broker);
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{
      {"data", 0, offset_end, {}}, {"data", 1, offset_end, {}}, {"data", 2, offset_end, {}}}));
  EXPECT_TRUE(consumer.poll(300ms).value().empty());
  std::thread writer([&] {
    for (int i = 0; i < 30; ++i) {
      broker.append_numbers("data", i % 3, i / 3, 1);
      std::this_thread::sleep_for(5ms);
    }
  });
  const auto got = read(consumer, 30);
  writer.join();
  ASSERT_EQ(got.size(), 30U);
}

TEST_P(Transports, Seeks) {
  TestBroker broker;
  broker.create_topic("data", 1);
  broker.append_numbers("data", 0, 0, 100);
  auto consumer = open(broker);
  const TopicPartition at{"data", 0};
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 42, {}}}));
  expect_numbers(read(consumer, 58), 42, 58);
  ASSERT_TRUE(consumer.seek(at, 7));
  EXPECT_EQ(consumer.position(at).value(), 7);
  expect_numbers(read(consumer, 93), 7, 93);
  ASSERT_TRUE(consumer.seek(at, offset_beginning));
  expect_numbers(read(consumer, 100), 0, 100);
  ASSERT_TRUE(consumer.seek_to_time(at, 1'700'000'000'000 + 63));
  expect_numbers(read(consumer, 37), 63, 37);
  ASSERT_TRUE(consumer.seek_to_time(at, 1'900'000'000'000));
  EXPECT_EQ(consumer.position(at).value(), 100);
  ASSERT_TRUE(consumer.seek(at, offset_end));
  EXPECT_TRUE(consumer.poll(200ms).value().empty());
  EXPECT_EQ(consumer.position(at).value(), 100);
  EXPECT_EQ(consumer.seek({"data", 5}, 0).error().trouble, Trouble::invalid_state);
}

TEST_P(Transports, AnOffsetOutOfRangeFollowsThePolicy) {
  TestBroker broker;
  broker.create_topic("data", 1);
  broker.append_numbers("data", 0, 0, 20);
  for (const char* policy : {"earliest", "latest", "none"}) {
    auto consumer = open(broker, {{"auto.offset.reset", policy}});
    ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 500, {}}}));
    if (std::string_view(policy) == "earliest") {
      expect_numbers(read(consumer, 20), 0, 20);
    } else if (std::string_view(policy) == "latest") {
      EXPECT_TRUE(consumer.poll(1000ms).value().empty());
      EXPECT_EQ(consumer.position({"data", 0}).value(), 20);
    } else {
      const auto got = consumer.poll(10s);
      ASSERT_FALSE(got);
      EXPECT_EQ(got.error().trouble, Trouble::data_loss);
      ASSERT_TRUE(consumer.seek({"data", 0}, 15));
      expect_numbers(read(consumer, 5), 15, 5);
    }
  }
}

TEST_P(Transports, PausedPartitionsGiveNothing) {
  TestBroker broker;
  broker.create_topic("data", 2);
  broker.append_numbers("data", 0, 0, 10);
  broker.append_numbers("data", 1, 0, 10);
  auto consumer = open(broker);
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}, {"data", 1, 0, {}}}));
  const std::vector<TopicPartition> second{{"data", 1}};
  ASSERT_TRUE(consumer.pause(second));
  expect_numbers(read(consumer, 10), 0, 10);
  EXPECT_TRUE(consumer.poll(200ms).value().empty());
  ASSERT_TRUE(consumer.resume(second));
  expect_numbers(read(consumer, 10), 0, 10);
}

TEST_P(Transports, GoesOnAfterTheBrokerComesBack) {
  TestBroker broker;
  broker.create_topic("data", 1);
  broker.append_numbers("data", 0, 0, 30);
  auto consumer = open(broker);
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  expect_numbers(read(consumer, 30), 0, 30);
  broker.stop();
  const auto away = std::chrono::steady_clock::now() + 700ms;
  while (std::chrono::steady_clock::now() < away) {
    // In transport=rdma the want of a path is an error that passes; nothing may be delivered.
    if (const auto got = consumer.poll(50ms); got) {
      EXPECT_TRUE(got->empty());
    } else {
      EXPECT_TRUE(got.error().retriable) << got.error().text;
    }
  }
  broker.start();
  broker.append_numbers("data", 0, 30, 30);
  std::vector<Read> got;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  RecordReader reader;
  while (got.size() < 30 && std::chrono::steady_clock::now() < deadline) {
    const auto batches = consumer.poll(100ms);
    if (!batches) {
      EXPECT_TRUE(batches.error().retriable) << batches.error().text;
      continue;
    }
    for (const auto& batch : *batches) {
      ASSERT_TRUE(reader.open(batch));
      while (const auto* record = reader.next())
        got.push_back({record->offset, std::string(as_text(*record->key)), std::string(as_text(*record->value))});
    }
  }
  expect_numbers(got, 30, 30);
}

TEST_P(Transports, ViewsOutliveThePollAndTheConsumer) {
  TestBroker broker;
  broker.create_topic("data", 1);
  broker.append_numbers("data", 0, 0, 100);
  std::vector<RecordBatch> kept;
  RecordBatch copied;
  {
    auto consumer = open(broker);
    ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
    std::size_t records = 0;
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (records < 100 && std::chrono::steady_clock::now() < deadline) {
      for (const auto& batch : consumer.poll(100ms).value()) {
        kept.push_back(batch);
        records += static_cast<std::size_t>(batch.record_count());
      }
    }
    EXPECT_EQ(kept.front().in_place(), in_place());
    copied = kept.front().copy().value();
    EXPECT_FALSE(copied.in_place());
  }
  std::int64_t next = 0;
  RecordReader reader;
  for (const auto& batch : kept) {
    ASSERT_TRUE(reader.open(batch));
    while (const auto* record = reader.next()) EXPECT_EQ(as_text(*record->value), std::to_string(next++));
    EXPECT_TRUE(batch.in_force());
  }
  EXPECT_EQ(next, 100);
  EXPECT_TRUE(std::equal(copied.bytes().begin(), copied.bytes().end(), kept.front().bytes().begin(),
                         kept.front().bytes().end()));
}

TEST_P(Transports, RollingAndDeletingUnderTheReader) {
  TestBroker broker{{"log.retention.check.interval.ms", "50"}};
  broker.create_topic("data", 1, {{"segment.bytes", "1048576"}, {"retention.bytes", "2097152"}});
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> written{0};
  std::thread writer([&] {
    while (!stop) {
      broker.append_numbers("data", 0, written, 4000, 2000);
      written += 4000;
    }
  });
  auto consumer = open(broker);
  EXPECT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  RecordReader reader;
  std::int64_t last = -1, seen = 0;
  const auto deadline = std::chrono::steady_clock::now() + 3s;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto batches = consumer.poll(50ms);
    ASSERT_TRUE(batches) << batches.error().text;
    for (const auto& batch : *batches) {
      ASSERT_TRUE(reader.open(batch));
      while (const auto* record = reader.next()) {
        ASSERT_GT(record->offset, last);
        ASSERT_EQ(as_text(*record->value), std::to_string(record->offset));
        last = record->offset;
        ++seen;
      }
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(seen, 1000);
}

TEST_P(Transports, ManyPartitionsInTurn) {
  TestBroker broker;
  broker.create_topic("data", 40);
  for (int p = 0; p < 40; ++p) broker.append_numbers("data", p, 0, 20, 20);
  auto consumer = open(broker);
  std::vector<TopicPartitionOffset> all;
  for (int p = 0; p < 40; ++p) all.push_back({"data", p, offset_beginning, {}});
  ASSERT_TRUE(consumer.assign(all));
  EXPECT_EQ(read(consumer, 800).size(), 800U);
  for (const auto& lag : consumer.lags()) EXPECT_EQ(lag.records, 0);
}

/// Each of many partitions at its end has news of its own, now one at a time, now many at once: none waits for the
/// others, or for the time that a question to the broker may take.
TEST_P(Transports, EachOfManyPartitionsAtTheEndIsHeardOf) {
  constexpr std::int32_t partitions = 100;
  TestBroker broker;
  broker.create_topic("data", partitions);
  std::vector<TopicPartitionOffset> all;
  for (std::int32_t p = 0; p < partitions; ++p) all.push_back({"data", p, offset_beginning, {}});
  auto consumer = open(broker);
  ASSERT_TRUE(consumer.assign(all));
  std::vector<std::int64_t> next(partitions, 0);
  const auto seed = static_cast<std::uint32_t>(std::random_device()());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 dice(seed);
  const auto slowest = 8s;  // below the time that a wait at the broker may take
  for (int round = 0; round < 40; ++round) {
    const auto news = dice() % 2 == 0 ? 1U : 1 + dice() % partitions;
    for (std::uint32_t i = 0; i < news; ++i) {
      auto& at = next[(i * 37 + static_cast<std::uint32_t>(round)) % partitions];
      broker.append_numbers("data", static_cast<std::int32_t>(&at - next.data()), at, 1);
      ++at;
    }
    ASSERT_EQ(read(consumer, news, slowest).size(), news) << "round " << round;
    if (dice() % 4 == 0) {  // all have come to their end
      ASSERT_TRUE(consumer.poll(20ms).value().empty());
    }
  }
  for (std::int32_t p = 0; p < partitions; ++p)
    EXPECT_EQ(consumer.position({"data", p}).value(), next[static_cast<std::size_t>(p)]) << p;
}

/// One-sided and TCP readers side by side while the log is written, rolled, deleted from and evicted from memory:
/// whatever both deliver is the same, record by record, and neither delivers what was not written.
TEST(Consumer, BothPathsGiveTheSameRecordsWhateverHappensToTheLog) {
  TestBroker broker{{"log.memory.bytes", "67108864"},
                    {"log.memory.chunk.bytes.max", "1048576"},
                    {"log.retention.check.interval.ms", "100"}};
  constexpr int partitions = 3;
  broker.create_topic("data", partitions, {{"segment.bytes", "2097152"}, {"retention.bytes", "50331648"}});
  std::atomic<bool> stop{false};
  const std::string filler(800, 'f');
  std::thread writer([&] {
    std::int64_t next = 0;
    while (!stop) {
      std::vector<test::TestRecord> records;
      for (std::int64_t i = 0; i < 1000; ++i)
        records.push_back({std::to_string(next + i), filler + std::to_string(next + i)});
      for (int p = 0; p < partitions; ++p) broker.append("data", p, records);
      next += 1000;
    }
  });
  std::map<TopicPartition, std::map<std::int64_t, std::string>> seen[2];
  std::int64_t delivered[2] = {0, 0};
  const auto reader_of = [&](const char* transport, int which) {
    auto consumer =
        Consumer::open(
            {{"bootstrap.servers", broker.address()}, {"transport", transport}, {"auto.offset.reset", "earliest"}})
            .value();
    std::vector<TopicPartitionOffset> from;
    for (int p = 0; p < partitions; ++p) from.push_back({"data", p, offset_beginning, {}});
    ASSERT_TRUE(consumer.assign(from));
    RecordReader reader;
    const auto deadline = std::chrono::steady_clock::now() + 6s;
    auto rewind_at = std::chrono::steady_clock::now() + 3s;
    while (std::chrono::steady_clock::now() < deadline) {
      const auto batches = consumer.poll(50ms);
      ASSERT_TRUE(batches) << batches.error().text;
      for (const auto& batch : *batches) {
        std::vector<std::pair<std::int64_t, std::string>> records;
        ASSERT_TRUE(reader.open(batch));
        while (const auto* record = reader.next())
          records.emplace_back(record->offset, std::string(as_text(*record->key)));
        if (!batch.in_force()) continue;  // said not to be vouched for
        for (auto& [offset, key] : records) {
          ASSERT_EQ(key, std::to_string(offset)) << transport;
          const auto [at, added] = seen[which][{"data", batch.partition()}].emplace(offset, key);
          ASSERT_EQ(at->second, key);
          ++delivered[which];
        }
      }
      if (std::chrono::steady_clock::now() > rewind_at) {
        // Back to what has left memory by now.
        rewind_at = deadline;
        for (int p = 0; p < partitions; ++p) ASSERT_TRUE(consumer.seek({"data", p}, offset_beginning));
      }
    }
  };
  std::thread tcp([&] { reader_of("tcp", 0); });
  std::thread one_sided([&] { reader_of("auto", 1); });
  tcp.join();
  one_sided.join();
  stop = true;
  writer.join();
  for (int which = 0; which < 2; ++which) EXPECT_GT(delivered[which], 5000);
  std::int64_t compared = 0;
  for (const auto& [at, records] : seen[0]) {
    for (const auto& [offset, key] : records) {
      const auto other = seen[1][at].find(offset);
      if (other == seen[1][at].end()) continue;
      EXPECT_EQ(other->second, key);
      ++compared;
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST(Consumer, NoPartitionStarvesWhereAnswersAreSmallerThanTheList) {
  TestBroker broker;
  constexpr int partitions = 8;
  broker.create_topic("data", partitions);
  const std::string filler(1000, 'f');
  std::vector<test::TestRecord> records;
  for (int i = 0; i < 60; ++i) records.push_back({"k", filler});
  for (int p = 0; p < partitions; ++p) {
    for (int i = 0; i < 20; ++i) broker.append("data", p, records);
  }
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()},
                                  {"transport", "tcp"},
                                  {"fetch.max.bytes", "150000"},
                                  {"max.partition.fetch.bytes", "65536"}})
                      .value();
  std::vector<TopicPartitionOffset> all;
  for (int p = 0; p < partitions; ++p) all.push_back({"data", p, 0, {}});
  ASSERT_TRUE(consumer.assign(all));
  std::map<std::int32_t, int> batches_of;
  int batches = 0;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (batches < 40 && std::chrono::steady_clock::now() < deadline) {
    for (const auto& batch : consumer.poll(100ms).value()) {
      ++batches_of[batch.partition()];
      ++batches;
    }
  }
  // Of 160 batches a quarter has come: from everywhere, not all of one partition before the next.
  EXPECT_EQ(batches_of.size(), static_cast<std::size_t>(partitions));
}

TEST(Consumer, CloseDoesNotWaitForABrokerThatHangs) {
  // A listener that accepts in the kernel and never answers.
  const auto listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 16), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  auto consumer =
      Consumer::open({{"bootstrap.servers", "127.0.0.1:" + std::to_string(ntohs(address.sin_port))}}).value();
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  EXPECT_TRUE(consumer.poll(300ms).value().empty());
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(consumer.close());
  EXPECT_LT(std::chrono::steady_clock::now() - before, 10s);
  ::close(listener);
}

TEST(Consumer, TransportAutoSaysWhyItFellBack) {
  TestBroker broker{{"onesided.enable", "false"}};
  broker.create_topic("data", 1);
  broker.append_numbers("data", 0, 0, 10);
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}}).value();
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  expect_numbers(read(consumer, 10), 0, 10);
  EXPECT_EQ(consumer.path({"data", 0}).path, Path::tcp_fetch);
  EXPECT_NE(consumer.path({"data", 0}).reason, "");
}

TEST(Consumer, EveryChangeOfPathIsCountedWithItsReason) {
  for (const bool enabled : {true, false}) {
    TestBroker broker{{"onesided.enable", enabled ? "true" : "false"}};
    broker.create_topic("data", 1);
    broker.append_numbers("data", 0, 0, 10);
    auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}}).value();
    ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
    expect_numbers(read(consumer, 10), 0, 10);
    std::int64_t starts = 0, no_session = 0, others = 0;
    for (const auto& one : consumer.metrics()) {
      if (one.name == "ciuic_client_onesided_starts_total") starts = one.value;
      if (one.name == "ciuic_client_fallbacks_total") (one.label == "no_session" ? no_session : others) += one.value;
    }
    EXPECT_EQ(starts, enabled ? 1 : 0);
    EXPECT_EQ(no_session, enabled ? 0 : 1);
    EXPECT_EQ(others, 0);
  }
}

/// Fetch answers that always have something, as under a steady producer or behind a backlog, do not keep a reader on
/// TCP.
TEST(Consumer, ReturnsToTheOneSidedPathWithABacklogBeforeIt) {
  TestBroker broker;
  broker.create_topic("data", 1, {{"retention.ms", "-1"}});  // the records are old
  constexpr std::int64_t records = 60'000;
  broker.append_numbers("data", 0, 0, records, 3);
  auto consumer =
      Consumer::open({{"bootstrap.servers", broker.address()}, {"max.partition.fetch.bytes", "1000"}}).value();
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  std::int64_t next = 0;
  RecordReader reader;
  bool restarted = false, fetched = false, back = false;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (next < records && !back && std::chrono::steady_clock::now() < deadline) {
    const auto got = consumer.poll(100ms);
    ASSERT_TRUE(got) << got.error().text;
    for (const auto& batch : *got) {
      ASSERT_TRUE(reader.open(batch));
      while (const auto* record = reader.next()) ASSERT_EQ(record->offset, next++);
    }
    const auto path = consumer.path({"data", 0}).path;
    fetched = fetched || (restarted && path == Path::tcp_fetch);
    back = fetched && path == Path::one_sided;
    if (!restarted && path == Path::one_sided) {
      broker.stop();
      while (consumer.path({"data", 0}).path != Path::tcp_fetch && std::chrono::steady_clock::now() < deadline)
        (void)consumer.poll(10ms);
      ASSERT_TRUE(consumer.seek({"data", 0}, 0));
      next = 0;
      broker.start();
      restarted = true;
    }
    if (restarted) std::this_thread::sleep_for(1ms);  // answers come sooner than they are read
  }
  EXPECT_TRUE(back) << "at " << next << " of " << records;
}

TEST(Consumer, TransportRdmaInsists) {
  TestBroker broker{{"onesided.enable", "false"}};
  broker.create_topic("data", 1);
  broker.append_numbers("data", 0, 0, 10);
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}, {"transport", "rdma"}}).value();
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  const auto got = consumer.poll(10s);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().trouble, Trouble::no_one_sided_path);
}

/// Over libfabric's TCP and over UCX, on which a hostile reader could do harm: the broker has to be told that there is
/// none.
TEST(Consumer, ReadsByLibfabricAndUcxWhereReadersAreTrusted) {
  for (const auto& [provider, trusted] : {std::pair("ofi", true), {"ofi", false}, {"ucx", true}, {"ucx", false}}) {
    TestBroker broker{{"onesided.providers", provider},
                      {"onesided.listen", "127.0.0.1"},
                      {"rdma.trusted.readers", trusted ? "true" : "false"}};
    broker.create_topic("data", 1);
    broker.append_numbers("data", 0, 0, 1000);
    auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}, {"transport", "rdma"}}).value();
    ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
    if (trusted) {
      expect_numbers(read(consumer, 1000), 0, 1000);
      EXPECT_EQ(consumer.path({"data", 0}).provider, provider);
    } else {
      const auto got = consumer.poll(10s);
      ASSERT_FALSE(got);
      EXPECT_EQ(got.error().trouble, Trouble::no_one_sided_path);
    }
  }
}

TEST(Consumer, AnUnknownTopicIsAnError) {
  TestBroker broker{{"auto.create.topics.enable", "false"}};
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}}).value();
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"nowhere", 0, 0, {}}}));
  const auto got = consumer.poll(10s);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().kafka_code, 3) << got.error().text;
}

TEST(Consumer, WakeupEndsAPoll) {
  TestBroker broker;
  broker.create_topic("data", 1);
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}}).value();
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  std::thread other([&] {
    std::this_thread::sleep_for(100ms);
    consumer.wakeup();
  });
  const auto got = consumer.poll(20s);
  other.join();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().trouble, Trouble::interrupted);
  EXPECT_TRUE(consumer.poll(50ms));
}

TEST(Consumer, WithoutABrokerPollWaitsAndCloseIsQuick) {
  auto consumer = Consumer::open({{"bootstrap.servers", "127.0.0.1:1"}}).value();
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  EXPECT_TRUE(consumer.poll(300ms).value().empty());
  const auto questioned = consumer.end_offsets(std::vector<TopicPartition>{{"data", 0}}, 300ms);
  ASSERT_FALSE(questioned);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(consumer.close());
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
  EXPECT_EQ(consumer.poll(1ms).error().trouble, Trouble::invalid_state);
}

TEST(Consumer, Questions) {
  TestBroker broker;
  broker.create_topic("data", 2);
  broker.append_numbers("data", 1, 0, 10);
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}}).value();
  const std::vector<TopicPartition> both{{"data", 0}, {"data", 1}};
  EXPECT_EQ(consumer.end_offsets(both).value().at(1).offset, 10);
  EXPECT_EQ(consumer.end_offsets(both).value().at(0).offset, 0);
  EXPECT_EQ(consumer.beginning_offsets(both).value().at(1).offset, 0);
  const std::vector<TopicPartitionOffset> times{{"data", 1, 1'700'000'000'004, {}}, {"data", 0, 1, {}}};
  EXPECT_EQ(consumer.offsets_for_times(times).value().at(0).offset, 4);
  EXPECT_EQ(consumer.offsets_for_times(times).value().at(1).offset, -1);
  const std::vector<std::string> names{"data"};
  const auto topics = consumer.topics(names).value();
  ASSERT_EQ(topics.size(), 1U);
  EXPECT_EQ(topics[0].partitions.size(), 2U);
  EXPECT_EQ(topics[0].topic_id.size(), 22U);
  EXPECT_EQ(consumer.commit_sync().error().trouble, Trouble::invalid_state);
}

TEST(Consumer, AForkedChildIsTold) {
  TestBroker broker;
  broker.create_topic("data", 1);
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}}).value();
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  const auto child = ::fork();
  if (child == 0) {
    const auto got = consumer.poll(10ms);
    bool told = !got && got.error().trouble == Trouble::forked_child && consumer.close();
    told = told && consumer.lags().empty() && consumer.assignment().empty();
#if !defined(__SANITIZE_THREAD__)  // which allows a forked child no threads
    consumer = Consumer::open({{"bootstrap.servers", broker.address()}}).value();  // what the error advises
    told = told && consumer.close();
#endif
    ::_exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(consumer.poll(10ms));
}

}  // namespace
}  // namespace ciuic::client
