#pragma once
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "broker/server.h"
#include "ciuic/types.h"
#include "transport/kafka/compression.h"

namespace ciuic::client::test {

struct TestRecord {
  std::string key{};
  std::string value{};
  std::int64_t timestamp = 1'700'000'000'000;
};

/// A real broker in this process, with a log directory of its own, and the raw requests that a test needs of it. Fails
/// the test (by throwing) where something does not work.
class TestBroker {
 public:
  TestBroker(std::initializer_list<broker::Overrides::value_type> overrides = {});
  TestBroker(const TestBroker&) = delete;
  TestBroker& operator=(const TestBroker&) = delete;
  ~TestBroker();

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void create_topic(const std::string& name, std::int32_t partitions,
                    std::vector<std::pair<std::string, std::string>> configs = {});
  void delete_topic(const std::string& name);
  /// Grows the topic to `partitions` in all.
  void add_partitions(const std::string& name, std::int32_t partitions);
  /// Appends one batch; gives its base offset.
  std::int64_t append(const std::string& topic, std::int32_t partition, const std::vector<TestRecord>& records,
                      kafka::Codec codec = kafka::Codec::none);
  /// `count` records "0", "1", … from `first` on, in batches of `per_batch`.
  void append_numbers(const std::string& topic, std::int32_t partition, std::int64_t first, std::int64_t count,
                      std::int64_t per_batch = 10, kafka::Codec codec = kafka::Codec::none);
  /// Puts whole batches at the log's end, as another broker would have left them: transactions, say, which this one
  /// only reads. REQUIRES: it is stopped.
  void write_log(const std::string& topic, std::int32_t partition, Bytes batches);
  void stop();
  /// Starts again on the same directory and port.
  void start();

 private:
  std::filesystem::path directory_;
  broker::Overrides overrides_;
  std::uint16_t port_ = 0;
  std::unique_ptr<broker::Server> server_;
};

}  // namespace ciuic::client::test
