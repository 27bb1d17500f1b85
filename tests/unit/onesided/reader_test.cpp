// The read loop against scripted READs, over memory a test fills itself.
#include "transport/onesided/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/conformance/support/fake_device.h"
#include "tests/conformance/support/pair.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::onesided {
namespace {

using rdma::Fault;
using testing::FaultState;

/// Three batches of ten offsets each, a slot, a grant for both, over the provider asked for.
enum class Into : std::uint8_t { own, host, device };  // where READs land: the endpoint's memory, or a program's
struct Over {
  const char* provider;
  Into into = Into::own;
};
std::string name_of(const ::testing::TestParamInfo<Over>& one) {
  static constexpr std::array names{"", "_into_host", "_into_device"};
  return std::string(one.param.provider) + names[static_cast<std::size_t>(one.param.into)];
}
const auto over_reads = ::testing::Values(Over{"memory"}, Over{"memory", Into::host}, Over{"memory", Into::device});

class ReaderTest : public ::testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    log::set_level(log::Level::off);
    if (GetParam().into == Into::device) area_ = std::make_shared<LandingArea>(device_, device_->memory());
    if (GetParam().into == Into::host)
      area_ = std::make_shared<LandingArea>(
          device::make_host(), device::Span{reinterpret_cast<std::uintptr_t>(programs_.data()), programs_.size()});
    auto inner = rdma::make_provider(GetParam().provider, clock_).value();
    provider_ = testing::make_faulty(inner, faults_);
    domain_ = provider_->open_domain("User:a").value();
    rdma::ListenOptions options;
    options.runtime_dir = folder_.path();
    listener_ = provider_->listen(options).value();
    for (int i = 0; i < 3; ++i) append(i * 10, 10);
    region_.emplace(domain_->expose(memory_->part(memory_, 4096, 65536)).value());
    slot_region_.emplace(domain_->expose(memory_->part(memory_, 0, 4096)).value());
    publish(30);
    connect();
  }
  void connect() {
    reader_.reset();
    queue_.reset();
    const auto token = rdma::Token::random();
    listener_->admit(token, domain_, 1, clock_.now() + std::chrono::seconds(60));
    queue_ = std::make_unique<ReadQueue>(provider_->connect(listener_->address(), token, {}).value(), clock_);
    if (area_) {
      auto registered = area_->register_with(queue_->endpoint());
      ASSERT_TRUE(registered) << registered.error().text;
      queue_->landings().use(area_, std::move(*registered), Landings::Longer::refused);
    }
    ReaderLimits limits;
    limits.read_bytes = 4096;
    reader_ = std::make_unique<Reader>(*queue_, limits);
  }
  void append(std::int64_t base, int records) {
    kafka::RecordBatchBuilder builder;
    for (int i = 0; i < records; ++i) {
      kafka::RecordToWrite record;
      record.timestamp = 1;
      record.value = as_bytes("value");
      builder.add(record);
    }
    Buffer out;
    ASSERT_TRUE(builder.finish({}, out));
    kafka::store_be(out.data(), base);
    kafka::store_be(out.data() + kafka::batch_at::leader_epoch, std::int32_t{0});
    std::memcpy(memory_->bytes().data() + 4096 + length_, out.data(), out.size());
    starts_.push_back(length_);
    length_ += static_cast<std::uint32_t>(out.size());
  }
  void publish(std::int64_t high_watermark, std::int64_t stable = -1) {
    slot_.leader_epoch = kafka::LeaderEpoch(0);
    slot_.high_watermark = kafka::Offset(high_watermark);
    slot_.last_stable_offset = kafka::Offset(stable < 0 ? high_watermark : stable);
    slot_.chunk_sequence = 1;
    slot_.chunk_length = length_;
    SlotWriter(memory_->bytes().first(slot_bytes)).write(slot_);
  }
  Grant grant() {
    Grant grant;
    grant.id = 1;
    grant.leader_epoch = kafka::LeaderEpoch(0);
    grant.high_watermark = grant.last_stable_offset = kafka::Offset(30);
    grant.slot = *slot_region_->remote().sub(0, slot_bytes);
    grant.chunks.push_back({1, kafka::Offset(0), {}, length_, 0, region_->remote()});
    grant.deadline = clock_.now() + std::chrono::seconds(5);
    return grant;
  }
  rdma::Result<Delivery> read() {
    for (int i = 0; i < 100; ++i) {
      queue_->poll();
      auto got = reader_->read();
      if (got && GetParam().into == Into::device) bring_back(*got);
      if (got || got.error() != Fault::would_block) return got;
    }
    return Fault::would_block;
  }
  /// A device's batches where the CPU may look at them.
  void bring_back(Delivery& delivery) {
    brought_.clear();
    ASSERT_EQ(delivery.heads.size(), delivery.batches.size());
    for (std::size_t i = 0; i < delivery.batches.size(); ++i) {
      brought_.push_back(device_->see(delivery.batches[i]));
      ASSERT_TRUE(std::equal(delivery.heads[i].begin(), delivery.heads[i].end(), brought_.back().begin()));
    }
    delivery.batches = brought_;
  }

  ManualClock clock_;
  std::shared_ptr<testing::FakeDevice> device_ = std::make_shared<testing::FakeDevice>(1U << 20);
  Buffer programs_ = Buffer(1U << 20);
  std::shared_ptr<LandingArea> area_;
  std::vector<Bytes> brought_;
  testing::TemporaryFolder folder_;
  std::shared_ptr<FaultState> faults_ = std::make_shared<FaultState>();
  std::shared_ptr<testing::Memfd> memory_ = std::make_shared<testing::Memfd>(256U << 10);
  std::shared_ptr<rdma::Provider> provider_;
  std::shared_ptr<rdma::Domain> domain_;
  std::unique_ptr<rdma::Listener> listener_;
  std::optional<rdma::Region> region_, slot_region_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Reader> reader_;
  std::uint32_t length_ = 0;
  std::vector<std::uint32_t> starts_;
  Slot slot_;
};

TEST_P(ReaderTest, DeliversWhatIsCommittedAndThenTheTail) {
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  const auto got = read();
  ASSERT_TRUE(got) << name(got.error());
  EXPECT_EQ(got->batches.size(), 3U);
  EXPECT_EQ(got->next_offset.value, 30);
  const auto tail = read();
  ASSERT_TRUE(tail);
  EXPECT_TRUE(tail->batches.empty());
  EXPECT_TRUE(tail->at_tail);
  append(30, 5);
  publish(35);
  const auto more = read();
  ASSERT_TRUE(more);
  EXPECT_EQ(more->batches.size(), 1U);
  EXPECT_EQ(reader_->position().value, 35);
}

TEST_P(ReaderTest, BeginsAtTheBatchThatHoldsThePosition) {
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(15)));
  const auto got = read();
  ASSERT_TRUE(got);
  ASSERT_EQ(got->batches.size(), 2U);
  EXPECT_EQ(kafka::RecordBatchView::parse(got->batches[0])->base_offset().value, 10);
}

TEST_P(ReaderTest, NothingIsReadOnceTheLeaseIsOver) {
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  clock_.advance(std::chrono::seconds(6));
  EXPECT_EQ(read().error(), Fault::lease_expired);
  reader_->renewed(clock_.now(), 10'000);
  EXPECT_TRUE(read());
}

TEST_P(ReaderTest, ABatchThatFailsItsCheckIsNeverDelivered) {
  memory_->bytes()[4096 + starts_[1] + 80] ^= std::byte{1};
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  int retries = 0;
  rdma::Result<Delivery> got = Fault::would_block;
  while ((got = read()).has_error() && outcome_of(got.error()) == rdma::Outcome::retry_here) ++retries;
  ASSERT_TRUE(got.has_error());
  EXPECT_EQ(got.error(), Fault::chunk_revoked) << "after retries, a new grant";
  EXPECT_EQ(retries, ReaderLimits{}.retries_max);
  EXPECT_EQ(reader_->position().value, 0);
}

TEST_P(ReaderTest, ReadCommittedStopsAtTheLastStableOffset) {
  publish(30, 20);
  auto one = grant();
  one.isolation = kafka::Isolation::read_committed;
  one.last_stable_offset = kafka::Offset(20);
  ASSERT_TRUE(reader_->adopt(one, kafka::Offset(0)));
  EXPECT_EQ(read()->next_offset.value, 20);
  EXPECT_TRUE(read()->at_tail);
  ++slot_.aborted_count;
  publish(30, 30);
  EXPECT_EQ(read().error(), Fault::aborted_list_stale);
}

TEST_P(ReaderTest, ALogStartAboveThePositionIsSaid) {
  slot_.log_start_offset = kafka::Offset(10);
  publish(30);
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  const auto got = read();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->batches.empty());
  EXPECT_EQ(got->log_start_offset.value, 10);
}

TEST_P(ReaderTest, ASealedSlotAsksForANewGrant) {
  slot_.flags = slot_flag::sealed;
  publish(30);
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  EXPECT_EQ(read().error(), Fault::layout_changed);
}

TEST_P(ReaderTest, TheLogGoingOnInAnotherChunkAsksForANewGrant) {
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  ASSERT_TRUE(read());
  slot_.chunk_sequence = 2;
  slot_.high_watermark = slot_.last_stable_offset = kafka::Offset(40);
  SlotWriter(memory_->bytes().first(slot_bytes)).write(slot_);
  EXPECT_EQ(read().error(), Fault::layout_changed);
}

INSTANTIATE_TEST_SUITE_P(Over, ReaderTest,
                         ::testing::Values(Over{"memory"}, Over{"memory", Into::host}, Over{"memory", Into::device},
                                           Over{"shm"}),
                         name_of);

class ScriptedReads : public ReaderTest {};

TEST_P(ScriptedReads, AShortSuccessIsSeenAndReadAgain) {
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  faults_->script.on_read(2).deliver_only = 100;
  EXPECT_EQ(read().error(), Fault::batch_check_failed);
  EXPECT_EQ(read()->batches.size(), 3U);
}

TEST_P(ScriptedReads, AnOlderBatchInTheDestinationIsNotTakenForTheNew) {
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  ASSERT_TRUE(read());
  reader_->seek(kafka::Offset(0));
  faults_->script.on_read(3).deliver_only = 0;  // the destination keeps what it had: these very batches
  EXPECT_EQ(read().error(), Fault::batch_check_failed);
}

TEST_P(ScriptedReads, AnAccessErrorMeansReconnect) {
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  faults_->script.on_read(2).complete_with = Fault::access_error;
  EXPECT_EQ(outcome_of(read().error()), rdma::Outcome::reconnect);
  EXPECT_EQ(outcome_of(read().error()), rdma::Outcome::reconnect);
  connect();
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  EXPECT_EQ(read()->batches.size(), 3U);
}

TEST_P(ScriptedReads, AReadThatNeverCompletesEndsTheEndpointAtItsDeadline) {
  faults_->plan.lost = 1000;
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  EXPECT_EQ(read().error(), Fault::would_block);
  clock_.advance(std::chrono::milliseconds(2100));
  EXPECT_EQ(read().error(), Fault::read_timed_out);
}

TEST_P(ScriptedReads, ATornSlotIsReadAgain) {
  ASSERT_TRUE(reader_->adopt(grant(), kafka::Offset(0)));
  faults_->script.on_read(1).tear_after = 24;
  faults_->script.on_read(1).before = [this] { publish(30); };
  EXPECT_EQ(read().error(), Fault::torn_slot);
  EXPECT_TRUE(read());
}

/// A chunk of many READs: the next one is under way while the bytes before it are checked and consumed.
class ReadsAhead : public ReaderTest {
 protected:
  void SetUp() override {
    ReaderTest::SetUp();
    for (int i = 3; i < batches; ++i) append(i * 10, 10);
    publish(batches * 10);
  }
  Grant long_grant() {
    auto one = grant();
    one.chunks.front().length = length_;
    one.high_watermark = one.last_stable_offset = kafka::Offset(batches * 10);
    return one;
  }
  /// Reads from where the reader is up to the tail, over faults that a READ again mends; each batch once, in order.
  void expect_all_from(std::int64_t from) {
    auto next = from;
    for (int i = 0; i < 1000; ++i) {
      const auto got = read();
      if (!got) {
        ASSERT_EQ(outcome_of(got.error()), rdma::Outcome::retry_here) << name(got.error());
        continue;
      }
      if (got->at_tail) break;
      for (const auto bytes : got->batches) {
        const auto batch = kafka::RecordBatchView::parse(bytes);
        ASSERT_TRUE(batch && batch->crc_valid());
        ASSERT_LE(batch->base_offset().value, next);
        next = batch->next_offset().value;
      }
      ASSERT_EQ(got->next_offset.value, next);
    }
    EXPECT_EQ(next, batches * 10);
  }
  static constexpr int batches = 150;
};

TEST_P(ReadsAhead, AreTakenAndNothingIsReadTwice) {
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  expect_all_from(0);
  EXPECT_GE(reader_->counters().reads_ahead, length_ / 4096 - 1);
  // A piece ends inside a batch, which the next one reads again.
  EXPECT_LE(reader_->counters().data_reads, length_ / 3900 + 2);
}

TEST_P(ReadsAhead, AreUnderWayBeforeTheCallerAsks) {
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  ASSERT_TRUE(read());
  EXPECT_EQ(faults_->script.reads(), 3U);  // slot, bytes, bytes behind them
}

TEST_P(ReadsAhead, AreDroppedWhenTheReaderGoesElsewhere) {
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  for (const int to : {700, 0, 30, 1400, 210, 0}) {
    ASSERT_TRUE(read());
    reader_->seek(kafka::Offset(to));
    const auto got = read();
    ASSERT_TRUE(got) << to << " " << name(got.error());
    EXPECT_EQ(kafka::RecordBatchView::parse(got->batches.front())->base_offset().value, to);
  }
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(500)));
  expect_all_from(500);
}

TEST_P(ReadsAhead, AreNotUsedWhenTheyBeganBeforeTheSlotThatTellsOfTheirBytes) {
  auto short_one = long_grant();
  publish(300);  // fewer than a READ holds are visible
  short_one.high_watermark = short_one.last_stable_offset = kafka::Offset(300);
  ASSERT_TRUE(reader_->adopt(short_one, kafka::Offset(0)));
  std::int64_t next = 0;
  while (next < 300) {
    const auto got = read();
    ASSERT_TRUE(got) << name(got.error());
    next = got->next_offset.value;
  }
  const auto ahead = reader_->counters().reads_ahead;
  EXPECT_TRUE(read()->at_tail);
  EXPECT_EQ(reader_->counters().reads_ahead, ahead);
  publish(batches * 10);
  expect_all_from(300);
}

TEST_P(ReadsAhead, ThatCameShortOrGarbledAreReadAgain) {
  for (std::uint64_t n = 2; n < 9; ++n) faults_->script.on_read(n).deliver_only = 100 * static_cast<std::uint32_t>(n);
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  expect_all_from(0);
}

TEST_P(ReadsAhead, ThatFailEndTheConnectionOnlyWhenTheyAreWanted) {
  faults_->script.on_read(3).complete_with = Fault::access_error;
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  const auto got = read();
  ASSERT_TRUE(got) << name(got.error());
  const auto at = reader_->position();
  EXPECT_EQ(outcome_of(read().error()), rdma::Outcome::reconnect);
  EXPECT_EQ(reader_->position(), at);
  connect();
  ASSERT_TRUE(reader_->adopt(long_grant(), at));
  expect_all_from(at.value);
}

TEST_P(ReadsAhead, AreNothingToALeaseThatRanOut) {
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  ASSERT_TRUE(read());
  const auto at = reader_->position();
  clock_.advance(std::chrono::seconds(6));
  EXPECT_EQ(read().error(), Fault::lease_expired);
  ASSERT_TRUE(reader_->adopt(long_grant(), at));
  expect_all_from(at.value);
}

/// What was kept stays as it was, whatever is read afterwards, and when the connection is gone too.
TEST_P(ReadsAhead, LeaveAloneWhatTheCallerKeeps) {
  struct Kept {
    std::shared_ptr<const void> memory;
    std::vector<Bytes> batches;
  };
  std::vector<Kept> kept;
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  for (int round = 0; round < 3; ++round) {
    reader_->seek(kafka::Offset(0));
    for (auto got = read(); got && !got->at_tail; got = read())
      if (auto memory = reader_->keep()) kept.push_back({memory, {got->batches.begin(), got->batches.end()}});
    if (round == 1) kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(kept.size() / 2));
  }
  EXPECT_GE(kept.size(), 2 * (length_ / 4096 - 1));
  reader_.reset();
  queue_.reset();
  std::vector<std::thread> others;
  for (const auto& one : kept)
    for (const auto bytes : one.batches) {
      const auto batch = kafka::RecordBatchView::parse(bytes);
      ASSERT_TRUE(batch && batch->crc_valid());
    }
  for (auto& one : kept) others.emplace_back([mine = std::move(one.memory)]() mutable { mine.reset(); });
  for (auto& one : others) one.join();
}

TEST_P(ReadsAhead, NeverMeetOldBatchesInALandingThatCameBack) {
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  for (int round = 0; round < 5; ++round) {
    reader_->seek(kafka::Offset(0));
    ASSERT_TRUE(read());
    const auto memory = reader_->keep();
    ASSERT_TRUE(memory);
    reader_->seek(kafka::Offset(0));
    ASSERT_TRUE(read());
    const auto more = reader_->keep();
    ASSERT_TRUE(more);
  }
  reader_->seek(kafka::Offset(0));
  // The next READ says "success" and delivers nothing: whichever landing it went to, no batch of before is in it.
  const auto next = faults_->script.reads() + 1;
  faults_->script.on_read(next).deliver_only = 0;
  EXPECT_EQ(read().error(), Fault::batch_check_failed);
}

TEST_P(ReadsAhead, AreCopiedWhereMuchIsKeptAlready) {
  ReaderLimits limits;
  limits.read_bytes = 8U << 20;
  Landings landings;
  std::vector<std::shared_ptr<const void>> lent;
  for (std::size_t bytes = 0; bytes < Landings::lent_bytes_max; bytes += limits.read_bytes) {
    auto one = landings.take(queue_->endpoint(), limits.read_bytes).value();
    lent.push_back(landings.lend(one, 0, 0));
    ASSERT_TRUE(lent.back());
    EXPECT_FALSE(one);
  }
  auto one = landings.take(queue_->endpoint(), limits.read_bytes).value();
  EXPECT_FALSE(landings.lend(one, 0, 0));
  EXPECT_TRUE(one);
  lent.pop_back();
  EXPECT_TRUE(landings.lend(one, 0, 0));
}

/// READs into a program's memory, which runs out and fails in ways of its own.
class ReadsIntoAnArea : public ReadsAhead {};

TEST_P(ReadsIntoAnArea, KeepEveryDeliveryUntilTheMemoryIsFullAndGoOnWhenSomeIsBack) {
  std::deque<std::shared_ptr<const void>> kept;
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
  std::vector<std::unique_ptr<LandingArea::Piece>> others;
  while (auto piece = area_->take(64U << 10)) others.push_back(std::move(piece));
  others.resize(others.size() / 2);
  std::int64_t next = 0;
  int full = 0;
  while (next < batches * 10) {
    const auto got = read();
    if (!got && got.error() == Fault::landing_full) {
      ++full;
      if (!others.empty())
        others.pop_back();
      else
        kept.pop_front();
      continue;
    }
    ASSERT_TRUE(got) << name(got.error());
    if (got->at_tail) break;
    next = got->next_offset.value;
    kept.push_back(reader_->keep());
    ASSERT_TRUE(kept.back());
  }
  EXPECT_EQ(next, batches * 10);
  // Nothing else holds a piece once the deliveries and the reader are gone.
  kept.clear();
  others.clear();
  reader_.reset();
  queue_.reset();
  EXPECT_TRUE(area_->has_room(area_->memory().bytes));
}

TEST_P(ReadsIntoAnArea, WaitForMemoryWithoutLosingTheirPlace) {
  std::vector<std::unique_ptr<LandingArea::Piece>> others;
  while (auto piece = area_->take(1024)) others.push_back(std::move(piece));
  ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(300)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read().error(), Fault::landing_full);
  others.clear();
  expect_all_from(300);
}

INSTANTIATE_TEST_SUITE_P(Over, ReadsIntoAnArea,
                         ::testing::Values(Over{"memory", Into::host}, Over{"memory", Into::device}), name_of);

class ReadsIntoADevice : public ReadsAhead {};

/// Whichever call of the device fails, the reader says so and delivers nothing; later reads go on from the same place.
TEST_P(ReadsIntoADevice, EndWithTheDevicesErrorAndDeliverNothing) {
  for (const std::string_view bad : {"wipe", "heads", "checksums"}) {
    connect();
    ASSERT_TRUE(reader_->adopt(long_grant(), kafka::Offset(0)));
    device_->fails = [bad](std::string_view call) { return call == bad ? "it burns" : ""; };
    EXPECT_EQ(read().error(), Fault::landing_failed) << bad;
    EXPECT_EQ(reader_->position().value, 0) << bad;
    device_->fails = nullptr;
    expect_all_from(0);
  }
}

TEST_P(ReadsIntoADevice, AreRefusedWhereTheDeviceCannotCheckOrShareItsMemory) {
  for (const std::string_view bad : {"heads", "checksums", "dma_buf"}) {
    device_->fails = [bad](std::string_view call) { return call == bad ? "no such luck" : ""; };
    const auto registered = area_->register_with(queue_->endpoint());
    ASSERT_TRUE(registered.has_error()) << bad;
    EXPECT_NE(registered.error().text.find("no such luck"), std::string::npos) << registered.error().text;
  }
}

TEST_P(ReadsIntoADevice, OfMoreBatchesThanAreToldAtATimeLoseNone) {
  // A READ that holds more batches than the device is asked for at a time.
  ReaderLimits limits;
  limits.read_bytes = 768U << 10;
  reader_ = std::make_unique<Reader>(*queue_, limits);
  region_.reset();
  memory_ = std::make_shared<testing::Memfd>(2U << 20);
  length_ = 0;
  starts_.clear();
  constexpr int many = 9000;
  for (int i = 0; i < many; ++i) append(i, 1);
  region_.emplace(domain_->expose(memory_->part(memory_, 4096, (1U << 20) + (512U << 10))).value());
  slot_region_.emplace(domain_->expose(memory_->part(memory_, 0, 4096)).value());
  publish(many);
  auto wide = grant();
  wide.high_watermark = wide.last_stable_offset = kafka::Offset(many);
  wide.chunks[0].length = length_;
  ASSERT_TRUE(reader_->adopt(wide, kafka::Offset(0)));
  std::int64_t next = 0;
  while (next < many) {
    const auto got = read();
    ASSERT_TRUE(got) << name(got.error());
    ASSERT_FALSE(got->batches.empty());
    for (const auto bytes : got->batches) {
      const auto batch = kafka::RecordBatchView::parse(bytes);
      ASSERT_TRUE(batch && batch->crc_valid());
      ASSERT_EQ(batch->base_offset().value, next);
      ++next;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Over, ReadsIntoADevice, ::testing::Values(Over{"memory", Into::device}), name_of);
INSTANTIATE_TEST_SUITE_P(Over, ReadsAhead, over_reads, name_of);
INSTANTIATE_TEST_SUITE_P(Over, ScriptedReads, over_reads, name_of);

}  // namespace
}  // namespace ciuic::onesided
