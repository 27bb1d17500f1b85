// Room in the program's memory: who keeps it, who waits for it, and batches given in the parts that it has room for.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "ciuic/consumer.h"
#include "tests/unit/client/support/landing.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::client {
namespace {

using namespace std::chrono_literals;

class LandingRoom : public test::Landing {};

TEST_P(LandingRoom, ABatchThatOnlyTheBuffersLastBytesWouldHoldIsTooLargeToo) {
  broker_.append("data", 0, {{"k", std::string(16'400, 'x')}});
  auto consumer = open((16U << 10) + 200);  // pieces are of whole 256 bytes
  assign(consumer);
  const auto got = consumer.poll(5s);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().trouble, Trouble::queue_full);
  EXPECT_FALSE(got.error().retriable);
}

/// What readers that stand still have in the buffer is no reason to be full: nothing is held by the program.
TEST_P(LandingRoom, PartitionsThatAreDoneOrPausedKeepNoRoomFromOthers) {
  constexpr std::int32_t partitions = 12;
  constexpr std::int64_t batches = 10, per_batch = 100;
  broker_.create_topic("many", partitions);
  const std::vector<test::TestRecord> batch(per_batch, {"k", std::string(800, 'x')});
  for (std::int32_t p = 0; p < partitions; ++p)
    for (std::int64_t i = 0; i < batches; ++i) broker_.append("many", p, batch);
  std::vector<TopicPartition> all;
  for (std::int32_t p = 0; p < partitions; ++p) all.push_back({"many", p});
  for (const auto& [bytes, pauses] : {std::pair{8U << 20, false}, {512U << 10, false}, {512U << 10, true}}) {
    SCOPED_TRACE(std::to_string(bytes) + (pauses ? " pauses" : ""));
    auto consumer = open(bytes);
    std::vector<TopicPartitionOffset> from;
    for (const auto& one : all) from.push_back({one.topic, one.partition, offset_beginning, {}});
    ASSERT_TRUE(consumer.assign(from));
    std::map<std::int32_t, std::int64_t> next;
    const auto read_until = [&](const auto& enough) {
      while (!enough()) {
        const auto got = consumer.poll(2s);
        ASSERT_TRUE(got) << got.error().text;
        ASSERT_FALSE(got->empty());
        for (const auto& one : *got) {
          ASSERT_EQ(one.base_offset(), next[one.partition()]);
          next[one.partition()] = one.last_offset() + 1;
        }
      }
    };
    for (std::int32_t p = 0; pauses && p < partitions; ++p) {
      // The others are stopped in the middle of whatever they are at.
      ASSERT_TRUE(consumer.resume(all));
      ASSERT_NO_FATAL_FAILURE(read_until([&, was = next]() { return next != was; }));
      ASSERT_TRUE(consumer.pause(all));
      ASSERT_TRUE(consumer.resume(std::vector{all[static_cast<std::size_t>(p)]}));
      ASSERT_NO_FATAL_FAILURE(read_until([&] { return next[p] == batches * per_batch; }));
    }
    ASSERT_TRUE(consumer.resume(all));
    ASSERT_NO_FATAL_FAILURE(read_until([&] {
      return static_cast<std::int32_t>(std::count_if(next.begin(), next.end(), [&](const auto& one) {
               return one.second == batches * per_batch;
             })) == partitions;
    }));
  }
}

TEST_P(LandingRoom, ManyPartitionsInASmallBufferAreNeverFullOfNothing) {
  constexpr std::int32_t partitions = 12;
  broker_.create_topic("many", partitions);
  for (std::int32_t p = 0; p < partitions; ++p) broker_.append_numbers("many", p, 0, 3000, 100);
  auto consumer = open(64U << 10);
  std::vector<TopicPartitionOffset> all;
  for (std::int32_t p = 0; p < partitions; ++p) all.push_back({"many", p, offset_beginning, {}});
  ASSERT_TRUE(consumer.assign(all));
  std::int64_t records = 0;
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (records < 3000 * partitions && std::chrono::steady_clock::now() < deadline) {
    const auto got = consumer.poll(0ms);
    ASSERT_TRUE(got) << got.error().text;
    for (const auto& batch : *got) records += batch.record_count();
  }
  EXPECT_EQ(records, 3000 * partitions);
}

TEST_P(LandingRoom, ALongBatchIsNotKeptWaitingByShortOnes) {
  constexpr std::int32_t partitions = 7;
  broker_.create_topic("many", partitions);
  const std::vector<test::TestRecord> batch(10, {"k", std::string(300, 'x')});
  const std::string longer(50'000, 'x');
  for (std::int32_t p = 0; p < partitions; ++p)
    for (int i = 0; i < 200; ++i) broker_.append("many", p, batch);
  for (std::int32_t p = 0; p < partitions; ++p) {
    const auto at = broker_.append("many", p, {{"k", longer}});
    for (int i = 0; i < 100; ++i) broker_.append("many", p, batch);
    auto consumer = open(64U << 10);
    std::vector<TopicPartitionOffset> all;
    for (std::int32_t q = 0; q < partitions; ++q) all.push_back({"many", q, q == p ? at : offset_beginning, {}});
    ASSERT_TRUE(consumer.assign(all));
    std::int64_t polls = 0;
    while (true) {
      const auto got = consumer.poll(3s);
      ASSERT_TRUE(got) << got.error().text;
      ASSERT_FALSE(got->empty()) << "after " << polls;
      if (got->front().partition() == p) break;
      ++polls;
      std::this_thread::sleep_for(1ms);  // a program that does something with them
    }
    EXPECT_LT(polls, 150) << "of about 250 that give all that the others have";
  }
}

/// Committed, aborted and open transactions, given in parts that a small buffer has room for, by a consumer that jumps
/// about, pauses, and outlives a broker: from each position on come the records that are committed, and no others.
TEST_P(LandingRoom, AbortedRecordsAreLeftOutWhateverPartsTheyComeIn) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 dice(seed);
  const auto roll = [&](std::int64_t below) { return static_cast<std::int64_t>(dice()) % below; };
  struct Written {
    std::int64_t offset;
    std::string value;
  };
  std::vector<Written> committed;
  std::map<std::int64_t, std::int32_t> sequences;
  Buffer log;
  std::int64_t end = 0;
  const auto write = [&](std::int64_t producer, int records, std::vector<Written>* into) {
    kafka::RecordBatchBuilder builder;
    std::vector<std::string> values;
    for (int i = 0; i < records; ++i)
      values.push_back(std::to_string(dice()) + std::string(static_cast<std::size_t>(roll(500)), 'x'));
    for (const auto& value : values) builder.add({.timestamp = 1, .key = as_bytes("k"), .value = as_bytes(value)});
    kafka::BatchHeader header;
    header.base_offset = kafka::Offset(end);
    header.leader_epoch = kafka::LeaderEpoch(0);
    header.codec = roll(3) == 0 ? kafka::Codec::lz4 : kafka::Codec::none;
    if (producer >= 0) {
      header.transactional = true;
      header.producer_id = kafka::ProducerId(producer);
      header.producer_epoch = kafka::ProducerEpoch(0);
      header.base_sequence = sequences[producer];
      sequences[producer] += records;
    }
    Buffer batch;
    ASSERT_TRUE(builder.finish(header, batch));
    log.insert(log.end(), batch.begin(), batch.end());
    for (auto& value : values) into->push_back({end++, std::move(value)});
  };
  std::map<std::int64_t, std::vector<Written>> open_ones;
  const auto finish = [&](std::int64_t producer, bool commit) {
    kafka::BatchHeader header;
    header.base_offset = kafka::Offset(end++);
    header.leader_epoch = kafka::LeaderEpoch(0);
    header.producer_id = kafka::ProducerId(producer);
    header.producer_epoch = kafka::ProducerEpoch(0);
    header.transactional = header.control = true;
    kafka::append_end_transaction_marker(log, header, commit ? kafka::ControlType::commit : kafka::ControlType::abort,
                                         0, 1);
    auto records = std::move(open_ones.at(producer));
    open_ones.erase(producer);
    if (commit) committed.insert(committed.end(), records.begin(), records.end());
  };
  for (int i = 0; i < 400; ++i) {
    const auto who = roll(4);
    if (who == 3) {
      ASSERT_NO_FATAL_FAILURE(write(-1, 1 + static_cast<int>(roll(6)), &committed));
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(write(who, 1 + static_cast<int>(roll(6)), &open_ones[who]));
    if (roll(5) == 0) finish(who, roll(2) == 0);
  }
  while (!open_ones.empty()) finish(open_ones.begin()->first, false);
  ASSERT_NO_FATAL_FAILURE(write(-1, 1, &committed));
  std::sort(committed.begin(), committed.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  broker_.create_topic("txn", 1, {{"retention.ms", "-1"}});
  broker_.stop();
  broker_.write_log("txn", 0, log);
  broker_.start();

  for (const std::size_t bytes : {4096U, 5000U, 16384U, 65536U}) {
    SCOPED_TRACE("buffer " + std::to_string(bytes));
    auto consumer = open(bytes, {{"isolation.level", "read_committed"}, {"fetch.max.wait.ms", "10"}});
    ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"txn", 0, offset_beginning, {}}}));
    std::deque<std::pair<RecordBatch, std::vector<std::string>>> kept;
    const auto values_of = [&](const RecordBatch& one) {
      std::vector<std::string> out;
      EXPECT_TRUE(reader_.open(readable(one)));
      while (const auto* record = reader_.next()) out.emplace_back(as_text(*record->value));
      EXPECT_TRUE(reader_.open(RecordBatch()));
      return out;
    };
    std::size_t next = 0;
    int jumps = 0, restarts = bytes == 16384U ? 1 : 0;
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (next < committed.size()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "at " << next << " of " << committed.size();
      if (jumps < 20 && roll(6) == 0) {
        const auto to = roll(end);
        ASSERT_TRUE(consumer.seek({"txn", 0}, to));
        next = static_cast<std::size_t>(std::lower_bound(committed.begin(), committed.end(), to,
                                                         [](const auto& one, auto at) { return one.offset < at; }) -
                                        committed.begin());
        ++jumps;
      }
      if (roll(10) == 0) {
        const std::vector<TopicPartition> all{{"txn", 0}};
        ASSERT_TRUE(consumer.pause(all));
        const auto nothing = consumer.poll(0ms);
        ASSERT_TRUE(nothing) << nothing.error().text;
        ASSERT_TRUE(nothing->empty());
        ASSERT_TRUE(consumer.resume(all));
      }
      if (restarts > 0 && jumps > 5 && !kept.empty()) {
        --restarts;
        broker_.stop();
        for (const auto& [one, values] : kept) ASSERT_EQ(values_of(one), values);
        broker_.start();
      }
      const auto got = consumer.poll(20ms);
      if (!got) {
        if (got.error().retriable && got.error().trouble != Trouble::queue_full) continue;
        ASSERT_EQ(got.error().trouble, Trouble::queue_full) << got.error().text;
        ASSERT_FALSE(kept.empty());
        kept.pop_front();
        continue;
      }
      for (const auto& one : *got) {
        ASSERT_TRUE(inside(one));
        ASSERT_TRUE(reader_.open(readable(one)));
        while (const auto* record = reader_.next()) {
          ASSERT_LT(next, committed.size());
          ASSERT_EQ(record->offset, committed[next].offset);
          ASSERT_EQ(as_text(*record->value), committed[next].value);
          ++next;
        }
        ASSERT_TRUE(reader_.open(RecordBatch()));
        if (roll(3) == 0) kept.emplace_back(one, values_of(one));
      }
      if (!kept.empty() && roll(3) == 0) kept.pop_front();
    }
    // What is held outlives the consumer.
    if (roll(2) == 0) {
      ASSERT_TRUE(consumer.close());
    }
    { const auto gone = std::move(consumer); }
    for (const auto& [one, values] : kept) ASSERT_EQ(values_of(one), values);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, LandingRoom, test::every_way(), test::name_of);

}  // namespace
}  // namespace ciuic::client
