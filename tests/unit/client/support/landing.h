#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "ciuic/consumer.h"
#include "tests/gpu/contract.h"
#include "tests/unit/client/support/test_broker.h"

/// Tests of memory that a program names for its batches, over every way that they get there.
namespace ciuic::client::test {

struct Way {
  const char* name;
  const char* transport;
  const char* provider;  // of the broker
  const char* landing;   // how path() begins
  Memory memory = Memory::host;
};

/// A broker that one way leads to, and memory that batches are wanted in.
class Landing : public ::testing::TestWithParam<Way> {
 protected:
  Landing()
      : broker_{{"onesided.providers", GetParam().provider},
                {"onesided.listen", std::string_view(GetParam().provider) == "shm" ? "" : "127.0.0.1"},
                {"rdma.trusted.readers", "true"}} {
    broker_.create_topic("data", 2);
  }
  /// A consumer whose batches land in so much memory, which lives as long as the test.
  Consumer open(std::size_t landing_bytes, Config more = {}) {
    if (GetParam().memory == Memory::host) {
      host_.assign(landing_bytes, std::byte{0xEE});
      memory_ = {reinterpret_cast<std::uintptr_t>(host_.data()), host_.size()};
    } else {
      gpu_ = testing::cuda_memory(landing_bytes).value();
      memory_ = gpu_.span;
    }
    Config config{{"bootstrap.servers", broker_.address()},
                  {"transport", GetParam().transport},
                  {"auto.offset.reset", "earliest"}};
    config.insert(config.end(), more.begin(), more.end());
    auto consumer = Consumer::open(config).value();
    consumer.land_in({GetParam().memory, reinterpret_cast<void*>(memory_.address), memory_.bytes}).value();
    return consumer;
  }
  static void assign(Consumer& consumer, std::int32_t partitions = 1) {
    std::vector<TopicPartitionOffset> all;
    for (std::int32_t p = 0; p < partitions; ++p) all.push_back({"data", p, offset_beginning, {}});
    ASSERT_TRUE(consumer.assign(all));
  }
  [[nodiscard]] bool inside(const RecordBatch& batch) const {
    const bool host = GetParam().memory == Memory::host;
    if (host != !batch.bytes().empty() || host != (batch.device_bytes().size == 0)) return false;
    const auto at = host ? reinterpret_cast<std::uintptr_t>(batch.bytes().data()) : batch.device_bytes().address;
    return at >= memory_.address && at + batch.size() <= memory_.address + memory_.bytes;
  }
  /// The batch for the CPU to read.
  static RecordBatch readable(const RecordBatch& batch) {
    if (!batch.bytes().empty()) return batch;
    RecordReader reader;
    EXPECT_EQ(reader.open(batch).error().trouble, Trouble::invalid_state);
    auto copy = batch.copy().value();
    EXPECT_TRUE(copy.base_offset() == batch.base_offset() && copy.last_offset() == batch.last_offset() &&
                copy.record_count() == batch.record_count() && copy.compression() == batch.compression() &&
                copy.max_timestamp() == batch.max_timestamp() && copy.leader_epoch() == batch.leader_epoch());
    return copy;
  }
  static std::int64_t metric(const Consumer& consumer, const std::string& name, const std::string& label) {
    for (const auto& one : consumer.metrics())
      if (one.name == name && one.label == label) return one.value;
    return -1;
  }
  /// Each record of the batches is the next number.
  void expect_numbers(std::span<const RecordBatch> batches, std::int64_t& next) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(inside(batch));
      ASSERT_TRUE(reader_.open(readable(batch)));
      while (const auto* record = reader_.next()) {
        ASSERT_EQ(record->offset, next);
        ASSERT_EQ(as_text(*record->value), std::to_string(next));
        ++next;
      }
      ASSERT_TRUE(batch.in_force());
      ASSERT_FALSE(batch.in_place());
    }
  }

  TestBroker broker_;
  std::vector<std::byte> host_;
  testing::Place gpu_;
  device::Span memory_;
  RecordReader reader_;
};

[[nodiscard]] inline auto every_way() {
  return ::testing::Values(Way{"tcp", "tcp", "shm", "copied: from what Fetch brought into host"},
                           Way{"shm", "rdma", "shm", "copied: from the broker's memory"},
                           Way{"memory", "rdma", "memory", "direct: "}, Way{"ofi", "rdma", "ofi", "direct: "},
                           Way{"ucx", "rdma", "ucx", "direct: "},
                           Way{"tcp_gpu", "tcp", "shm", "copied: from what Fetch brought into cuda:0", Memory::cuda},
                           Way{"shm_gpu", "rdma", "shm", "copied: from the broker's memory", Memory::cuda},
                           Way{"memory_gpu", "rdma", "memory", "direct: ", Memory::cuda},
                           Way{"ofi_gpu", "rdma", "ofi", "copied: into cuda:0", Memory::cuda});
}
[[nodiscard]] inline std::string name_of(const ::testing::TestParamInfo<Way>& one) { return one.param.name; }

}  // namespace ciuic::client::test
