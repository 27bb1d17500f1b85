// Memory for registrations runs short: who gives way, and what is said to whom.
#include "broker/exposure/slot_block.h"
#include "tests/unit/exposure/exposure_world.h"

namespace ciuic::broker {
namespace {

class Room : public ExposureTest {};

TEST_P(Room, KeptRegistrationsMakeRoomForOthers) {
  if (!GetParam()) GTEST_SKIP() << "registering costs nothing here: nothing is kept";
  const auto first = connect();
  const auto granted = grant(first.session_id, 0);
  kafka::OneSidedReleaseRequest request;
  request.session_id = first.session_id;
  request.grant_ids = {only(granted).grant_id};
  (void)ask(&Exposure::release, request);
  const auto kept = exposure_->metrics().regions.load();
  ASSERT_GT(kept, 1);
  const auto second = connect("User:b", 2);
  faults_left_ = 2;  // of the slots, and of the first chunk
  EXPECT_GT(only(grant(second.session_id, 0, "User:b")).retry_after_ms, 0);
  world_.settle();
  EXPECT_LT(exposure_->metrics().regions.load(), kept) << "the first's are gone";
  EXPECT_EQ(only(grant(second.session_id, 0, "User:b")).error_code, ErrorCode::none);
}

TEST_P(Room, ARegistrationThatFailsIsSaidAndTheNextGrantTriesAgain) {
  const auto session = connect().session_id;
  // What no lease covers is ended to make room, in two steps; then it is said that it does not help.
  for (int step = 0; step < 2; ++step) {
    faults_left_ = 1;
    const auto later = grant(session, 0);
    EXPECT_EQ(only(later).error_code, ErrorCode::throttling_quota_exceeded);
    EXPECT_GT(only(later).retry_after_ms, 0);
    world_.advance(Milliseconds(only(later).retry_after_ms));
  }
  faults_left_ = 1;
  const auto refused = grant(session, 0);
  EXPECT_EQ(only(refused).error_code, ErrorCode::throttling_quota_exceeded);
  EXPECT_LT(only(refused).retry_after_ms, 0) << "Fetch reads it meanwhile";
  EXPECT_EQ(exposure_->metrics().chunk_leases.load(), 0);
  const auto granted = grant(session, 0);
  EXPECT_EQ(only(granted).error_code, ErrorCode::none);
  EXPECT_FALSE(only(granted).chunks.empty());
}

TEST_P(Room, WhatAModestPrincipalKeepsIsNotTheFirstToGo) {
  if (!GetParam()) GTEST_SKIP() << "registering costs nothing here: nothing is kept";
  fill(100);
  const auto keep = [this](const std::string& who, std::uint64_t connection, std::int64_t offset) {
    const auto session = connect(who, connection).session_id;
    kafka::OneSidedReleaseRequest request;
    request.session_id = session;
    request.grant_ids = {only(grant(session, offset, who)).grant_id};
    (void)ask(&Exposure::release, request, who);
  };
  keep("User:modest", 1, 690);
  const auto of_modest = exposure_->metrics().regions.load();
  keep("User:large", 2, 0);
  ASSERT_GT(exposure_->metrics().regions.load(), 3 * of_modest);
  const auto other = connect("User:other", 3).session_id;
  for (int step = 0; step < 2; ++step) {
    faults_left_ = 2;  // of the slots, and of the chunk
    EXPECT_GT(only(grant(other, 690, "User:other")).retry_after_ms, 0);
    world_.settle();
    EXPECT_EQ(exposure_->metrics().regions.load(), step == 0 ? of_modest : 0);
    world_.advance(Milliseconds(100));
  }
}

/// One who asks for everything has all the memory that can be registered; then others come.
TEST_P(Room, WhoHoldsMostGivesWayWhenRegistrationsAreShort) {
  if (!GetParam()) GTEST_SKIP() << "registering costs nothing here";
  fill(960);
  std::vector<std::int64_t> grants_of_a;
  std::int64_t next = 0;
  const auto greedy = connect().session_id;
  while (next < 5000) {
    const auto granted = grant(greedy, next);
    ASSERT_EQ(only(granted).error_code, ErrorCode::none);
    grants_of_a.push_back(only(granted).grant_id);
    next = only(granted).chunks.back().next_offset;
    if (next < 0) break;
  }
  const auto bytes = exposure_->metrics().exposed_bytes.load();
  const auto slots = static_cast<std::int64_t>(SlotBlock::bytes);
  room_ = static_cast<std::uint64_t>(bytes + slots);
  const auto share = (bytes + slots) / 2 - slots;  // of chunks, between two
  ASSERT_GT(share, 30 * 4096);

  const auto more = connect("User:a", 4).session_id;
  const auto modest = connect("User:b", 2).session_id;
  for (int step = 0; step < 2; ++step) {
    EXPECT_GT(only(grant(modest, 0, "User:b")).retry_after_ms, 0);
    world_.advance(Milliseconds(100));
  }
  // The greedy one keeps what it was told until its lease is over, and gets nothing new for what it must give.
  EXPECT_EQ(renew(greedy, grants_of_a.front()), ErrorCode::invalid_fetch_session_epoch);
  EXPECT_EQ(renew(greedy, grants_of_a.back()), ErrorCode::none) << "what it need not give";
  EXPECT_EQ(exposure_->metrics().exposed_bytes.load(), bytes);
  const auto again = grant(more, 0);
  EXPECT_EQ(only(again).error_code, ErrorCode::throttling_quota_exceeded);
  EXPECT_EQ(only(again).retry_after_ms, -1) << "Fetch";
  EXPECT_EQ(exposure_->metrics().refusals[static_cast<std::size_t>(RefusalReason::over_share)].load(), 1);
  world_.advance(Milliseconds(600));
  EXPECT_EQ(renew(greedy, grants_of_a.back()), ErrorCode::none);
  world_.advance(Milliseconds(600));
  const auto kept = exposure_->metrics().exposed_bytes.load();
  EXPECT_LE(kept, share);
  EXPECT_GT(kept, share - 4096) << "and not a chunk more than it must";
  EXPECT_GT(exposure_->metrics().revocations[static_cast<std::size_t>(RevocationReason::gave_way)].load(), 0);

  // Each has its share and no more, whoever asks how often.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(only(grant(more, 0)).retry_after_ms, -1);
    const auto granted = grant(modest, 300 * i, "User:b");
    ASSERT_EQ(only(granted).error_code, ErrorCode::none) << i << " " << only(granted).error_message.value_or("");
    EXPECT_LE(exposure_->metrics().exposed_bytes.load(), 2 * share);
    EXPECT_EQ(renew(greedy, grants_of_a.back()), ErrorCode::none);
    world_.advance(Milliseconds(300));
  }

  // A third one needs little: who has most gives way again.
  const auto small = connect("User:c", 3).session_id;
  auto of_c = grant(small, 4790, "User:c");
  for (int i = 0; i < 30 && only(of_c).error_code != ErrorCode::none; ++i) {
    world_.advance(Milliseconds(100));
    of_c = grant(small, 4790, "User:c");
  }
  EXPECT_EQ(only(of_c).error_code, ErrorCode::none);

  // Once it is not short any more, shares do not matter.
  room_ = ~0ULL;
  world_.advance(Milliseconds(5000));
  EXPECT_EQ(only(grant(more, 0)).error_code, ErrorCode::none);
}

INSTANTIATE_TEST_SUITE_P(, Room, ::testing::Bool(),
                         [](const auto& elsewhere) { return elsewhere.param ? "RegisteringElsewhere" : "AtOnce"; });

}  // namespace
}  // namespace ciuic::broker
