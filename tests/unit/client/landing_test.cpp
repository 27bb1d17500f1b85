// Batches into the program's memory, by every path, when it is full, and when they do not fit.
#include "tests/unit/client/support/landing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <random>
#include <thread>

#include "ciuic/consumer.h"
#include "tests/gpu/fake_cuda/fake_cuda.h"

namespace ciuic::client {
namespace {

using namespace std::chrono_literals;
using test::Landing;
using test::TestBroker;
using test::Way;

TEST_P(Landing, EveryBatchLiesInTheProgramsMemory) {
  std::int64_t written = 0;
  for (const auto codec : {kafka::Codec::none, kafka::Codec::lz4, kafka::Codec::zstd}) {
    broker_.append_numbers("data", 0, written, 5000, 100, codec);
    written += 5000;
  }
  auto consumer = open(4U << 20);
  assign(consumer);
  std::int64_t next = 0;
  std::size_t bytes = 0;
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (next < written && std::chrono::steady_clock::now() < deadline) {
    const auto got = consumer.poll(1s);
    ASSERT_TRUE(got) << got.error().text;
    for (const auto& batch : *got) bytes += batch.size();
    ASSERT_NO_FATAL_FAILURE(expect_numbers(*got, next));
  }
  ASSERT_EQ(next, written);
  const auto path = consumer.path({"data", 0});
  EXPECT_EQ(path.landing.rfind(GetParam().landing, 0), 0U) << path.landing << " " << path.reason;
  const bool direct = std::string_view(GetParam().landing).starts_with("direct");
  EXPECT_GE(metric(consumer, "ciuic_client_landed_bytes_total", direct ? "direct" : "copied"),
            static_cast<std::int64_t>(bytes));
  EXPECT_EQ(metric(consumer, "ciuic_client_landed_bytes_total", direct ? "copied" : "direct"), 0);
}

TEST_P(Landing, AFullBufferWaitsForTheProgramAndLosesNothing) {
  broker_.append_numbers("data", 0, 0, 20'000, 50);
  auto consumer = open(64U << 10);
  assign(consumer);
  std::deque<RecordBatch> kept;
  std::int64_t next = 0;
  int full = 0;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (next < 20'000 && std::chrono::steady_clock::now() < deadline) {
    const auto got = consumer.poll(50ms);
    if (!got) {
      ASSERT_EQ(got.error().trouble, Trouble::queue_full) << got.error().text;
      EXPECT_TRUE(got.error().retriable);
      ASSERT_FALSE(kept.empty());
      // What is held stays as it was.
      for (const auto& batch : kept) {
        ASSERT_TRUE(reader_.open(readable(batch)));
        const auto* const record = reader_.next();
        ASSERT_TRUE(record != nullptr && as_text(*record->value) == std::to_string(record->offset));
      }
      ASSERT_TRUE(reader_.open(RecordBatch()));
      kept.clear();
      ++full;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_numbers(*got, next));
    kept.insert(kept.end(), got->begin(), got->end());
  }
  EXPECT_EQ(next, 20'000);
  EXPECT_GT(full, 1);
}

TEST_P(Landing, RoomThatAnotherThreadMakesIsUsedAtOnce) {
  broker_.append_numbers("data", 0, 0, 5000, 50);
  auto consumer = open(32U << 10);
  assign(consumer);
  std::vector<RecordBatch> kept;
  while (true) {
    const auto got = consumer.poll(200ms);
    if (!got) break;
    ASSERT_FALSE(got->empty()) << "the buffer is larger than the test believes";
    kept.insert(kept.end(), got->begin(), got->end());
  }
  auto next = kept.back().last_offset() + 1;
  std::thread other([mine = std::move(kept)]() mutable {
    std::this_thread::sleep_for(100ms);
    mine.clear();
  });
  const auto got = consumer.poll(20s);
  other.join();
  ASSERT_TRUE(got) << got.error().text;
  ASSERT_NO_FATAL_FAILURE(expect_numbers(*got, next));
}

TEST_P(Landing, ABatchLargerThanTheBufferIsSaidAndCanBePassedOver) {
  broker_.append_numbers("data", 0, 0, 10);
  broker_.append("data", 0, {{"k", std::string(100'000, 'x')}});
  broker_.append_numbers("data", 0, 11, 10);
  auto consumer = open(16U << 10);
  assign(consumer);
  std::int64_t next = 0;
  while (next < 10) {
    const auto got = consumer.poll(5s);
    ASSERT_TRUE(got) << got.error().text;
    ASSERT_NO_FATAL_FAILURE(expect_numbers(*got, next));
  }
  for (int i = 0; i < 2; ++i) {
    const auto got = consumer.poll(5s);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().trouble, Trouble::queue_full);
    EXPECT_FALSE(got.error().retriable);
    EXPECT_NE(got.error().text.find("16384"), std::string::npos) << got.error().text;
  }
  ASSERT_TRUE(consumer.seek({"data", 0}, 11));
  next = 11;
  while (next < 21) {
    const auto got = consumer.poll(5s);
    ASSERT_TRUE(got) << got.error().text;
    ASSERT_NO_FATAL_FAILURE(expect_numbers(*got, next));
  }
}

/// A trainer that holds on to batches for a while, lets go of them out of order, and jumps about.
TEST_P(Landing, WhateverTheProgramHoldsNothingOfItChanges) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 dice(seed);
  for (int p = 0; p < 2; ++p)
    for (std::int64_t at = 0; at < 20'000; at += 1000)
      broker_.append_numbers("data", p, at, 1000, 1 + static_cast<std::int64_t>(dice() % 300),
                             dice() % 2 == 0 ? kafka::Codec::none : kafka::Codec::lz4);
  auto consumer = open(256U << 10);
  assign(consumer, 2);
  std::vector<RecordBatch> kept;
  std::int64_t records = 0;
  const auto check = [&](const RecordBatch& batch) {
    ASSERT_TRUE(reader_.open(readable(batch)));
    auto offset = std::max(batch.base_offset(), batch.first_wanted_offset());
    while (const auto* record = reader_.next()) {
      ASSERT_EQ(record->offset, offset);
      ASSERT_EQ(as_text(*record->value), std::to_string(offset));
      ++offset;
      ++records;
    }
    ASSERT_EQ(offset, batch.last_offset() + 1);
  };
  const auto deadline = std::chrono::steady_clock::now() + 2s;
  while (std::chrono::steady_clock::now() < deadline) {
    if (dice() % 50 == 0) {
      ASSERT_TRUE(
          consumer.seek({"data", static_cast<std::int32_t>(dice() % 2)}, static_cast<std::int64_t>(dice() % 20'000)));
    }
    const auto got = consumer.poll(10ms);
    if (got) {
      for (const auto& batch : *got) ASSERT_NO_FATAL_FAILURE(check(batch));
      if (dice() % 2 == 0) kept.insert(kept.end(), got->begin(), got->end());
      if (got->empty()) {
        ASSERT_TRUE(consumer.seek({"data", 0}, 0));
      }
    } else {
      ASSERT_EQ(got.error().trouble, Trouble::queue_full) << got.error().text;
    }
    while (!kept.empty() && (!got || kept.size() > 100)) {
      const auto which = dice() % kept.size();
      ASSERT_NO_FATAL_FAILURE(check(kept[which]));
      std::swap(kept[which], kept.back());
      kept.pop_back();
      if (dice() % 4 == 0) break;
    }
    ASSERT_TRUE(reader_.open(RecordBatch()));
  }
  EXPECT_GT(records, 1000);
}

INSTANTIATE_TEST_SUITE_P(Every, Landing, test::every_way(), test::name_of);

/// Pages that a pin holds are not what is mapped there once the broker has given them back and taken others.
TEST(ChunkPin, EndsWithTheGrant) {
  auto& driver = *fake_cuda();
  driver = testing::FakeCuda{};
  TestBroker broker({{"onesided.providers", "shm"}});
  broker.create_topic("data", 1);
  broker.append_numbers("data", 0, 0, 1000, 100);
  const auto gpu = testing::cuda_memory(1U << 20).value();
  auto consumer = Consumer::open({{"bootstrap.servers", broker.address()}, {"transport", "rdma"}}).value();
  ASSERT_TRUE(consumer.land_in({Memory::cuda, reinterpret_cast<void*>(gpu.span.address), gpu.span.bytes}));
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  const auto read = [&] {
    const auto got = consumer.poll(10s);
    ASSERT_TRUE(got) << got.error().text;
    ASSERT_FALSE(got->empty());
  };
  read();
  EXPECT_EQ(driver.registered, 1);
  for (int i = 0; i < 3; ++i) {
    driver.last_register_flags = 0;
    ASSERT_TRUE(consumer.seek({"data", 0}, 0));
    if (i > 0) std::this_thread::sleep_for(200ms);  // the next grant is there before the one before has been let go of
    read();
    EXPECT_NE(driver.last_register_flags, 0U) << "the pin of the grant before is used";
    EXPECT_EQ(driver.registered, 1);
  }
  ASSERT_TRUE(consumer.assign({}));
  ASSERT_TRUE(consumer.poll(0ms));
  EXPECT_EQ(driver.registered, 0);
}

/// What the driver refuses costs speed, never records, and is said.
class Refusing : public Landing {
 protected:
  void TearDown() override { *fake_cuda() = testing::FakeCuda{}; }
  void expect_all(const std::string& landing) {
    broker_.append_numbers("data", 0, 0, 3000, 100);
    auto consumer = open(256U << 10);
    assign(consumer);
    std::int64_t next = 0;
    while (next < 3000) {
      const auto got = consumer.poll(5s);
      ASSERT_TRUE(got) << got.error().text;
      ASSERT_FALSE(got->empty());
      ASSERT_NO_FATAL_FAILURE(expect_numbers(*got, next));
    }
    EXPECT_NE(consumer.path({"data", 0}).landing.find(landing), std::string::npos)
        << consumer.path({"data", 0}).landing;
  }
};
TEST_P(Refusing, ADmaBuf) {
  fake_cuda()->dma_buf = false;
  expect_all("copied: ");
}
TEST_P(Refusing, ToPinHostMemory) {
  fake_cuda()->registers = false;
  expect_all("");
}
TEST_P(Refusing, ToPinWhatMayOnlyBeRead) {
  fake_cuda()->registers_read_only = false;
  expect_all("");
}
TEST_P(Refusing, ToCompileKernels) {
  fake_cuda()->compiles = false;
  expect_all("copied: ");
}
INSTANTIATE_TEST_SUITE_P(Every, Refusing,
                         ::testing::Values(Way{"tcp", "tcp", "shm", "", Memory::cuda},
                                           Way{"shm", "rdma", "shm", "", Memory::cuda},
                                           Way{"memory", "rdma", "memory", "", Memory::cuda},
                                           Way{"ofi", "rdma", "ofi", "", Memory::cuda}),
                         [](const auto& one) { return std::string(one.param.name); });

/// A driver that fails at any one of its calls, once or from then on: records come in order or an error does, and
/// nothing stands still.
class Failing : public Landing {
 protected:
  void TearDown() override { *fake_cuda() = testing::FakeCuda{}; }
};
TEST_P(Failing, AtAnyCall) {
  broker_.append_numbers("data", 0, 0, 1000, 50);
  int hit = 0;
  for (const bool lost : {false, true}) {
    for (int at = 1; at < 120; at += lost ? 7 : 3) {
      SCOPED_TRACE("call " + std::to_string(at) + (lost ? " and all behind it" : ""));
      auto consumer = open(64U << 10);
      assign(consumer);
      fake_cuda()->lost = lost;
      fake_cuda()->fail_at = at;
      std::int64_t next = 0;
      int errors = 0;
      const auto deadline = std::chrono::steady_clock::now() + 20s;
      while (next < 1000 && errors < 3) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
        const auto got = consumer.poll(2s);
        if (!got) {
          EXPECT_EQ(got.error().trouble, Trouble::fatal) << got.error().text;
          EXPECT_NE(got.error().text.find("cu"), std::string::npos) << got.error().text;
          ++errors;
          continue;
        }
        for (const auto& batch : *got) {
          ASSERT_EQ(batch.base_offset(), next);
          auto offset = next;
          next = batch.last_offset() + 1;
          const auto copy = batch.copy();
          if (!copy) continue;  // the call that failed
          ASSERT_TRUE(reader_.open(*copy));
          while (const auto* record = reader_.next()) ASSERT_EQ(as_text(*record->value), std::to_string(offset++));
          ASSERT_EQ(offset, next);
        }
      }
      ASSERT_TRUE(reader_.open(RecordBatch()));
      hit += fake_cuda()->failed.empty() ? 0 : 1;
      *fake_cuda() = testing::FakeCuda{};
    }
  }
  EXPECT_GT(hit, 10);
}
INSTANTIATE_TEST_SUITE_P(Every, Failing,
                         ::testing::Values(Way{"tcp", "tcp", "shm", "", Memory::cuda},
                                           Way{"shm", "rdma", "shm", "", Memory::cuda},
                                           Way{"memory", "rdma", "memory", "", Memory::cuda},
                                           Way{"ofi", "rdma", "ofi", "", Memory::cuda}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(LandIn, ComesBeforeTheFirstAssignmentAndOnce) {
  std::vector<std::byte> memory(8192);
  const LandingBuffer buffer{Memory::host, memory.data(), memory.size()};
  const Config config{{"bootstrap.servers", "127.0.0.1:1"}};
  auto late = Consumer::open(config).value();
  ASSERT_TRUE(late.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}));
  EXPECT_EQ(late.land_in(buffer).error().trouble, Trouble::invalid_state);
  auto twice = Consumer::open(config).value();
  ASSERT_TRUE(twice.land_in(buffer));
  EXPECT_EQ(twice.land_in(buffer).error().trouble, Trouble::invalid_state);
}

TEST(LandIn, SaysWhatIsWrongWithTheMemory) {
  std::vector<std::byte> memory(8192);
  auto consumer = Consumer::open({{"bootstrap.servers", "127.0.0.1:1"}}).value();
  EXPECT_EQ(consumer.land_in({Memory::host, nullptr, 1U << 20}).error().trouble, Trouble::invalid_argument);
  const auto small = consumer.land_in({Memory::host, memory.data(), 4095});
  EXPECT_EQ(small.error().trouble, Trouble::invalid_argument);
  EXPECT_NE(small.error().text.find("4095"), std::string::npos);
  // Host memory is no GPU's, whether there is a driver or not.
  const auto cuda = consumer.land_in({Memory::cuda, memory.data(), memory.size()});
  ASSERT_FALSE(cuda);
  EXPECT_FALSE(cuda.error().text.empty());
  EXPECT_TRUE(
      consumer.land_in({Memory::host, memory.data(), memory.size()}));  // a refusal leaves the consumer as it was
}

}  // namespace
}  // namespace ciuic::client
