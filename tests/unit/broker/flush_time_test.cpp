// flush.ms from wherever it is set, in a running broker: the recovery point, which only a sync moves, follows it.
// How the log keeps the time: tests/unit/log/flush_time_test.cpp.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "broker/broker.h"
#include "broker/server.h"
#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using std::chrono::seconds;

class BrokerFlushTime : public ::testing::Test {
 protected:
  ~BrokerFlushTime() override {
    server.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
  }
  void start(Overrides overrides = {}) {
    auto pattern = (std::filesystem::temp_directory_path() / "ciuic-broker-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory = pattern;
    overrides["log.dirs"] = directory / "logs";
    overrides["listeners"] = "PLAINTEXT://127.0.0.1:0";
    overrides["num.network.threads"] = "2";
    auto started = Server::start(overrides);
    ASSERT_TRUE(started) << started.error();
    server = std::move(*started);
  }
  /// One partition with a record in it.
  std::shared_ptr<Partition> written(const std::string& name, Overrides config = {}) {
    std::promise<CreatedTopic> created;
    NewTopic topic;
    topic.name = name;
    topic.partitions = 1;
    topic.replication_factor = 1;
    topic.config = std::move(config);
    server->broker().controller->create_topics({std::move(topic)}, Commit::yes,
                                               [&](std::vector<CreatedTopic> all) { created.set_value(all.at(0)); });
    const auto id = created.get_future().get().id;
    if (!id) ADD_FAILURE() << id.error().text;
    auto partition = id ? server->broker().partitions->find(*id, kafka::PartitionIndex(0)) : nullptr;
    append(partition);
    return partition;
  }
  static void append(const std::shared_ptr<Partition>& partition) {
    std::promise<bool> done;
    partition->executor().post([&] {
      partition->append(testing::make_batch({}), {}, [&](const auto& result) { done.set_value(result.has_value()); });
    });
    ASSERT_TRUE(done.get_future().get());
  }
  void alter(ConfigResource resource, const std::string& name, const std::string& key, const std::string& value) {
    std::promise<kafka::Error> done;
    server->broker().controller->alter_configs({{resource, name, {{key, ConfigChange::set, value}}}}, Commit::yes,
                                               [&](std::vector<NamedResult> all) { done.set_value(all.at(0).error); });
    const auto error = done.get_future().get();
    ASSERT_EQ(error.code, kafka::ErrorCode::none) << error.text;
  }
  /// True when all that was written is on the device within `limit`.
  static bool flushed(const std::shared_ptr<Partition>& partition, Milliseconds limit) {
    const auto until = system_clock().now() + limit;
    while (partition->recovery_point() < partition->published_high_watermark()) {
      if (system_clock().now() > until) return false;
      std::this_thread::sleep_for(Milliseconds(5));
    }
    return true;
  }
  std::filesystem::path directory;
  std::unique_ptr<Server> server;
};

TEST_F(BrokerFlushTime, ATopicsOwnHolds) {
  start();
  EXPECT_TRUE(flushed(written("asks", {{"flush.ms", "50"}}), seconds(10)));
  EXPECT_FALSE(flushed(written("does-not"), Milliseconds(300)));
}

TEST_F(BrokerFlushTime, TheBrokersHoldsForTopicsThatSayNothing) {
  start({{"log.flush.interval.ms", "50"}});
  EXPECT_TRUE(flushed(written("t"), seconds(10)));
}

TEST_F(BrokerFlushTime, OneSetWhileItRunsHoldsForWhatWasWrittenBefore) {
  start();
  const auto partition = written("t");
  EXPECT_FALSE(flushed(partition, Milliseconds(300)));
  alter(ConfigResource::topic, "t", "flush.ms", "50");
  EXPECT_TRUE(flushed(partition, seconds(10)));
}

TEST_F(BrokerFlushTime, OneSetForAllBrokersHoldsToo) {
  start();
  const auto partition = written("t");
  EXPECT_FALSE(flushed(partition, Milliseconds(300)));
  alter(ConfigResource::broker, "", "log.flush.interval.ms", "50");
  EXPECT_TRUE(flushed(partition, seconds(10)));
}

}  // namespace
}  // namespace ciuic::broker
