// The journal: what it acknowledges, what a start puts back, and what it does when it cannot. Crashes in every order
// are random_test.cpp's.
#include "broker/log/journal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "broker/log/journal_format.h"
#include "broker/log/segment.h"
#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using testing::LogWorld;
using testing::make_batch;

Buffer filled(std::size_t bytes, int with) { return Buffer(bytes, static_cast<std::byte>(with)); }

/// A ring with one partition's directory beside it.
class JournalRing : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_TRUE(disk.make_directories("/logs/t-0"));
    auto made = Journal::make(disk, path, 16U << 10, executor, clock);
    ASSERT_TRUE(made) << made.error().text;
    journal = *made;
    share = journal->join([this] { ++asked; });
  }
  bool append(std::uint32_t position, Bytes bytes, std::int64_t base = 0) {
    return journal->append(share, {id, kafka::Offset(base), position}, bytes);
  }
  Replayed replay() {
    const auto done = replay_journal(disk, path, [this](const kafka::PartitionId& one) {
      return one == id ? ReplayTo{ReplayTo::Kind::directory, "/logs/t-0"} : ReplayTo{};
    });
    EXPECT_TRUE(done) << done.error().text;
    return done ? *done : Replayed{};
  }
  static std::string log_of(std::int64_t base) { return segment_file("/logs/t-0", kafka::Offset(base), log_suffix); }
  /// Somebody else's bytes are the segment's file: they stand, and a replay leaves `left_out` bytes out.
  void expect_others_stand(const Buffer& others, std::uint64_t left_out) {
    write(log_of(0), others);
    const auto done = replay();
    EXPECT_EQ(done.bytes, 0U);
    EXPECT_EQ(done.left_out, left_out);
    EXPECT_EQ(disk.content(log_of(0)), others);
  }
  void write(const std::string& file, Bytes bytes) { ASSERT_TRUE(write_file(disk, file, bytes)); }

  const std::string path = "/logs/ciuic-journal-0";
  const kafka::PartitionId id{kafka::Uuid::random(), kafka::PartitionIndex(0)};
  ManualClock clock;
  testing::ManualExecutor executor{clock};
  testing::SimulatedFiles disk;
  std::shared_ptr<Journal> journal;
  std::shared_ptr<Journal::Share> share;
  int asked = 0;
};

TEST_F(JournalRing, AReplayWritesWhatTheFilesLackAndMayBeRepeated) {
  const auto one = filled(1000, 1);
  const auto two = filled(500, 2);
  ASSERT_TRUE(append(0, one));
  ASSERT_TRUE(append(1000, two));
  ASSERT_TRUE(append(0, two, 77));  // the next segment
  for (const std::uint64_t bytes : {2000U, 0U}) {
    EXPECT_EQ(replay().bytes, bytes);
    auto both = one;
    both.insert(both.end(), two.begin(), two.end());
    EXPECT_EQ(disk.content(log_of(0)), both);
    EXPECT_EQ(disk.content(log_of(77)), two);
  }
}

TEST_F(JournalRing, AWriteCutShortIsFinishedAndNothingElseIsTouched) {
  const auto bytes = filled(1000, 1);
  ASSERT_TRUE(append(0, bytes));
  write(log_of(0), Bytes(bytes).first(300));
  EXPECT_EQ(replay().bytes, 700U);
  EXPECT_EQ(disk.content(log_of(0)), bytes);
}

TEST_F(JournalRing, WhereSomebodyElseWentOnTheirBytesStand) {
  ASSERT_TRUE(append(0, filled(1000, 1)));
  expect_others_stand(filled(300, 9), 1000);
}

TEST_F(JournalRing, AHoleBeforeTheBytesIsNotFilledWithAnything) {
  ASSERT_TRUE(append(500, filled(100, 1)));
  EXPECT_EQ(replay().left_out, 100U) << "no file";
  write(log_of(0), filled(400, 2));
  EXPECT_EQ(replay().left_out, 100U) << "a file that ends before";
  EXPECT_EQ(disk.content(log_of(0)), filled(400, 2));
}

TEST_F(JournalRing, BehindWhatDoesNotFitNothingFits) {
  ASSERT_TRUE(append(0, filled(100, 1)));
  ASSERT_TRUE(append(100, filled(100, 2)));
  ASSERT_TRUE(append(0, filled(100, 3), 9));
  expect_others_stand(filled(100, 9), 300);
  EXPECT_FALSE(*disk.exists(log_of(9)));
}

TEST_F(JournalRing, AProducersBytesNeverPassForARecord) {
  // Heads as the next turn of the ring would have them, wherever its last record may end.
  const auto evil = filled(200, 0x66);
  auto payload = filled(15'000, 0);
  for (std::size_t at = 64; at + 300 < payload.size(); at += 256) {
    journal::RecordHead head;
    head.at = (16U << 10) + sizeof head + at;
    head.bytes = 200;
    head.topic = id.topic;
    head.crc = journal::crc_of(head, evil, 0);
    std::memcpy(payload.data() + at, &head, sizeof head);
    std::memcpy(payload.data() + at + sizeof head, evil.data(), evil.size());
  }
  const auto own = journal->join([] {});
  const JournalPlace place{{kafka::Uuid::random(), {}}, kafka::Offset(0), 0};
  ASSERT_TRUE(journal->append(own, place, payload));
  journal->filed(*own, journal->end());
  ASSERT_TRUE(journal->append(own, place, filled(64 + 256, 1)));
  EXPECT_EQ(replay().bytes, 0U);
}

TEST_F(JournalRing, ASegmentBeforeTheNewestIsComplete) {
  ASSERT_TRUE(append(0, filled(100, 1), 0));
  write(log_of(50), {});
  EXPECT_EQ(replay().bytes, 0U) << "it was deleted or compacted meanwhile";
  EXPECT_FALSE(*disk.exists(log_of(0)));
}

TEST_F(JournalRing, ADeletedPartitionIsPassedOver) {
  const auto other = journal->join([] {});
  ASSERT_TRUE(journal->append(other, {{kafka::Uuid::random(), {}}, kafka::Offset(0), 0}, filled(100, 1)));
  ASSERT_TRUE(append(0, filled(100, 2)));
  const auto done = replay();
  EXPECT_EQ(done.bytes, 100U);
  EXPECT_EQ(done.gone, 100U);
}

TEST_F(JournalRing, WhatIsFiledIsNotReplayed) {
  ASSERT_TRUE(append(0, filled(1000, 1)));
  journal->filed(*share, journal->end());
  ASSERT_TRUE(append(0, filled(10, 2), 5));
  EXPECT_EQ(replay().bytes, 10U);
}

TEST_F(JournalRing, GoesRoundForEver) {
  std::mt19937_64 random(testing::seed_from_env(3));
  std::uint32_t position = 0;
  std::deque<std::pair<std::uint64_t, std::uint32_t>> unfiled;  // end in the ring, position in the file
  Buffer all;
  std::uint32_t filed = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto bytes = filled(1 + random() % 3000, i % 256);
    while (!append(position, bytes)) {
      ASSERT_FALSE(unfiled.empty()) << "an empty ring takes it";
      journal->filed(*share, unfiled.front().first);
      filed = unfiled.front().second;
      unfiled.pop_front();
    }
    position += static_cast<std::uint32_t>(bytes.size());
    all.insert(all.end(), bytes.begin(), bytes.end());
    unfiled.emplace_back(journal->end(), position);
    if (i % 100 != 0) continue;
    // The process dies here: files hold what was filed.
    ASSERT_TRUE(disk.remove(log_of(0)));
    write(log_of(0), Bytes(all).first(filed));
    EXPECT_EQ(replay().bytes, position - filed);
    ASSERT_EQ(disk.content(log_of(0)), all);
  }
}

TEST_F(JournalRing, HalfRecordsAndStaleOnesDoNotCount) {
  const auto whole = filled(200, 1);
  ASSERT_TRUE(append(0, whole));
  const auto before = journal->end();
  ASSERT_TRUE(append(200, filled(200, 2)));
  // Any byte of the second record's head or of its batch's head.
  const auto content = disk.content(path);
  for (std::size_t at = 0; at < 56 + 61; ++at) {
    const auto where = 4096 + before + at;
    const auto damaged = content[where] ^ std::byte{0x10};
    disk.damage(path, where, std::span(&damaged, 1));
    ASSERT_TRUE(disk.remove(log_of(0)));
    EXPECT_EQ(replay().bytes, 200U) << "byte " << at;
    disk.damage(path, where, std::span(&content[where], 1));
  }
}

TEST_F(JournalRing, AFileOfAnySizeAndContentIsRead) {
  std::mt19937_64 random(testing::seed_from_env(4));
  const auto right = disk.content(path);
  for (int i = 0; i < 500; ++i) {
    auto bytes = right;
    if (i % 2 == 0) bytes.resize(random() % (bytes.size() + 5000));
    for (auto n = random() % 50; n > 0 && !bytes.empty(); --n)
      bytes[random() % std::min<std::size_t>(bytes.size(), 8192)] = static_cast<std::byte>(random());
    ASSERT_TRUE(write_file(disk, path, bytes));
    static_cast<void>(replay());
  }
}

TEST_F(JournalRing, AsksForWhatIsOldOnce) {
  ASSERT_TRUE(append(0, filled(10, 1)));
  executor.run_ready();
  EXPECT_EQ(asked, 0);
  clock.advance(Milliseconds(250));
  executor.run_ready();
  EXPECT_EQ(asked, 1);
  clock.advance(Milliseconds(10'000));
  executor.run_ready();
  EXPECT_EQ(asked, 1) << "it is on its way";
  ASSERT_TRUE(append(10, filled(10, 1)));
  clock.advance(Milliseconds(250));
  executor.run_ready();
  EXPECT_EQ(asked, 2);
}

TEST_F(JournalRing, NobodyIsAskedInsideAnAppend) {
  bool inside = false;
  const auto one = journal->join([&inside] { EXPECT_FALSE(inside); });
  for (int i = 0; i < 30; ++i) {
    inside = true;
    static_cast<void>(journal->append(one, {id, kafka::Offset(0), 0}, filled(2000, 1)));
    inside = false;
    executor.run_ready();
  }
}

TEST_F(JournalRing, WhoWaitsForTheTailHearsItAlsoWhenTheRingStops) {
  std::vector<bool> heard;
  const auto hear = [&heard](bool past) { heard.push_back(past); };
  journal->when_past(journal->end(), hear);
  EXPECT_EQ(heard.size(), 1U) << "an empty ring";
  ASSERT_TRUE(append(0, filled(10, 1)));
  journal->when_past(journal->end(), hear);
  EXPECT_EQ(heard.size(), 1U);
  journal->filed(*share, journal->end());
  EXPECT_EQ(heard.size(), 2U);
  ASSERT_TRUE(append(0, filled(20, 1), 7));
  journal->when_past(journal->end(), hear);
  journal->stop();
  EXPECT_EQ(heard, (std::vector<bool>{true, true, false}));
  EXPECT_FALSE(append(20, filled(10, 1), 7));
  journal->filed(*share, journal->end());
  EXPECT_EQ(replay().bytes, 20U) << "a stopped ring keeps what it holds";
}

/// A log directory with a journal.
class Journaled : public ::testing::Test {
 protected:
  /// With one record in its file.
  std::shared_ptr<Partition> create(const std::string& topic, LogConfig config = {}) {
    auto made = world.create(topic, 0, config);
    EXPECT_TRUE(world.append(*made, make_batch({.timestamp = 1'699'999'999'000})));
    world.advance(Milliseconds(250));
    EXPECT_EQ(made->unwritten_bytes(), 0U);
    return made;
  }
  Journaled() {
    world.limits.journal_bytes = 64U << 10;
    world.start();
  }
  std::uint64_t in_file(std::int64_t base = 0) {
    return world.disk.content(segment_file("/logs/t-0", kafka::Offset(base), log_suffix)).size();
  }
  LogWorld world;
};

TEST_F(Journaled, AnAppendIsAcknowledgedWithoutAFileAndFiledSoonAfter) {
  const auto t = create("t");
  const auto writes = world.disk.writes();
  const auto bytes = in_file();
  ASSERT_TRUE(world.append(*t, make_batch({.records = 3})));
  EXPECT_EQ(t->high_watermark(), kafka::Offset(4));
  EXPECT_EQ(world.disk.writes(), writes);
  EXPECT_EQ(world.offsets(*t, kafka::Offset(0)).size(), 4U);
  world.advance(Milliseconds(250));
  EXPECT_GT(in_file(), bytes);
  EXPECT_EQ(t->unwritten_bytes(), 0U);
}

TEST_F(Journaled, TimeSearchesSeeWhatIsInNoFileYet) {
  const auto t = create("t");
  ASSERT_TRUE(world.append(*t, make_batch({.records = 5, .timestamp = 1'700'000'000'000})));
  world.advance(Milliseconds(250));
  ASSERT_TRUE(world.append(*t, make_batch({.records = 5, .timestamp = 1'700'000'001'000})));
  EXPECT_EQ(world.find_time(*t, 1'700'000'000'003)->offset, kafka::Offset(4));
  EXPECT_EQ(world.find_time(*t, 1'700'000'000'500)->offset, kafka::Offset(6));
  EXPECT_EQ(world.find_time(*t, 1'700'000'001'002)->offset, kafka::Offset(8));
  EXPECT_EQ(world.find_time(*t, -3)->offset, kafka::Offset(10));
  EXPECT_EQ(world.find_time(*t, 1'700'000'002'000)->offset, kafka::Offset(-1));
}

TEST_F(Journaled, FlushMessagesStillMeansTheDevice) {
  LogConfig config;
  config.flush_messages = 1;
  const auto t = create("t", config);
  ASSERT_TRUE(world.append(*t, make_batch({.records = 3})));
  world.crash(true);
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(4));
}

TEST_F(Journaled, AFlushCoversWhatTheJournalAloneHas) {
  const auto t = create("t");
  ASSERT_TRUE(world.append(*t, make_batch({.records = 3})));
  bool flushed = false;
  t->flush([&flushed](const auto& done) { flushed = done.has_value(); });
  world.settle();
  EXPECT_TRUE(flushed);
  world.crash(true);
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(4));
}

TEST_F(Journaled, ADiskThatFillsUpAfterTheAcknowledgementLosesNothing) {
  const auto t = create("t");
  ASSERT_TRUE(world.append(*t, make_batch({.records = 3, .value_bytes = 2000})));
  world.disk.set_capacity(0);
  world.advance(Milliseconds(250));
  EXPECT_EQ(world.offline_reasons.size(), 1U);
  const auto refused = world.append(*t, make_batch({}));
  EXPECT_EQ(refused.error().error.code, kafka::ErrorCode::kafka_storage_error);
  world.disk.heal();
  world.crash();
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(4));
  EXPECT_EQ(world.offsets(*world.find("t"), kafka::Offset(0)).size(), 4U);
}

TEST_F(Journaled, WithoutRoomForAJournalEachAppendIsWrittenToItsFile) {
  world.disk.set_capacity(4096);
  const auto t = create("t");
  const auto bytes = in_file();
  ASSERT_TRUE(world.append(*t, make_batch({.records = 3})));
  EXPECT_GT(in_file(), bytes);
}

TEST_F(Journaled, ABatchLargerThanTheRingGoesToItsFile) {
  const auto t = create("t");
  ASSERT_TRUE(world.append(*t, make_batch({.value_bytes = 70'000})));
  EXPECT_GT(in_file(), 70'000U);
  ASSERT_TRUE(world.append(*t, make_batch({.value_bytes = 10})));
  world.crash();
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(3));
}

TEST_F(Journaled, ADeletedTopicsBytesDoNotComeBackUnderItsName) {
  const auto t = create("t");
  ASSERT_TRUE(world.append(*t, make_batch({.records = 3})));
  world.directory->remove({"t", kafka::PartitionIndex(0)}, Milliseconds(60'000), [](const auto&) {});
  world.settle();
  world.create("t");
  world.crash();
  EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(0));
}

/// Appends that are acknowledged from the journal alone: no job of FileIo runs.
class JournaledAlone : public Journaled {
 protected:
  void append(Partition& to, std::size_t value_bytes) {
    to.append(make_batch({.value_bytes = value_bytes}), {}, [this](const auto& result) {
      ASSERT_TRUE(result);
      acknowledged = std::max(acknowledged, result->last_offset.value + 1);
    });
    world.executor.run_ready();
  }
  void run_job() { ASSERT_TRUE(world.io.run_one(world.random)); }
  void expect_kept(std::int64_t end) {
    ASSERT_EQ(acknowledged, end);
    world.crash();
    EXPECT_EQ(world.find("t")->log_end_offset(), kafka::Offset(end));
  }
  static LogConfig segments_of(std::int32_t bytes) {
    LogConfig config;
    config.segment_bytes = bytes;
    return config;
  }
  std::int64_t acknowledged = 0;
};

TEST_F(JournaledAlone, ATimeSearchMakesNoFileOfASegmentThatIsNotWritten) {
  const auto t = create("t", segments_of(3000));
  append(*t, 1500);
  append(*t, 1500);  // in the next segment
  t->offset_for_time(1'700'000'000'000, Isolation::read_uncommitted, [](const auto&) {});
  // Of the two jobs that wait, the write and the search, either may come first.
  while (in_file(2) == 0 && !world.io.idle()) {
    EXPECT_FALSE(*world.disk.exists(segment_file("/logs/t-0", kafka::Offset(2), log_suffix)) && in_file() < 1500);
    run_job();
    world.executor.run_ready();
  }
  expect_kept(3);
}

TEST_F(JournaledAlone, BehindAFailedWriteNoNextSegmentIsMade) {
  const auto t = create("t", segments_of(3000));
  append(*t, 1500);
  append(*t, 1500);
  world.disk.set_capacity(0);
  run_job();          // the last write of the first segment
  world.disk.heal();  // somebody made room
  world.settle();
  EXPECT_EQ(world.offline_reasons.size(), 1U);
  expect_kept(3);
}

TEST_F(JournaledAlone, BehindAFailedWriteNothingIsWritten) {
  const auto t = create("t", segments_of(6000));
  append(*t, 1500);
  world.clock.advance(Milliseconds(250));
  world.executor.run_ready();  // on its way to the file
  append(*t, 1500);
  append(*t, 4000);  // rolls
  world.disk.set_capacity(0);
  run_job();
  world.disk.heal();
  run_job();  // the second write of the segment; then the process dies
  expect_kept(4);
}

TEST_F(JournaledAlone, ATruncationWhoseDirectoryGoesOfflineCutsNothing) {
  const auto other = create("other");
  const auto t = create("t");
  append(*other, 10);
  append(*t, 10);
  std::optional<ResultOf<kafka::Offset, kafka::Error>> answer;
  t->truncate(kafka::Offset(1), [&answer](const auto& done) { answer = done; });
  run_job();  // of t
  world.executor.run_ready();
  EXPECT_FALSE(answer) << "the ring still has older bytes";
  world.disk.fail_write(0);
  world.settle();
  EXPECT_EQ(world.offline_reasons.size(), 1U);
  world.disk.heal();
  ASSERT_TRUE(answer);
  EXPECT_FALSE(*answer);
  expect_kept(2);
}

TEST_F(JournaledAlone, APartitionMadeAgainWithItsIdIsEmpty) {
  const auto other = create("other");
  const auto t = create("t");
  const auto id = t->topic_id();
  append(*other, 10);  // older than what t appends: holds the ring's tail back
  append(*t, 10);
  bool removed = false;
  world.directory->remove({"t", kafka::PartitionIndex(0)}, Milliseconds(60'000),
                          [&removed](const auto&) { removed = true; });
  world.settle();
  ASSERT_TRUE(removed);
  ASSERT_TRUE(world.directory->create({"t", kafka::PartitionIndex(0)}, {id, {}, &world.executor}));
  ASSERT_TRUE(world.append(*world.find("t"), make_batch({.value_bytes = 77})));
  acknowledged = 1;
  expect_kept(1);
}

TEST_F(Journaled, EvictionUnderPressureFilesWhatItWantsToTake) {
  const auto t = create("t");
  ASSERT_TRUE(world.append(*t, make_batch({.records = 3})));
  EXPECT_GT(t->unwritten_bytes(), 0U);
  // Memory for much more than the budget: the quiet partition's chunk is among the coldest.
  const auto busy = create("busy");
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(world.append(*busy, make_batch({.value_bytes = 300'000})));
  world.settle();
  EXPECT_EQ(t->unwritten_bytes(), 0U);
  EXPECT_EQ(world.offsets(*t, kafka::Offset(0)).size(), 4U);
}

}  // namespace
}  // namespace ciuic::broker
