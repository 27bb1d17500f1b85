// Fetch sessions and producer ids: the state between requests.
#include <gtest/gtest.h>

#include <set>

#include "broker/api/fetch_sessions.h"
#include "broker/api/producer_ids.h"

namespace ciuic::broker {
namespace {

TEST(FetchSessions, IdsAreTheirOwnAndNeverTheSessionlessOne) {
  ManualClock clock;
  FetchSessions sessions(100, clock);
  std::set<std::int32_t> ids;
  for (int i = 0; i < 100; ++i) {
    const auto session = sessions.create({}, false);
    ASSERT_TRUE(session);
    EXPECT_GT(session->id, 0);
    EXPECT_TRUE(ids.insert(session->id).second);
    EXPECT_EQ(sessions.find(session->id), session);
  }
  sessions.remove(*ids.begin());
  EXPECT_EQ(sessions.find(*ids.begin()), nullptr);
  EXPECT_EQ(sessions.size(), 99U);
}

TEST(FetchSessions, AFullCacheGivesUpOnlyTheOneUnusedForLongest) {
  ManualClock clock;
  FetchSessions sessions(2, clock);
  const auto first = sessions.create({}, false);
  clock.advance(std::chrono::minutes(1));
  const auto second = sessions.create({}, false);
  EXPECT_EQ(sessions.create({}, false), nullptr) << "both are in use";
  clock.advance(std::chrono::seconds(61));
  ASSERT_NE(sessions.find(second->id), nullptr);
  ASSERT_NE(sessions.create({}, false), nullptr);
  EXPECT_EQ(sessions.find(first->id), nullptr);
  EXPECT_NE(sessions.find(second->id), nullptr);
  EXPECT_EQ(sessions.size(), 2U);
}

/// Gives blocks of three when told to.
class Blocks final : public Controller {
 public:
  [[nodiscard]] MetadataPointer image() const override { return nullptr; }
  void create_topics(std::vector<NewTopic>, Commit, Callback<std::vector<CreatedTopic>>) override { std::abort(); }
  void delete_topics(std::vector<kafka::TopicId>, Callback<std::vector<kafka::Error>>) override { std::abort(); }
  void create_partitions(std::vector<MorePartitions>, Commit, Callback<std::vector<NamedResult>>) override {
    std::abort();
  }
  void alter_configs(std::vector<ConfigAlteration>, Commit, Callback<std::vector<NamedResult>>) override {
    std::abort();
  }
  void allocate_producer_ids(Callback<ResultOf<ProducerIdBlock, kafka::Error>> done) override {
    asked.push_back(std::move(done));
  }

  void give() {
    auto done = std::move(asked.front());
    asked.erase(asked.begin());
    done(ProducerIdBlock{next, 3});
    next += 3;
  }
  std::vector<Callback<ResultOf<ProducerIdBlock, kafka::Error>>> asked;
  std::int64_t next = 1000;
};

TEST(ProducerIds, AreDistinctAndOneBlockIsAskedForAtATime) {
  Blocks blocks;
  ProducerIds ids(blocks);
  std::vector<std::int64_t> got;
  for (int i = 0; i < 7; ++i) {
    ids.next([&](const ResultOf<kafka::ProducerId, kafka::Error>& id) {
      ASSERT_TRUE(id);
      got.push_back(id->value);
    });
    EXPECT_EQ(blocks.asked.size(), 1U);
  }
  EXPECT_TRUE(got.empty());
  while (!blocks.asked.empty()) blocks.give();
  EXPECT_EQ(std::set<std::int64_t>(got.begin(), got.end()).size(), 7U);
}

TEST(ProducerIds, AFailureIsToldToAllThatWaitAndTheNextOneAsksAgain) {
  Blocks blocks;
  ProducerIds ids(blocks);
  int refused = 0;
  const auto ask = [&] {
    ids.next([&](const ResultOf<kafka::ProducerId, kafka::Error>& id) { refused += id ? 0 : 1; });
  };
  ask();
  ask();
  auto done = std::move(blocks.asked.front());
  blocks.asked.clear();
  done(kafka::Error{kafka::ErrorCode::kafka_storage_error, "full"});
  EXPECT_EQ(refused, 2);
  ask();
  ASSERT_EQ(blocks.asked.size(), 1U);
  blocks.give();
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace ciuic::broker
