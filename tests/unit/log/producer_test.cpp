// Idempotent producers and transactions: sequences, duplicates, fencing, last stable offset, aborted lists.
#include <gtest/gtest.h>

#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using kafka::ErrorCode;
using testing::BatchOf;
using testing::LogWorld;
using testing::make_batch;
using testing::make_marker;

constexpr kafka::ProducerId p1{1001};
constexpr kafka::ProducerId p2{1002};

class Producers : public ::testing::Test {
 protected:
  void SetUp() override {
    world.start();
    world.create("t");
  }
  Partition& t() { return *world.find("t"); }
  ResultOf<AppendResult, AppendError> send(kafka::ProducerId id, std::int32_t sequence, int records = 1,
                                           std::int16_t epoch = 0, bool transactional = false) {
    return world.append(t(), make_batch({.records = records,
                                         .producer_id = id,
                                         .producer_epoch = kafka::ProducerEpoch(epoch),
                                         .base_sequence = sequence,
                                         .transactional = transactional}));
  }
  ResultOf<AppendResult, AppendError> end(kafka::ProducerId id, bool commit, std::int32_t coordinator = 0,
                                          std::int16_t epoch = 0) {
    return world.append(t(), make_marker(id, kafka::ProducerEpoch(epoch), commit, coordinator),
                        {AppendOrigin::coordinator, {}});
  }
  ErrorCode code(const ResultOf<AppendResult, AppendError>& result) {
    return result ? ErrorCode::none : result.error().error.code;
  }
  LogWorld world{testing::seed_from_env(6)};
};

TEST_F(Producers, ARetryIsAnsweredWithTheOriginalOffsets) {
  ASSERT_EQ(send(p1, 0, 3)->base_offset, kafka::Offset(0));
  ASSERT_EQ(send(p1, 3, 2)->base_offset, kafka::Offset(3));
  const auto again = send(p1, 0, 3);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->duplicate);
  EXPECT_EQ(again->base_offset, kafka::Offset(0));
  EXPECT_EQ(again->last_offset, kafka::Offset(2));
  EXPECT_EQ(t().log_end_offset(), kafka::Offset(5));
}

TEST_F(Producers, ARetryOfABatchUnderWayWaitsForItsWrite) {
  const auto batch = make_batch({.producer_id = p1, .producer_epoch = kafka::ProducerEpoch(0), .base_sequence = 0});
  std::vector<std::string> answers;
  t().append(batch, {}, [&](const auto& r) { answers.push_back(r->duplicate ? "retry" : "original"); });
  t().append(batch, {}, [&](const auto& r) { answers.push_back(r->duplicate ? "retry" : "original"); });
  world.executor.run_ready();
  EXPECT_TRUE(answers.empty());
  world.settle();
  EXPECT_EQ(answers, (std::vector<std::string>{"original", "retry"}));
}

TEST_F(Producers, AGapIsOutOfOrderAndAnOldBatchToo) {
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(send(p1, i));
  EXPECT_EQ(code(send(p1, 9)), ErrorCode::out_of_order_sequence_number);
  EXPECT_TRUE(send(p1, 3)->duplicate);                                    // the fifth last
  EXPECT_EQ(code(send(p1, 2)), ErrorCode::out_of_order_sequence_number);  // the sixth last is forgotten
  EXPECT_EQ(t().log_end_offset(), kafka::Offset(8));
}

TEST_F(Producers, SequencesWrapToZero) {
  constexpr auto top = std::numeric_limits<std::int32_t>::max();
  ASSERT_TRUE(send(p1, top - 1, 2));
  ASSERT_TRUE(send(p1, 0, 2));
  EXPECT_TRUE(send(p1, top - 1, 2)->duplicate);
  ASSERT_TRUE(send(p2, top, 3));  // wraps inside the batch: top, 0, 1
  EXPECT_TRUE(send(p2, top, 3)->duplicate);
  EXPECT_TRUE(send(p2, 2));
}

TEST_F(Producers, EpochsFence) {
  ASSERT_TRUE(send(p1, 0, 1, 5));
  EXPECT_EQ(code(send(p1, 1, 1, 4)), ErrorCode::invalid_producer_epoch);
  EXPECT_EQ(code(send(p1, 1, 1, 6)), ErrorCode::out_of_order_sequence_number);
  EXPECT_TRUE(send(p1, 0, 1, 6));
}

TEST_F(Producers, AnUnknownProducerMayBeginAnywhere) { EXPECT_TRUE(send(p1, 77)); }

TEST_F(Producers, SilentProducersAreForgotten) {
  ASSERT_TRUE(send(p1, 0));
  EXPECT_FALSE(t().producers().empty());
  world.clock.advance(std::chrono::hours(25));
  t().maintain();
  world.settle();
  EXPECT_TRUE(t().producers().empty());
}

TEST_F(Producers, FiveBatchesAreRememberedOverCleanRestartAndCrash) {
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(send(p1, i));
  for (const bool crash : {false, true, false}) {
    crash ? world.crash() : world.restart();
    for (int i = 2; i < 7; ++i) {
      const auto again = send(p1, i);
      ASSERT_TRUE(again) << i << " " << again.error().error.text;
      EXPECT_TRUE(again->duplicate);
      EXPECT_EQ(again->base_offset, kafka::Offset(i));
    }
    EXPECT_EQ(code(send(p1, 9)), ErrorCode::out_of_order_sequence_number);
  }
  EXPECT_TRUE(send(p1, 7));
}

TEST_F(Producers, LastStableOffsetStopsAtTheFirstOpenTransaction) {
  ASSERT_TRUE(send(p1, 0, 2, 0, true));
  ASSERT_TRUE(send(p2, 0, 2, 0, true));
  ASSERT_TRUE(world.append(t(), make_batch({})));
  EXPECT_EQ(t().last_stable_offset(), kafka::Offset(0));
  EXPECT_TRUE(world.offsets(t(), kafka::Offset(0), kafka::Isolation::read_committed).empty());
  ASSERT_TRUE(end(p1, true));
  EXPECT_EQ(t().last_stable_offset(), kafka::Offset(2));
  ASSERT_TRUE(end(p2, false));
  EXPECT_EQ(t().last_stable_offset(), kafka::Offset(7));
  EXPECT_EQ(t().high_watermark(), kafka::Offset(7));
}

TEST_F(Producers, AbortedTransactionsAreListedWhereTheyOverlap) {
  ASSERT_TRUE(send(p1, 0, 2, 0, true));  // 0 1
  ASSERT_TRUE(send(p2, 0, 1, 0, true));  // 2
  ASSERT_TRUE(end(p1, false));           // 3
  ASSERT_TRUE(send(p1, 2, 1, 0, true));  // 4
  ASSERT_TRUE(end(p2, false));           // 5
  ASSERT_TRUE(end(p1, true));            // 6
  const std::vector<AbortedTransaction> both{{p1, kafka::Offset(0)}, {p2, kafka::Offset(2)}};
  for (const int restart : {0, 1, 2}) {
    if (restart == 1) world.restart();
    if (restart == 2) world.crash();
    EXPECT_EQ(t().aborted_between(kafka::Offset(0), kafka::Offset(7)), both) << restart;
    EXPECT_EQ(t().aborted_between(kafka::Offset(4), kafka::Offset(5)), (std::vector{both[1]}));
    EXPECT_TRUE(t().aborted_between(kafka::Offset(6), kafka::Offset(7)).empty());
    const auto read = world.read(t(), {.offset = kafka::Offset(0), .isolation = kafka::Isolation::read_committed});
    ASSERT_TRUE(read);
    EXPECT_EQ(read->aborted, both);
    EXPECT_TRUE(world.read(t(), {.offset = kafka::Offset(0)})->aborted.empty());
    EXPECT_EQ(t().last_stable_offset(), kafka::Offset(7));
  }
  EXPECT_EQ(world.disk.content("/logs/t-0/00000000000000000000.txnindex").size(), 68U);
}

TEST_F(Producers, AnOpenTransactionIsStillOpenAfterRestartAndCrash) {
  ASSERT_TRUE(world.append(t(), make_batch({})));
  ASSERT_TRUE(send(p1, 0, 2, 0, true));
  world.restart();
  EXPECT_EQ(t().last_stable_offset(), kafka::Offset(1));
  world.crash();
  EXPECT_EQ(t().last_stable_offset(), kafka::Offset(1));
  ASSERT_TRUE(end(p1, false));
  EXPECT_EQ(t().last_stable_offset(), kafka::Offset(4));
}

TEST_F(Producers, MarkersOfAnOldCoordinatorAreFenced) {
  ASSERT_TRUE(send(p1, 0, 1, 0, true));
  ASSERT_TRUE(end(p1, true, 7));
  ASSERT_TRUE(send(p1, 1, 1, 0, true));
  EXPECT_EQ(code(end(p1, true, 6)), ErrorCode::transaction_coordinator_fenced);
  EXPECT_TRUE(end(p1, true, 7));
}

TEST_F(Producers, OutsideItsTransactionATransactionalProducerIsRefused) {
  ASSERT_TRUE(send(p1, 0, 1, 0, true));
  EXPECT_EQ(code(send(p1, 1, 1, 0, false)), ErrorCode::invalid_txn_state);
}

TEST(ProducerSnapshot, IsReadBackAndADamagedOneRefused) {
  ProducerState state;
  BatchInfo batch;
  batch.producer_id = p1;
  batch.producer_epoch = kafka::ProducerEpoch(3);
  batch.base_sequence = 5;
  batch.last_sequence = 9;
  batch.base_offset = kafka::Offset(50);
  batch.last_offset = kafka::Offset(54);
  batch.max_timestamp = 12345;
  batch.transactional = true;
  (void)state.appended(batch);
  auto bytes = state.to_snapshot();
  EXPECT_EQ(bytes.size(), 10U + 46U);
  ProducerState again;
  ASSERT_TRUE(again.load_snapshot(bytes));
  EXPECT_EQ(again.to_snapshot(), bytes);
  EXPECT_EQ(again.first_unstable(kafka::Offset(100)), kafka::Offset(50));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto wrong = bytes;
    wrong[i] ^= std::byte{1};
    EXPECT_FALSE(again.load_snapshot(wrong)) << i;
    EXPECT_FALSE(again.load_snapshot(Bytes(bytes).first(i)));
  }
}

}  // namespace
}  // namespace ciuic::broker
