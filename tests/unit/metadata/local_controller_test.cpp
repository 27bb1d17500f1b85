// The controller of a broker that is alone: what it decides, keeps over restarts and refuses. Every step by the test.
#include "broker/metadata/local_controller.h"

#include <gtest/gtest.h>

#include "broker/log/log_directory.h"
#include "broker/metadata/metadata_records.h"
#include "tests/unit/log/support/manual_executor.h"
#include "tests/unit/log/support/simulated_files.h"
#include "transport/kafka/messages/metadata_records.h"

namespace ciuic::broker {
namespace {

using kafka::ErrorCode;

class LocalControllerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = make_broker_config({{"log.dirs", "/logs"}, {"num.partitions", "3"}, {"node.id", "1"}});
    ASSERT_TRUE(made) << made.error();
    config = std::move(*made);
    start();
  }
  void start() {
    controller.reset();
    executor.drop_all();
    io.drop_all();
    LocalController::Parts parts;
    parts.config = &config;
    parts.log_dir = "/logs";
    parts.host = "localhost";
    parts.port = 9092;
    parts.io = &io;
    parts.clock = &clock;
    parts.executor = &executor;
    parts.apply = [this](const MetadataPointer&, const MetadataPointer&,
                         const std::function<void(kafka::Error)>& ready) {
      ++applied;
      ready({});
    };
    parts.can_create = [this] { return no_room; };
    auto opened = LocalController::open(std::move(parts));
    ASSERT_TRUE(opened) << opened.error();
    controller = std::move(*opened);
  }
  void settle() {
    while (io.run_one(random) || executor.run_one()) {
    }
  }
  CreatedTopic create(NewTopic topic, Commit commit = Commit::yes) {
    std::vector<CreatedTopic> results;
    controller->create_topics({std::move(topic)}, commit, [&](auto made) { results = std::move(made); });
    settle();
    EXPECT_EQ(results.size(), 1U);
    return results.front();
  }
  static NewTopic named(const std::string& name, std::int32_t partitions = -1) {
    NewTopic topic;
    topic.name = name;
    topic.partitions = partitions;
    return topic;
  }

  testing::SimulatedFiles files;
  testing::SimulatedIo io{files};
  ManualClock clock;
  testing::ManualExecutor executor{clock};
  std::mt19937_64 random{1};
  BrokerConfig config;
  int applied = 0;
  kafka::Error no_room;
  std::unique_ptr<LocalController> controller;
};

TEST_F(LocalControllerTest, ATopicIsThereWhenItIsAnsweredAndAfterARestart) {
  const auto made = create(named("t"));
  ASSERT_TRUE(made.id);
  EXPECT_EQ(made.partitions, 3);
  EXPECT_EQ(applied, 1);
  for (int round = 0; round < 2; ++round) {
    const auto image = controller->image();
    const auto* topic = image->topic("t");
    ASSERT_NE(topic, nullptr);
    EXPECT_EQ(topic->id, *made.id);
    ASSERT_EQ(topic->partitions.size(), 3U);
    EXPECT_EQ(topic->partitions[2].leader, 1);
    start();
  }
}

TEST_F(LocalControllerTest, ARestartWritesNothingNew) {
  ASSERT_TRUE(create(named("t")).id);
  const auto offset = controller->image()->offset();
  start();
  start();
  EXPECT_EQ(controller->image()->offset(), offset);
}

TEST_F(LocalControllerTest, WishesThatCannotBeAreRefusedWithKafkasErrors) {
  ASSERT_TRUE(create(named("a.b")).id);
  const auto error = [&](NewTopic topic) {
    const auto made = create(std::move(topic));
    return made.id ? ErrorCode::none : made.id.error().code;
  };
  EXPECT_EQ(error(named("a.b")), ErrorCode::topic_already_exists);
  EXPECT_EQ(error(named("a_b")), ErrorCode::invalid_topic_exception);
  EXPECT_EQ(error(named("x/y")), ErrorCode::invalid_topic_exception);
  EXPECT_EQ(error(named(std::string(250, 'x'))), ErrorCode::invalid_topic_exception);
  EXPECT_EQ(error(named(std::string(metadata_log_topic))), ErrorCode::invalid_request);
  EXPECT_EQ(error(named("t", 0)), ErrorCode::invalid_partitions);
  auto topic = named("t");
  topic.replication_factor = 2;
  EXPECT_EQ(error(topic), ErrorCode::invalid_replication_factor);
  topic = named("t");
  topic.config = {{"retention.ms", "soon"}};
  EXPECT_EQ(error(topic), ErrorCode::invalid_config);
  topic = named("t");
  topic.assignments = {{0, {7}}};
  EXPECT_EQ(error(topic), ErrorCode::invalid_replica_assignment);
  topic.partitions = 1;
  EXPECT_EQ(error(topic), ErrorCode::invalid_request);
  EXPECT_EQ(controller->image()->topics().size(), 1U);
}

TEST_F(LocalControllerTest, ValidateOnlyWritesNothing) {
  const auto before = controller->image()->offset();
  EXPECT_TRUE(create(named("t"), Commit::validate_only).id);
  EXPECT_EQ(controller->image()->offset(), before);
  EXPECT_EQ(controller->image()->topic("t"), nullptr);
}

TEST_F(LocalControllerTest, AFullDiskRefusesTheChangeAndTheNextOneWorks) {
  files.set_capacity(0);
  const auto refused = create(named("t"));
  ASSERT_FALSE(refused.id);
  EXPECT_EQ(refused.id.error().code, ErrorCode::kafka_storage_error);
  EXPECT_EQ(controller->image()->topic("t"), nullptr);
  files.heal();
  EXPECT_TRUE(create(named("t")).id);
  start();
  EXPECT_NE(controller->image()->topic("t"), nullptr);
}

TEST_F(LocalControllerTest, ProducerIdsAreNeverHandedOutTwice) {
  std::int64_t end = 0;
  for (int round = 0; round < 4; ++round) {
    bool called = false;
    controller->allocate_producer_ids([&](const ResultOf<ProducerIdBlock, kafka::Error>& block) {
      called = true;
      ASSERT_TRUE(block);
      EXPECT_GE(block->first, end);
      EXPECT_GT(block->count, 0);
      end = block->first + block->count;
    });
    settle();
    EXPECT_TRUE(called);
    if (round % 2 == 1) start();
  }
}

TEST_F(LocalControllerTest, PartitionsThatAnApacheControllerLeftLeaderlessAreLedInANewEpoch) {
  const auto id = *create(named("t", 2)).id;
  auto log = MetadataLog::open(files, "/logs", [](Bytes, std::int64_t) { return true; });
  ASSERT_TRUE(log) << log.error();
  kafka::PartitionChangeRecord stopped;  // what a controlled shutdown of the last replica writes
  stopped.topic_id = id;
  stopped.partition_id = 1;
  stopped.leader = -1;
  ASSERT_TRUE(log->append({encode_metadata(stopped)}, 1));
  start();
  const auto image = controller->image();
  const auto* topic = image->topic("t");
  ASSERT_NE(topic, nullptr);
  EXPECT_EQ(topic->partitions[0].leader_epoch, kafka::LeaderEpoch(0));
  EXPECT_EQ(topic->partitions[1].leader, 1);
  EXPECT_EQ(topic->partitions[1].leader_epoch, kafka::LeaderEpoch(2));
  EXPECT_EQ(topic->partitions[1].isr, std::vector<std::int32_t>{1});
}

TEST_F(LocalControllerTest, TheMetadataLogIsNoStrayTopicOfItsDirectory) {
  ASSERT_TRUE(files.make_directories("/logs/real-0"));
  const auto directory = LogDirectory::open({"/logs", {}, nullptr, 1}, Arena::make({}), io, clock, nullptr);
  ASSERT_TRUE(directory) << directory.error().text;
  ASSERT_EQ((*directory)->found().size(), 1U);
  EXPECT_EQ((*directory)->found().front().name.topic, "real");
}

TEST_F(LocalControllerTest, WhatCannotBeCreatedLeavesNoRecord) {
  ASSERT_TRUE(create(named("before", 1)).id);
  no_room = {ErrorCode::kafka_storage_error, "no log directory is online"};
  const auto refused = create(named("after", 1));
  ASSERT_FALSE(refused.id);
  EXPECT_EQ(refused.id.error().code, ErrorCode::kafka_storage_error);
  std::vector<NamedResult> more;
  controller->create_partitions({{"before", 2, {}}}, Commit::yes, [&](auto done) { more = std::move(done); });
  settle();
  ASSERT_EQ(more.size(), 1U);
  EXPECT_EQ(more[0].error.code, ErrorCode::kafka_storage_error);
  start();
  EXPECT_EQ(controller->image()->topic("after"), nullptr);
  EXPECT_EQ(controller->image()->topic("before")->partitions.size(), 1U);
}

}  // namespace
}  // namespace ciuic::broker
