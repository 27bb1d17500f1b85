// The producer against a scripted broker: what it does about each kind of answer, and about none.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <set>

#include "ciuic/producer.h"
#include "client/core/producer_impl.h"
#include "tests/unit/client/producer_script.h"

namespace ciuic::client {
namespace {

using namespace std::chrono_literals;
using kafka::ErrorCode;
using test::ScriptedBroker;
using test::SeenBatch;
using test::SequenceCheck;
using test::Verdict;

constexpr Verdict fine{};

/// Every record is a batch of its own, and is sent at once.
Producer open(const ScriptedBroker& broker, Config more = {}) {
  Config config{
      {"bootstrap.servers", broker.address()}, {"batch.size", "1"}, {"linger.ms", "0"}, {"retry.backoff.ms", "5"}};
  config.insert(config.end(), more.begin(), more.end());
  return Producer::open(config).value();
}

RecordToSend record(std::string_view value, std::int32_t partition = 0) {
  RecordToSend out;
  out.topic = "data";
  out.value = as_bytes(value);
  out.partition = partition;
  return out;
}

std::int64_t metric(const Producer& producer, std::string_view name) {
  for (const auto& one : producer.metrics()) {
    if (one.name == name) return one.value;
  }
  ADD_FAILURE() << "no metric " << name;
  return -1;
}

/// True once `holds`; false after a while.
bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

/// Holds the broker's first answer back until the test lets go, so that more requests are under way behind it.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    (void)open_.wait_for(lock, 10s, [this] { return is_open_; });
  }
  void let_go() {
    const std::scoped_lock lock(mutex_);
    is_open_ = true;
    open_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable open_;
  bool is_open_ = false;
};

/// Sends "0" … "count-1" to partition 0, all under way at once, then lets the broker answer. Gives the outcomes.
std::vector<Result<Written>> send_behind(Gate& gate, Producer& producer, int count) {
  std::vector<std::future<Result<Written>>> futures;
  for (int i = 0; i < count; ++i) futures.push_back(producer.send_future(record(std::to_string(i))).value());
  EXPECT_TRUE(soon([&] { return metric(producer, "ciuic_client_producer_requests_total") == count; }));
  gate.let_go();
  std::vector<Result<Written>> out;
  for (auto& future : futures) {
    if (future.wait_for(10s) != std::future_status::ready) throw std::runtime_error("no outcome");
    out.push_back(future.get());
  }
  return out;
}

std::vector<std::string> numbers(int from, int count) {
  std::vector<std::string> out;
  for (int i = from; i < from + count; ++i) out.push_back(std::to_string(i));
  return out;
}

TEST(ProducerFaults, AfterARetriableErrorTheBatchesGoAgainInOrderWithTheirSequences) {
  for (const auto code : {ErrorCode::not_leader_or_follower, ErrorCode::request_timed_out,
                          ErrorCode::not_enough_replicas, ErrorCode::kafka_storage_error}) {
    Gate gate;
    SequenceCheck check;
    int refusals = 1;
    ScriptedBroker broker(1, [&](const SeenBatch& batch) {
      gate.pass();
      return refusals-- > 0 ? Verdict{code, -1} : check(batch);
    });
    auto producer = open(broker);
    const auto outcomes = send_behind(gate, producer, 5);
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(outcomes[static_cast<std::size_t>(i)]) << outcomes[static_cast<std::size_t>(i)].error().text;
      EXPECT_EQ(outcomes[static_cast<std::size_t>(i)]->offset, i);
    }
    EXPECT_EQ(check.log(), numbers(0, 5));
    for (const auto& batch : broker.seen()) {
      EXPECT_EQ(batch.epoch, 0);
      EXPECT_EQ(std::to_string(batch.base_sequence), batch.values.at(0));
    }
    EXPECT_EQ(metric(producer, "ciuic_client_producer_new_epochs_total"), 0);
  }
}

TEST(ProducerFaults, ASenderThatWaitsForMemoryIsToldWhatKeepsTheRecordsInIt) {
  ScriptedBroker broker(1, [](const SeenBatch&) { return Verdict{ErrorCode::kafka_storage_error, -1}; });
  auto producer = open(broker, {{"buffer.memory", "2000"}, {"max.block.ms", "300"}});
  const std::string value(1000, 'x');
  ASSERT_TRUE(producer.send(record(value)));
  const auto refused = producer.send(record(value));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().trouble, Trouble::queue_full);
  EXPECT_NE(refused.error().text.find("data-0: KAFKA_STORAGE_ERROR"), std::string::npos) << refused.error().text;
  EXPECT_NE(refused.error().text.find("buffer.memory=2000"), std::string::npos) << refused.error().text;
}

TEST(ProducerFaults, ALeaderThatMovedIsLookedForAnew) {
  int refusals = 3;
  ScriptedBroker broker(1, [&](const SeenBatch&) {
    return refusals-- > 0 ? Verdict{ErrorCode::not_leader_or_follower, -1} : fine;
  });
  auto producer = open(broker);
  ASSERT_TRUE(producer.send(record("x")));
  ASSERT_TRUE(producer.flush(10s));
  EXPECT_GE(broker.metadata_requests(), 2);
  EXPECT_EQ(metric(producer, "ciuic_client_producer_retries_total"), 3);
}

TEST(ProducerFaults, AGapOrAForgottenProducerStartsANewEpochAndLosesNothing) {
  for (const auto code : {ErrorCode::out_of_order_sequence_number, ErrorCode::unknown_producer_id}) {
    Gate gate;
    SequenceCheck check;
    int refusals = 3;  // the broker lost what it knew: whatever is under way is refused
    ScriptedBroker broker(1, [&](const SeenBatch& batch) {
      gate.pass();
      return refusals-- > 0 ? Verdict{code, -1} : check(batch);
    });
    auto producer = open(broker);
    for (const auto& outcome : send_behind(gate, producer, 3)) ASSERT_TRUE(outcome) << outcome.error().text;
    ASSERT_TRUE(producer.send(record("3")));
    ASSERT_TRUE(producer.flush(10s));
    EXPECT_EQ(check.log(), numbers(0, 4));
    const auto seen = broker.seen();
    EXPECT_EQ(seen.at(3), (SeenBatch{0, 4000, 1, 0, {"0"}}));
    EXPECT_EQ(seen.back(), (SeenBatch{0, 4000, 1, 3, {"3"}}));
    EXPECT_EQ(metric(producer, "ciuic_client_producer_new_epochs_total"), 1);
  }
}

TEST(ProducerFaults, ADuplicateIsASuccess) {
  ScriptedBroker broker(1, [&](const SeenBatch&) { return Verdict{ErrorCode::duplicate_sequence_number, -1}; });
  auto producer = open(broker);
  const auto outcome = producer.send_future(record("x")).value().get();
  ASSERT_TRUE(outcome) << outcome.error().text;
  EXPECT_EQ(outcome->partition, 0);
  EXPECT_EQ(outcome->offset, -1);
}

TEST(ProducerFaults, ARefusedBatchFailsAloneAndItsFollowersCountAnew) {
  Gate gate;
  SequenceCheck check;
  ScriptedBroker broker(1, [&](const SeenBatch& batch) {
    gate.pass();
    return batch.values.at(0) == "1" ? Verdict{ErrorCode::invalid_record, -1} : check(batch);
  });
  auto producer = open(broker);
  const auto outcomes = send_behind(gate, producer, 4);
  ASSERT_FALSE(outcomes[1]);
  EXPECT_EQ(outcomes[1].error().trouble, Trouble::broker);
  EXPECT_EQ(outcomes[1].error().kafka_code, static_cast<std::int16_t>(ErrorCode::invalid_record));
  for (const std::size_t i : {0U, 2U, 3U}) EXPECT_TRUE(outcomes[i]);
  EXPECT_EQ(check.log(), (std::vector<std::string>{"0", "2", "3"}));
  EXPECT_EQ(broker.seen().back(), (SeenBatch{0, 4000, 1, 1, {"3"}}));
}

TEST(ProducerFaults, AFencedProducerEndsAndSaysSoToEverybody) {
  for (const auto code : {ErrorCode::invalid_producer_epoch, ErrorCode::producer_fenced}) {
    Gate gate;
    ScriptedBroker broker(1, [&](const SeenBatch&) {
      gate.pass();
      return Verdict{code, -1};
    });
    auto producer = open(broker);
    for (const auto& outcome : send_behind(gate, producer, 3)) {
      ASSERT_FALSE(outcome);
      EXPECT_EQ(outcome.error().trouble, Trouble::fatal);
      EXPECT_EQ(outcome.error().kafka_code, static_cast<std::int16_t>(code));
    }
    bool called = false;
    const auto later = producer.send(record("x"), [&](const auto&) { called = true; });
    ASSERT_FALSE(later);
    EXPECT_EQ(later.error().trouble, Trouble::fatal);
    EXPECT_TRUE(producer.close(5s));
    EXPECT_FALSE(called);
  }
}

TEST(ProducerFaults, WithoutAnAnswerARecordFailsInTimeAndTheNextOnesBeginANewEpoch) {
  SequenceCheck check;
  std::atomic<bool> lost{true};
  ScriptedBroker broker(1, [&](const SeenBatch& batch) { return lost ? fine : check(batch); });
  broker.stay_silent();
  auto producer = open(broker, {{"delivery.timeout.ms", "500"}, {"request.timeout.ms", "2000"}});
  const auto began = std::chrono::steady_clock::now();
  const auto outcome = producer.send_future(record("0")).value().get();
  const auto took = std::chrono::steady_clock::now() - began;
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().trouble, Trouble::timed_out);
  EXPECT_NE(outcome.error().text.find("delivery.timeout.ms=500"), std::string::npos) << outcome.error().text;
  EXPECT_GE(took, 490ms);
  EXPECT_LT(took, 1900ms) << "it waited for the request's time, not for the record's";
  EXPECT_TRUE(producer.flush(200ms)) << "its callback has run: nothing is left";
  lost = false;
  broker.answer();
  // The lost request is awaited for as long as a request may be; only then can another go, in an epoch of its own.
  const auto sent = [&] { return static_cast<bool>(producer.send_future(record("1")).value().get()); };
  ASSERT_TRUE(sent() || sent() || sent() || sent() || sent() || sent());
  EXPECT_EQ(broker.seen().back(), (SeenBatch{0, 4000, 1, 0, {"1"}}));
}

TEST(ProducerFaults, ALateAnswerAfterTheRecordFailedNeedsNoNewEpoch) {
  Gate gate;
  SequenceCheck check;
  ScriptedBroker broker(1, [&](const SeenBatch& batch) {
    gate.pass();
    return check(batch);
  });
  auto producer = open(broker, {{"delivery.timeout.ms", "1000"}});
  ASSERT_FALSE(producer.send_future(record("0")).value().get());
  gate.let_go();
  const auto next = producer.send_future(record("1")).value().get();
  ASSERT_TRUE(next) << next.error().text;
  EXPECT_EQ(broker.seen().back(), (SeenBatch{0, 4000, 0, 1, {"1"}}));
}

TEST(ProducerFaults, AProducerIdIsAskedForUntilThereIsOneOrThereCannotBe) {
  ScriptedBroker broker(1, [](const SeenBatch&) { return fine; });
  broker.refuse_ids({ErrorCode::coordinator_load_in_progress, ErrorCode::not_coordinator});
  auto producer = open(broker);
  ASSERT_TRUE(producer.send_future(record("x")).value().get());

  broker.refuse_ids({ErrorCode::cluster_authorization_failed});
  auto other = open(broker);
  const auto outcome = other.send_future(record("x")).value().get();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().trouble, Trouble::fatal);
  EXPECT_EQ(outcome.error().kafka_code, static_cast<std::int16_t>(ErrorCode::cluster_authorization_failed));
}

TEST(ProducerFaults, WithoutIdempotenceThereIsNoProducerId) {
  ScriptedBroker broker(1, [](const SeenBatch&) { return fine; });
  broker.refuse_ids({ErrorCode::cluster_authorization_failed});
  auto producer = open(broker, {{"enable.idempotence", "false"}});
  ASSERT_TRUE(producer.send_future(record("x")).value().get());
  EXPECT_EQ(broker.seen().back(), (SeenBatch{0, -1, -1, -1, {"x"}}));
}

TEST(ProducerFaults, OneRequestCarriesSeveralPartitionsUpToItsSize) {
  Gate gate;
  ScriptedBroker broker(8, [&](const SeenBatch&) {
    gate.pass();
    return fine;
  });
  // The first request is held back; what gathers behind it goes in few requests.
  auto producer = open(broker, {{"max.in.flight.requests.per.connection", "1"}, {"max.request.size", "1000"}});
  ASSERT_TRUE(producer.send(record("first", 0)));
  ASSERT_TRUE(soon([&] { return metric(producer, "ciuic_client_producer_requests_total") == 1; }));
  const std::string value(250, 'v');  // three batches of it fit a request, four do not
  for (std::int32_t i = 1; i < 8; ++i) ASSERT_TRUE(producer.send(record(value, i)));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(metric(producer, "ciuic_client_producer_requests_total"), 1) << "more in flight than allowed";
  gate.let_go();
  ASSERT_TRUE(producer.flush(10s));
  EXPECT_EQ(broker.request_sizes(), (std::vector<std::size_t>{1, 3, 3, 1}));
}

TEST(ProducerFaults, NoMoreRequestsAreInFlightThanAllowed) {
  for (const int allowed : {1, 3, 5}) {
    Gate gate;
    ScriptedBroker broker(1, [&](const SeenBatch&) {
      gate.pass();
      return fine;
    });
    auto producer = open(broker, {{"max.in.flight.requests.per.connection", std::to_string(allowed)}});
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(producer.send(record(std::to_string(i))));
    ASSERT_TRUE(soon([&] { return metric(producer, "ciuic_client_producer_requests_total") == allowed; }));
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(metric(producer, "ciuic_client_producer_requests_total"), allowed);
    gate.let_go();
    ASSERT_TRUE(producer.flush(10s));
  }
}

TEST(ProducerFaults, AFullBufferMakesSendersWaitAndThenRefuses) {
  Gate gate;
  ScriptedBroker broker(1, [&](const SeenBatch&) {
    gate.pass();
    return fine;
  });
  auto producer = open(broker, {{"buffer.memory", "4096"}, {"max.block.ms", "150"}});
  const std::string value(1000, 'v');
  int sent = 0;
  Result<void> last;
  while (sent < 100 && (last = producer.send(record(value)))) ++sent;
  EXPECT_GE(sent, 2);
  EXPECT_LE(sent, 4);
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().trouble, Trouble::queue_full);
  gate.let_go();
  // Room comes back, and with it those who wait.
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(producer.send(record(value)));
  ASSERT_TRUE(producer.flush(10s));
  EXPECT_EQ(broker.seen().size(), static_cast<std::size_t>(sent + 50));
  EXPECT_EQ(metric(producer, "ciuic_client_producer_buffered_bytes_gauge"), 0);
}

TEST(ProducerFaults, ATopicThatMayNotBeSeenIsSaidAtOnce) {
  ScriptedBroker broker(1, [](const SeenBatch&) { return fine; });
  broker.set_topic_error(ErrorCode::topic_authorization_failed);
  auto producer = open(broker);
  const auto began = std::chrono::steady_clock::now();
  const auto refused = producer.send(record("x"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kafka_code, static_cast<std::int16_t>(ErrorCode::topic_authorization_failed));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 2s);
  // It is asked for anew by who comes next.
  broker.set_topic_error(ErrorCode::none);
  ASSERT_TRUE(producer.send_future(record("x")).value().get());
}

TEST(ProducerFaults, FlushAndCloseEndInTimeAndEveryCallbackRunsOnce) {
  ScriptedBroker broker(1, [](const SeenBatch&) { return fine; });
  broker.stay_silent();
  auto producer = open(broker);
  std::atomic<int> called{0};
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(producer.send(record(std::to_string(i)), [&](const Result<Written>& result) {
      EXPECT_EQ(result.error().trouble, Trouble::timed_out);
      ++called;
    }));
  }
  const auto flushed = producer.flush(100ms);
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().trouble, Trouble::timed_out);
  EXPECT_EQ(called, 0);
  const auto closed = producer.close(100ms);
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().trouble, Trouble::timed_out);
  EXPECT_EQ(called, 20);
  EXPECT_TRUE(producer.close(0ms)) << "once closed it stays closed";
  EXPECT_EQ(producer.send(record("x")).error().trouble, Trouble::invalid_state);
}

TEST(ProducerFaults, ACallbackMaySendButNotWait) {
  ScriptedBroker broker(1, [](const SeenBatch&) { return fine; });
  std::promise<void> done;  // outlives the producer, whose thread sets it
  auto producer = open(broker);
  ASSERT_TRUE(producer.send(record("0"), [&](const Result<Written>& first) {
    EXPECT_TRUE(first);
    EXPECT_EQ(producer.flush(1s).error().trouble, Trouble::invalid_state);
    EXPECT_EQ(producer.close(1s).error().trouble, Trouble::invalid_state);
    EXPECT_TRUE(producer.send(record("1"), [&](const Result<Written>& second) {
      EXPECT_TRUE(second);
      done.set_value();
    }));
  }));
  ASSERT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
}

TEST(ProducerFaults, RecordsWithoutAKeyFillOneBatchBeforeTheyTurnToAnotherPartition) {
  ScriptedBroker broker(8, [](const SeenBatch&) { return fine; });
  auto producer = open(broker, {{"batch.size", "1000"}, {"linger.ms", "10000"}});
  std::string value(95, 'v');
  for (int i = 0; i < 400; ++i) {
    auto one = record(value);
    one.partition.reset();
    one.timestamp = 1'700'000'000'000;  // deltas of one byte, so that every full batch holds as many records
    ASSERT_TRUE(producer.send(one));
  }
  EXPECT_TRUE(soon([&] { return broker.seen().size() == 44; })) << "a full batch waits for nothing";
  ASSERT_TRUE(producer.flush(10s));
  std::set<std::int32_t> used;
  std::size_t full = 0;
  const auto seen = broker.seen();
  for (const auto& batch : seen) {
    used.insert(batch.partition);
    if (batch.values.size() == 9) ++full;  // 61 + 9 · 104 bytes
  }
  EXPECT_GE(full + 1, seen.size()) << "only the last batch may be small";
  EXPECT_GE(used.size(), 3U);
}

TEST(ProducerFaults, ABatchLingersForMore) {
  ScriptedBroker broker(1, [](const SeenBatch&) { return fine; });
  auto producer = open(broker, {{"batch.size", "100000"}, {"linger.ms", "150"}});
  ASSERT_TRUE(producer.send_future(record("warm")).value().get());
  const auto began = std::chrono::steady_clock::now();
  auto first = producer.send_future(record("0")).value();
  std::this_thread::sleep_for(20ms);
  auto second = producer.send_future(record("1")).value();
  ASSERT_TRUE(first.get());
  EXPECT_GE(std::chrono::steady_clock::now() - began, 145ms);
  ASSERT_TRUE(second.get());
  EXPECT_EQ(broker.seen().back().values, numbers(0, 2));
}

TEST(ProducerFaults, SequencesGoOnFromZeroAfterTheLargest) {
  constexpr auto largest = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(core::sequence_after(0, 10), 10);
  EXPECT_EQ(core::sequence_after(largest - 1, 1), largest);
  EXPECT_EQ(core::sequence_after(largest, 1), 0);
  EXPECT_EQ(core::sequence_after(largest - 4, 10), 5);
}

}  // namespace
}  // namespace ciuic::client
