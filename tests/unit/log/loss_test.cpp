// Files that somebody removed: the partition whose records they held stays offline alone, and nobody else does. What
// crashes, retention, compaction and deleted topics leave behind is no loss.
#include "broker/log/loss.h"

#include <gtest/gtest.h>

#include <array>
#include <ostream>

#include "broker/log/checkpoints.h"
#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using kafka::ErrorCode;
using kafka::Offset;
using testing::LogWorld;
using testing::make_batch;

enum class Gone { directory, all_logs, all_files_but_metadata, first, middle, last, only_log_of_middle };
enum class Stop { clean, kill };
struct Case {
  Gone gone;
  Stop stop;
  bool journal = false;
  bool compacted = false;
};
std::ostream& operator<<(std::ostream& out, const Case& one) {
  const std::array names{"directory", "all logs", "all files", "first", "middle", "last", "log of middle"};
  return out << names.at(static_cast<std::size_t>(one.gone)) << (one.stop == Stop::clean ? " clean" : " kill")
             << (one.journal ? " journal" : "") << (one.compacted ? " compacted" : "");
}

class Losses : public ::testing::Test {
 protected:
  LogConfig config() const {
    LogConfig made;
    made.segment_bytes = 3000;
    made.cleanup_compact = compacted;
    made.cleanup_delete = !compacted;
    return made;
  }
  void begin(bool journal, bool compacts) {
    compacted = compacts;
    if (journal) world.limits.journal_bytes = 1U << 20;
    world.start();
    world.create("t", 0, config())->become_leader(kafka::LeaderEpoch(0));
    fill(*world.find("t"), 40);
    fill(*world.create("other", 0, config()), 4);
    world.advance(std::chrono::seconds(1));  // the journal's bytes get to their files
    checkpoint();
  }
  void fill(Partition& partition, int batches) {
    for (int i = 0; i < batches; ++i) {
      const auto key = "key" + std::to_string(i);
      ASSERT_TRUE(world.append(partition, make_batch({.records = 2, .value_bytes = 300, .key = key})));
    }
  }
  void checkpoint() {
    bool done = false;
    world.directory->write_checkpoints([&done](const auto& written) { done = written.has_value(); });
    world.settle();
    ASSERT_TRUE(done);
  }
  /// Stops, changes something, starts.
  template <class Change>
  void restart(Stop stop, Change change) {
    if (stop == Stop::clean) {
      world.directory->close(7, [](const auto&) {});
      world.settle();
    }
    world.io.drop_all();
    world.executor.drop_all();
    world.directory.reset();
    change();
    world.config = config();
    world.start();
  }
  std::vector<std::string> files(std::string_view suffix) {
    std::vector<std::string> found;
    const auto entries = world.disk.list("/logs/t-0");
    if (!entries) return found;
    for (const auto& entry : *entries)
      if (entry.name.ends_with(suffix)) found.push_back("/logs/t-0/" + entry.name);
    return found;
  }
  void remove(Gone gone) {
    if (gone == Gone::directory) {
      ASSERT_TRUE(world.disk.remove_all("/logs/t-0"));
      return;
    }
    const auto logs = files(".log");
    ASSERT_GE(logs.size(), 4U);
    for (const auto& file : files("")) {
      const bool goes = (gone == Gone::all_logs && file.ends_with(log_suffix)) ||
                        (gone == Gone::all_files_but_metadata && !file.ends_with(partition_metadata_file)) ||
                        (gone == Gone::only_log_of_middle && file == logs[1]);
      if (goes && !world.disk.remove(file)) std::abort();
    }
    const auto which = gone == Gone::first ? 0U : gone == Gone::middle ? 1U : logs.size() - 1;
    if (gone == Gone::first || gone == Gone::middle || gone == Gone::last) {
      const auto base = logs[which].substr(0, logs[which].size() - log_suffix.size());
      for (const auto suffix : {log_suffix, index_suffix, time_index_suffix, txn_index_suffix, snapshot_suffix})
        ASSERT_TRUE(world.disk.remove(base + std::string(suffix)));
    }
  }
  bool serves(const std::string& topic) {
    const auto partition = world.find(topic);
    return partition && !partition->offline() && world.append(*partition, make_batch({})).has_value();
  }
  /// Offline, and every call says so.
  void expect_held() {
    const auto partition = world.find("t");
    ASSERT_TRUE(partition);
    EXPECT_TRUE(partition->offline());
    const auto appended = world.append(*partition, make_batch({}));
    ASSERT_FALSE(appended);
    EXPECT_EQ(appended.error().error.code, ErrorCode::kafka_storage_error);
    EXPECT_EQ(world.read(*partition, {}).error().code, ErrorCode::kafka_storage_error);
    EXPECT_EQ(world.find_time(*partition, -2).error().code, ErrorCode::kafka_storage_error);
    partition->become_leader(kafka::LeaderEpoch(9));
    partition->maintain();
    partition->set_config(config());
    std::optional<ErrorCode> code;
    partition->delete_records(Offset(-1), [&code](const auto& answer) { code = answer.error().code; });
    world.settle();
    EXPECT_EQ(code, ErrorCode::kafka_storage_error);
    EXPECT_TRUE(serves("other"));
  }
  std::string entry(std::string_view file) {
    const auto read = read_checkpoint(world.disk, "/logs/" + std::string(file));
    if (!read || !read->contains({"t", kafka::PartitionIndex(0)})) return "none";
    return std::to_string(read->at({"t", kafka::PartitionIndex(0)}).value);
  }
  void accept() {
    ASSERT_TRUE(world.disk.make_directories("/logs/t-0"));
    ASSERT_TRUE(write_file(world.disk, "/logs/t-0/" + std::string(accept_loss_file), {}));
  }
  static constexpr Offset end{80};
  bool compacted = false;
  LogWorld world{testing::seed_from_env(11)};
};

class LossOf : public Losses, public ::testing::WithParamInterface<Case> {};

TEST_P(LossOf, KeepsThatPartitionOfflineAloneUntilTheOperatorDecides) {
  const auto& how = GetParam();
  begin(how.journal, how.compacted);
  const auto id = world.find("t")->topic_id();
  restart(how.stop, [&] { remove(how.gone); });
  expect_held();
  const auto left = files("");
  const auto recovery = entry(recovery_point_file);
  const auto watermark = entry(high_watermark_file);
  checkpoint();
  EXPECT_EQ(entry(recovery_point_file), recovery);
  EXPECT_EQ(entry(high_watermark_file), watermark);
  EXPECT_EQ(files(""), left) << "nothing is written in its directory";

  // A stop and a start of either kind change nothing.
  for (const auto stop : {Stop::clean, Stop::kill}) {
    restart(stop, [] {});
    expect_held();
    EXPECT_EQ(files(""), left);
  }

  restart(Stop::clean, [&] { accept(); });
  ASSERT_TRUE(serves("t"));
  EXPECT_EQ(world.find("t")->topic_id(), id);
  const bool nothing = how.gone <= Gone::all_files_but_metadata;
  if (nothing) {
    EXPECT_EQ(world.find("t")->log_start_offset(), end) << "offsets are not used again";
  }
  if (how.gone != Gone::last) {
    EXPECT_EQ(world.find("t")->log_end_offset(), end + 1);
  }
  EXPECT_FALSE(*world.disk.exists("/logs/t-0/" + std::string(accept_loss_file)));
  for (const auto stop : {Stop::clean, Stop::kill, Stop::clean}) {
    restart(stop, [] {});
    EXPECT_TRUE(serves("t")) << "what was accepted is no loss again";
  }
}

TEST_P(LossOf, IsUndoneByPuttingTheFilesBack) {
  const auto& how = GetParam();
  begin(how.journal, how.compacted);
  std::map<std::string, Buffer> kept;
  restart(how.stop, [&] {
    for (const auto& file : files("")) kept[file] = world.disk.content(file);
    remove(how.gone);
  });
  expect_held();
  restart(Stop::clean, [&] {
    ASSERT_TRUE(world.disk.make_directories("/logs/t-0"));
    for (const auto& [file, content] : kept) ASSERT_TRUE(write_file(world.disk, file, content));
  });
  EXPECT_EQ(world.offsets(*world.find("t"), Offset(0)).size(), static_cast<std::size_t>(end.value));
  EXPECT_TRUE(serves("t"));
}

TEST_P(LossOf, EndsWithTheTopic) {
  const auto& how = GetParam();
  begin(how.journal, how.compacted);
  restart(how.stop, [&] { remove(how.gone); });
  bool done = false;
  world.directory->remove({"t", kafka::PartitionIndex(0)}, std::chrono::seconds(60),
                          [&done](const auto& ok) { done = ok.has_value(); });
  world.settle();
  EXPECT_TRUE(done);
  EXPECT_FALSE(world.directory->offline());
  checkpoint();  // as Partitions does
  fill(*world.create("t", 0, config()), 1);
  restart(Stop::kill, [] {});
  EXPECT_TRUE(serves("t"));
  EXPECT_EQ(world.find("t")->log_start_offset(), Offset(0));
}

std::vector<Case> losses() {
  std::vector<Case> all;
  for (const auto stop : {Stop::clean, Stop::kill})
    for (const bool journal : {false, true})
      for (const auto gone : {Gone::directory, Gone::all_logs, Gone::all_files_but_metadata, Gone::first, Gone::middle,
                              Gone::last, Gone::only_log_of_middle}) {
        // Behind a kill nothing vouches for the last segment while no sync covered it.
        if (gone == Gone::last && stop == Stop::kill) continue;
        all.push_back({gone, stop, journal, false});
        // In a compacted log a hole is rightful.
        if (gone != Gone::middle) all.push_back({gone, stop, journal, true});
      }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Kinds, LossOf, ::testing::ValuesIn(losses()));

TEST_F(Losses, OfTheLastSegmentShowsBehindAKillWhereItWasFlushed) {
  begin(false, false);
  fill(*world.find("t"), 1);
  world.find("t")->flush([](const auto&) {});
  world.settle();
  checkpoint();
  restart(Stop::kill, [&] { remove(Gone::last); });
  expect_held();
}

TEST_F(Losses, BeforeAnyCheckpointShowsByTheJournalAndIsRemembered) {
  world.limits.journal_bytes = 1U << 20;
  world.start();
  fill(*world.create("t"), 3);
  fill(*world.create("other"), 1);
  restart(Stop::kill, [&] { remove(Gone::directory); });
  expect_held();
  EXPECT_EQ(entry(high_watermark_file), "6");
  EXPECT_TRUE(*world.disk.exists("/logs/left-out-ciuic-journal-0"));
  restart(Stop::kill, [] {});
  expect_held();
  restart(Stop::clean, [&] { accept(); });
  EXPECT_TRUE(serves("t"));
  EXPECT_EQ(world.find("t")->log_start_offset(), Offset(6));
}

TEST_F(Losses, WhatTheJournalHeldComesBackWithTheFiles) {
  world.limits.journal_bytes = 1U << 20;
  world.start();
  fill(*world.create("t"), 3);
  fill(*world.create("other"), 1);
  std::map<std::string, Buffer> kept;
  restart(Stop::kill, [&] {
    for (const auto& file : files("")) kept[file] = world.disk.content(file);
    remove(Gone::directory);
  });
  expect_held();
  restart(Stop::clean, [&] {
    ASSERT_TRUE(world.disk.make_directories("/logs/t-0"));
    for (const auto& [file, content] : kept) ASSERT_TRUE(write_file(world.disk, file, content));
    ASSERT_TRUE(world.disk.rename("/logs/left-out-ciuic-journal-0", "/logs/ciuic-journal-again"));
  });
  EXPECT_EQ(world.offsets(*world.find("t"), Offset(0)).size(), 6U);
  EXPECT_TRUE(serves("t"));
}

TEST_F(Losses, EachJournalPutAsideHasANameOfItsOwn) {
  world.limits.journal_bytes = 1U << 20;
  world.start();
  for (const auto* name : {"t", "u"}) {
    fill(*world.create(name), 3);
    restart(Stop::kill, [&] { ASSERT_TRUE(world.disk.remove_all(std::string("/logs/") + name + "-0")); });
  }
  EXPECT_TRUE(*world.disk.exists("/logs/left-out-ciuic-journal-0"));
  EXPECT_TRUE(*world.disk.exists("/logs/left-out-ciuic-journal-0.2"));
}

// --- No loss. ---

TEST_F(Losses, ATopicMadeAgainIsNotTakenForItsPredecessor) {
  begin(false, false);
  world.directory->remove({"t", kafka::PartitionIndex(0)}, std::chrono::seconds(60), [](const auto&) {});
  world.settle();
  // The process dies before a checkpoint: the next start forgets, and the topic is made again behind it.
  world.known.erase({"t", kafka::PartitionIndex(0)});
  restart(Stop::kill, [] {});
  EXPECT_EQ(entry(recovery_point_file), "none");
  fill(*world.create("t", 0, config()), 1);
  restart(Stop::kill, [] {});
  EXPECT_TRUE(serves("t"));
}

TEST_F(Losses, WhatACreationCutShortLeavesIsNone) {
  world.start();
  fill(*world.create("other"), 1);
  const auto id = kafka::Uuid::random();
  world.known[{"t", kafka::PartitionIndex(0)}] = id;
  restart(Stop::kill, [] {});
  EXPECT_EQ(world.find("t"), nullptr) << "nothing proves it, the caller creates it";
  restart(Stop::kill, [&] {
    ASSERT_TRUE(world.disk.make_directories("/logs/t-0"));
    ASSERT_TRUE(write_file(world.disk, "/logs/t-0/partition.metadata",
                           as_bytes(std::string_view(partition_metadata_text(id)))));
    ASSERT_TRUE(write_file(world.disk, "/logs/t-0/00000000000000000000.index", {}));
  });
  EXPECT_TRUE(serves("t"));
}

TEST_F(Losses, WhatRetentionAndDeletedRecordsLeaveIsNone) {
  begin(false, false);
  for (const auto stop : {Stop::clean, Stop::kill}) {
    auto keep_little = config();
    keep_little.retention_bytes = 9000;
    world.find("t")->set_config(keep_little);
    world.find("t")->maintain();
    world.settle();
    ASSERT_GT(world.find("t")->log_start_offset(), Offset(0));
    restart(stop, [] {});
    ASSERT_TRUE(serves("t"));
    world.find("t")->delete_records(Offset(-1), [](const auto&) {});
    world.settle();
    restart(stop, [] {});
    ASSERT_TRUE(serves("t"));
    fill(*world.find("t"), 40);
    checkpoint();
  }
}

TEST_F(Losses, AHoleThatCompactionMadeIsNoneAfterThePolicyChanged) {
  begin(false, true);
  for (int i = 0; i < 3; ++i) fill(*world.find("t"), 40);
  auto always = config();
  always.min_cleanable_dirty_ratio = 0;
  world.find("t")->set_config(always);
  std::uint64_t freed = 0;
  world.find("t")->clean([&freed](const auto& done) { freed = done ? *done : 0; });
  world.settle();
  ASSERT_GT(freed, 0U);
  compacted = false;
  for (const auto stop : {Stop::clean, Stop::kill, Stop::clean}) {
    restart(stop, [] {});
    EXPECT_TRUE(serves("t"));
  }
}

TEST_F(Losses, AnEmptyLastSegmentThatNoBrokerMadeIsRemoved) {
  begin(false, false);
  const std::string stray = "/logs/t-0/00000000000000009999.log";
  restart(Stop::clean, [&] { ASSERT_TRUE(write_file(world.disk, stray, {})); });
  EXPECT_FALSE(*world.disk.exists(stray));
  EXPECT_EQ(world.find("t")->log_end_offset(), end);
  EXPECT_TRUE(serves("t"));
}

TEST_F(Losses, AnAcceptanceThatNothingNeedsIsTakenAway) {
  begin(false, false);
  restart(Stop::clean, [&] { accept(); });
  EXPECT_TRUE(serves("t"));
  EXPECT_FALSE(*world.disk.exists("/logs/t-0/" + std::string(accept_loss_file)));
  restart(Stop::clean, [&] { remove(Gone::middle); });
  expect_held();
}

TEST_F(Losses, ANewTopicDoesNotTakeOverAStrayDirectory) {
  begin(false, false);
  const auto log = world.disk.content(files(".log")[0]);
  const auto stranger = partition_metadata_text(kafka::Uuid::random());
  for (const bool named : {true, false}) {
    const std::string topic = named ? "new" : "newer";
    const auto home = "/logs/" + topic + "-0";
    ASSERT_TRUE(world.disk.make_directories(home));
    if (named) {
      ASSERT_TRUE(write_file(world.disk, home + "/partition.metadata", as_bytes(std::string_view(stranger))));
    }
    ASSERT_TRUE(write_file(world.disk, home + "/00000000000000000000.log", log));
    EXPECT_EQ(world.create(topic, 0, config())->log_end_offset(), Offset(0));
  }
  int aside = 0;
  for (const auto& entry : *world.disk.list("/logs"))
    if (entry.name.starts_with("new") && entry.name.ends_with("-stray")) {
      ++aside;
      EXPECT_EQ(world.disk.content("/logs/" + entry.name + "/00000000000000000000.log"), log);
    }
  EXPECT_EQ(aside, 2);
  restart(Stop::kill, [] {});
  EXPECT_TRUE(serves("new"));
}

}  // namespace
}  // namespace ciuic::broker
