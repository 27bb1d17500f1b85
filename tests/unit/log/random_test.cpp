// Random appends, rolls, evictions, restarts and crashes against a model, by seed: CIUIC_SEED=<n> replays one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/log/support/log_world.h"
#include "transport/base/log.h"

namespace ciuic::broker {
namespace {

using testing::BatchOf;
using testing::LogWorld;

/// What the log must hold: one entry a record, in order of offsets.
struct Model {
  struct Record {
    std::string key;
    std::int64_t timestamp;
  };
  std::vector<Record> records;
  std::int64_t start = 0;
  std::int64_t acknowledged = 0;
};

class Walk {
 public:
  explicit Walk(std::uint64_t seed) : world_(seed, arena(seed)) {
    // None, one that is always full, one that has room.
    constexpr std::uint64_t journals[] = {0, 16U << 10, 16U << 10, 256U << 10};
    world_.limits.journal_bytes = journals[seed % 4];
    world_.start();
    config_.segment_bytes = 3000 + static_cast<std::int32_t>(seed % 7) * 3000;
    config_.index_interval_bytes = 100 + static_cast<std::int32_t>(seed % 5) * 400;
    if (seed % 3 == 0) config_.flush_messages = 1 + static_cast<std::int64_t>(seed % 20);
    if (seed % 5 == 0) config_.flush_ms = static_cast<std::int64_t>(seed % 300);
    world_.create("t", 0, config_);
    world_.create("other", 0, config_);
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) step();
  }

 private:
  static ArenaConfig arena(std::uint64_t seed) {
    auto config = LogWorld::small_arena();
    config.budget_bytes = (64U << 10) << (seed % 4);
    config.chunk_bytes_max = 8192;
    return config;
  }
  Partition& t() { return *world_.find("t"); }
  Partition& other() { return *world_.find("other"); }
  std::uint64_t dice(std::uint64_t n) { return world_.random() % n; }

  void step() {
    switch (dice(27)) {
      case 26:
        // Beside the writes that are under way; what it finds depends on them.
        return t().offset_for_time(clock_ - static_cast<std::int64_t>(dice(200)), Isolation::read_uncommitted,
                                   [](const auto&) {});
      case 24:
        return append_other();
      case 25:
        world_.advance(Milliseconds(dice(400)));
        return;
      case 0:
        return crash(false);
      case 1:
        return crash(true);
      case 2:
        return restart();
      case 3:
        return flush();
      case 4:
        return delete_records();
      case 5:
        return truncate();
      case 6:
        return find_time();
      case 7:
        t().maintain();
        return world_.settle();
      case 8:
      case 9:
      case 10:
      case 11:
        return check_read();
      case 12:
        return retry();
      default:
        return append();
    }
  }

  void append() {
    const auto burst = 1 + dice(4);
    for (std::uint64_t i = 0; i < burst; ++i) {
      BatchOf batch;
      batch.records = 1 + static_cast<int>(dice(4));
      batch.key = fmt::format("k{}", ++unique_);
      batch.value_bytes = dice(600);
      clock_ += static_cast<std::int64_t>(dice(20));
      batch.timestamp = clock_;
      batch.codec = static_cast<kafka::Codec>(dice(5));
      batch.producer_id = kafka::ProducerId(9);
      batch.producer_epoch = kafka::ProducerEpoch(0);
      batch.base_sequence = sequence_;
      last_ = testing::make_batch(batch);
      last_base_ = static_cast<std::int64_t>(model_.records.size());
      last_records_ = batch.records;
      t().append(last_, {},
                 [this, base = last_base_, records = batch.records](const ResultOf<AppendResult, AppendError>& result) {
                   ASSERT_TRUE(result) << result.error().error.text;
                   EXPECT_EQ(result->base_offset, kafka::Offset(base));
                   model_.acknowledged = std::max(model_.acknowledged, base + records);
                   EXPECT_GE(t().high_watermark(), kafka::Offset(base + records));
                 });
      for (int r = 0; r < batch.records; ++r) model_.records.push_back({batch.key, batch.timestamp + r});
      sequence_ += batch.records;
      for (auto n = dice(6); n > 0; --n) world_.step();
    }
    if (dice(2) == 0) world_.settle();
  }

  /// Another partition's share of the journal: it keeps the ring's tail back, and must lose nothing either.
  void append_other() {
    for (auto n = 1 + dice(8); n > 0; --n) {
      BatchOf batch;
      batch.value_bytes = dice(900);
      other().append(testing::make_batch(batch), {}, [this](const ResultOf<AppendResult, AppendError>& result) {
        ASSERT_TRUE(result) << result.error().error.text;
        other_acknowledged_ = std::max(other_acknowledged_, result->last_offset.value + 1);
      });
    }
    if (dice(2) == 0) world_.settle();
  }

  void retry() {
    if (last_.empty()) return;
    t().append(last_, {}, [base = last_base_](const ResultOf<AppendResult, AppendError>& result) {
      ASSERT_TRUE(result) << result.error().error.text;
      EXPECT_TRUE(result->duplicate);
      EXPECT_EQ(result->base_offset, kafka::Offset(base));
    });
    world_.settle();
  }

  /// After a stop the log is a prefix of the model that holds at least what `kept` says; the model follows.
  void reconcile(std::int64_t kept) {
    const auto end = t().log_end_offset().value;
    ASSERT_GE(end, std::min<std::int64_t>(kept, static_cast<std::int64_t>(model_.records.size())));
    ASSERT_LE(end, static_cast<std::int64_t>(model_.records.size()));
    model_.records.resize(static_cast<std::size_t>(end));
    model_.acknowledged = std::min(model_.acknowledged, end);
    model_.start = std::max(model_.start, t().log_start_offset().value);
    // The producer goes on where the log ends (a new epoch would do too).
    if (last_base_ + last_records_ > end) last_.clear();
    sequence_ = static_cast<std::int32_t>(end) - sequence_lost_;
    check_all();
  }

  void crash(bool machine) {
    const auto kept = machine ? t().recovery_point().value : model_.acknowledged;
    const auto other_kept = machine ? other().recovery_point().value : other_acknowledged_;
    const auto low = t().log_start_offset();
    world_.crash(machine);
    EXPECT_GE(other().log_end_offset().value, other_kept);
    other_acknowledged_ = other().log_end_offset().value;
    EXPECT_LE(t().log_start_offset(), std::max(low, t().log_end_offset()));
    if (t().log_start_offset().value < model_.start) model_.start = t().log_start_offset().value;
    reconcile(kept);
  }

  void restart() {
    world_.settle();
    const auto end = t().log_end_offset();
    const auto start = t().log_start_offset();
    world_.restart();
    EXPECT_EQ(t().log_end_offset(), end);
    EXPECT_EQ(t().log_start_offset(), start);
    reconcile(end.value);
  }

  void flush() {
    bool done = false;
    t().flush([&done](const auto& result) { done = result.has_value(); });
    world_.settle();
    EXPECT_TRUE(done);
    world_.directory->write_checkpoints([](const auto& written) { EXPECT_TRUE(written); });
    world_.settle();
  }

  void delete_records() {
    world_.settle();
    if (dice(4) != 0 || model_.records.empty()) return;
    const auto before =
        model_.start +
        static_cast<std::int64_t>(dice(model_.records.size() - static_cast<std::size_t>(model_.start) + 1)) / 2;
    t().delete_records(kafka::Offset(before),
                       [before](const auto& start) { EXPECT_GE(*start, kafka::Offset(before)); });
    world_.settle();
    model_.start = std::max(model_.start, before);
  }

  void truncate() {
    world_.settle();
    if (dice(4) != 0) return;
    const auto end = t().log_end_offset().value;
    const auto to = std::max(t().log_start_offset().value, end - static_cast<std::int64_t>(dice(12)));
    t().truncate(kafka::Offset(to), [](const auto& done) { EXPECT_TRUE(done); });
    world_.settle();
    EXPECT_LE(t().log_end_offset(), kafka::Offset(std::max(to, std::int64_t{0})));
    model_.acknowledged = std::min(model_.acknowledged, t().log_end_offset().value);
    reconcile(model_.acknowledged);
  }

  void find_time() {
    world_.settle();
    if (model_.records.empty()) return;
    const auto& some = model_.records[dice(model_.records.size())];
    const auto target = some.timestamp + static_cast<std::int64_t>(dice(3)) - 1;
    std::int64_t expected = -1;
    for (auto i = t().log_start_offset().value; i < t().high_watermark().value && expected < 0; ++i)
      if (model_.records[static_cast<std::size_t>(i)].timestamp >= target) expected = i;
    const auto found = world_.find_time(t(), target);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->offset.value, expected) << "time " << target;
  }

  void check_all() { check_from(t().log_start_offset().value, true); }
  void check_read() {
    const auto low = t().log_start_offset().value;
    const auto high = t().high_watermark().value;
    check_from(low + static_cast<std::int64_t>(dice(static_cast<std::uint64_t>(high - low) + 1)), false);
  }

  void check_from(std::int64_t from, bool to_end) {
    auto at = from;
    while (true) {
      ReadRequest request;
      request.offset = kafka::Offset(at);
      request.max_bytes = 1 + static_cast<std::uint32_t>(dice(8000));
      const auto result = world_.read(t(), request);
      ASSERT_TRUE(result) << result.error().text;
      if (result->bytes == 0) {
        EXPECT_EQ(at, t().high_watermark().value);
        return;
      }
      for (auto span : result->spans) {
        while (!span.empty()) {
          const auto batch = kafka::RecordBatchView::parse(span);
          ASSERT_TRUE(batch);
          ASSERT_TRUE(batch->crc_valid());
          Buffer scratch;
          auto reader = kafka::RecordReader::open(*batch, scratch, 1U << 24);
          while (const auto record = reader->next()) {
            const auto offset = record->offset.value;
            if (offset < at) continue;
            ASSERT_EQ(offset, at);
            ASSERT_LT(at, static_cast<std::int64_t>(model_.records.size()));
            ASSERT_EQ(as_text(*record->key), model_.records[static_cast<std::size_t>(at)].key);
            ++at;
          }
          span = span.subspan(batch->size());
        }
      }
      if (!to_end && dice(3) == 0) return;
    }
  }

  LogWorld world_;
  LogConfig config_;
  Model model_;
  std::int64_t other_acknowledged_ = 0;
  std::uint64_t unique_ = 0;
  std::int64_t clock_ = 1'700'000'000'000 - 10'000'000;
  std::int32_t sequence_ = 0;
  std::int32_t sequence_lost_ = 0;
  Buffer last_;
  std::int64_t last_base_ = 0;
  int last_records_ = 0;
};

TEST(RandomLog, HoldsWhatAModelHoldsThroughEveryCrash) {
  log::set_level(log::Level::error);
  const bool one = std::getenv("CIUIC_SEED") != nullptr;
  const auto first = testing::seed_from_env(1);
  for (auto seed = first; seed < first + (one ? 1 : 300); ++seed) {
    SCOPED_TRACE(fmt::format("replay: CIUIC_SEED={} log_test --gtest_filter=RandomLog.*", seed));
    Walk walk(seed);
    walk.run(120);
    if (HasFailure()) break;
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace ciuic::broker
