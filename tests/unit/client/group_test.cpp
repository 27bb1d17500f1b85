// Group membership against a real broker: sharing, moving, commits, static members, members that stop polling.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "ciuic/consumer.h"
#include "tests/unit/client/support/test_broker.h"

namespace ciuic::client {
namespace {

using namespace std::chrono_literals;
using test::TestBroker;

Consumer open(const TestBroker& broker, Config more = {}) {
  Config config{{"bootstrap.servers", broker.address()},
                {"group.id", "workers"},
                {"auto.offset.reset", "earliest"},
                {"heartbeat.interval.ms", "100"},
                {"session.timeout.ms", "6000"}};
  for (const auto& pair : more) config.push_back(pair);
  return Consumer::open(config).value();
}

/// A consumer on a thread of its own, as in a real program.
class Worker {
 public:
  Worker(const TestBroker& broker, Config more = {})
      : consumer_(open(broker, std::move(more))), thread_([this] { run(); }) {}
  ~Worker() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] std::size_t owned() const { return owned_; }
  [[nodiscard]] std::int64_t records() const { return records_; }

 private:
  void run() {
    RebalanceListener listener;
    listener.assigned = [this](std::span<const TopicPartition> partitions) { owned_ = partitions.size(); };
    listener.revoked = [this](std::span<const TopicPartition>) { owned_ = 0; };
    ASSERT_TRUE(consumer_.subscribe({"data"}, listener));
    while (!stop_) {
      const auto batches = consumer_.poll(50ms);
      ASSERT_TRUE(batches) << batches.error().text;
      for (const auto& batch : *batches)
        records_ += batch.last_offset() - std::max(batch.base_offset(), batch.first_wanted_offset()) + 1;
    }
    EXPECT_TRUE(consumer_.close());
  }
  Consumer consumer_;
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> owned_{0};
  std::atomic<std::int64_t> records_{0};
  std::thread thread_;
};

template <class Condition>
bool eventually(Condition condition, Milliseconds timeout = 20s) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(20ms);
  }
  return condition();
}

TEST(Group, MembersShareAndTakeOver) {
  TestBroker broker{{"group.initial.rebalance.delay.ms", "0"}};
  broker.create_topic("data", 4);
  for (int p = 0; p < 4; ++p) broker.append_numbers("data", p, 0, 100);
  Worker first(broker);
  EXPECT_TRUE(eventually([&] { return first.owned() == 4 && first.records() == 400; }))
      << first.owned() << " " << first.records();
  Worker second(broker);
  EXPECT_TRUE(eventually([&] { return first.owned() == 2 && second.owned() == 2; }))
      << first.owned() << " " << second.owned();
  for (int p = 0; p < 4; ++p) broker.append_numbers("data", p, 100, 50);
  EXPECT_TRUE(eventually([&] { return first.records() + second.records() == 600; }))
      << first.records() << " " << second.records();
  EXPECT_GE(second.records(), 100);
  first.stop();
  EXPECT_TRUE(eventually([&] { return second.owned() == 4; }));
  // What was committed is not read again.
  EXPECT_EQ(first.records() + second.records(), 600);
}

TEST(Group, CommittedOffsetsAreWhereTheNextOneBegins) {
  TestBroker broker{{"group.initial.rebalance.delay.ms", "0"}};
  broker.create_topic("data", 1);
  broker.append_numbers("data", 0, 0, 100);
  const std::vector<TopicPartition> at{{"data", 0}};
  {
    auto consumer = open(broker, {{"enable.auto.commit", "false"}});
    ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, offset_stored, {}}}));
    EXPECT_EQ(consumer.committed(at).value().at(0).offset, -1);
    EXPECT_EQ(consumer.position({"data", 0}).value(), 0);
    ASSERT_TRUE(consumer.commit_sync(std::vector<TopicPartitionOffset>{{"data", 0, 33, "here"}}));
    const auto committed = consumer.committed(at).value();
    EXPECT_EQ(committed.at(0).offset, 33);
    EXPECT_EQ(committed.at(0).metadata, "here");
  }
  auto consumer = open(broker);
  ASSERT_TRUE(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, offset_stored, {}}}));
  EXPECT_EQ(consumer.position({"data", 0}).value(), 33);
  std::atomic<int> called{0};
  ASSERT_TRUE(consumer.commit_async(std::vector<TopicPartitionOffset>{{"data", 0, 44, {}}},
                                    [&](const Result<void>& result) { called += result ? 1 : 100; }));
  EXPECT_TRUE(eventually([&] {
    (void)consumer.poll(10ms);
    return called == 1;
  }));
}

TEST(Group, PatternsFindTopics) {
  TestBroker broker{{"group.initial.rebalance.delay.ms", "0"}};
  broker.create_topic("logs-a", 1);
  broker.create_topic("logs-b", 2);
  broker.create_topic("other", 1);
  auto consumer = open(broker);
  ASSERT_TRUE(consumer.subscribe({"^logs-.*"}));
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(consumer.poll(50ms));
    return consumer.assignment().size() == 3;
  }));
  EXPECT_EQ(consumer.subscribe({"^("}).error().trouble, Trouble::invalid_argument);
  ASSERT_TRUE(consumer.unsubscribe());
  EXPECT_TRUE(consumer.assignment().empty());
}

TEST(Group, TopicsAndPartitionsThatComeLaterAreFound) {
  TestBroker broker{{"group.initial.rebalance.delay.ms", "0"}, {"auto.create.topics.enable", "false"}};
  auto named = open(broker, {{"metadata.max.age.ms", "300"}});
  auto pattern = open(broker, {{"group.id", "others"}, {"metadata.max.age.ms", "300"}});
  ASSERT_TRUE(named.subscribe({"logs-late"}));
  ASSERT_TRUE(pattern.subscribe({"^logs-.*"}));
  const auto both_have = [&](std::size_t partitions) {
    return eventually([&] {
      EXPECT_TRUE(named.poll(20ms));
      EXPECT_TRUE(pattern.poll(20ms));
      return named.assignment().size() == partitions && pattern.assignment().size() == partitions;
    });
  };
  EXPECT_FALSE(eventually([&] { return !named.poll(20ms) || !named.assignment().empty(); }, 500ms));
  broker.create_topic("logs-late", 2);
  EXPECT_TRUE(both_have(2));
  broker.add_partitions("logs-late", 5);
  EXPECT_TRUE(both_have(5));
}

TEST(Group, AStaticMemberComesBackToItsPartitions) {
  TestBroker broker{{"group.initial.rebalance.delay.ms", "0"}};
  broker.create_topic("data", 2);
  Worker stays(broker, {{"group.instance.id", "a"}});
  EXPECT_TRUE(eventually([&] { return stays.owned() == 2; }));
  {
    Worker goes(broker, {{"group.instance.id", "b"}});
    EXPECT_TRUE(eventually([&] { return stays.owned() == 1 && goes.owned() == 1; }));
  }
  Worker back(broker, {{"group.instance.id", "b"}});
  EXPECT_TRUE(eventually([&] { return back.owned() == 1; }));
  EXPECT_EQ(stays.owned(), 1U);
}

TEST(Group, WhoDoesNotPollLosesItsPartitions) {
  TestBroker broker{{"group.initial.rebalance.delay.ms", "0"}, {"group.min.session.timeout.ms", "500"}};
  broker.create_topic("data", 2);
  auto sleeper = open(broker, {{"max.poll.interval.ms", "1000"}});
  std::vector<std::string> events;
  RebalanceListener listener;
  listener.assigned = [&](std::span<const TopicPartition>) { events.emplace_back("assigned"); };
  listener.lost = [&](std::span<const TopicPartition>) { events.emplace_back("lost"); };
  ASSERT_TRUE(sleeper.subscribe({"data"}, listener));
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(sleeper.poll(50ms));
    return sleeper.assignment().size() == 2;
  }));
  Worker other(broker);
  EXPECT_TRUE(eventually([&] { return other.owned() == 2; }));
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(sleeper.poll(50ms));
    return sleeper.assignment().size() == 1;
  }));
  EXPECT_EQ(events.at(0), "assigned");
  EXPECT_EQ(events.at(1), "lost");
}

TEST(Group, SubscribeNeedsAGroupAndExcludesAssign) {
  auto without = Consumer::open({{"bootstrap.servers", "127.0.0.1:1"}}).value();
  EXPECT_EQ(without.subscribe({"data"}).error().trouble, Trouble::invalid_state);
  auto consumer = Consumer::open({{"bootstrap.servers", "127.0.0.1:1"}, {"group.id", "g"}}).value();
  ASSERT_TRUE(consumer.subscribe({"data"}));
  EXPECT_EQ(consumer.assign(std::vector<TopicPartitionOffset>{{"data", 0, 0, {}}}).error().trouble,
            Trouble::invalid_state);
}

}  // namespace
}  // namespace ciuic::client
