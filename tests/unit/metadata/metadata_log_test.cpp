// The metadata log alone: all or nothing of a change, a torn tail, what it refuses. Records are opaque here.
#include "broker/metadata/metadata_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "broker/log/log_directory.h"
#include "broker/metadata/metadata_image.h"
#include "broker/metadata/metadata_records.h"
#include "tests/unit/log/support/simulated_files.h"
#include "transport/kafka/messages/metadata_records.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {
namespace {

using testing::SimulatedFiles;
constexpr auto path = "/logs/__cluster_metadata-0/00000000000000000000.log";

Buffer bytes_of(std::string_view text) {
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

struct Reader {
  std::vector<std::string> values;
  std::vector<std::int64_t> offsets;
  ResultOf<MetadataLog, std::string> open(Files& files) {
    values.clear();
    offsets.clear();
    return MetadataLog::open(files, "/logs", [this](Bytes record, std::int64_t offset) {
      values.emplace_back(as_text(record));
      offsets.push_back(offset);
      return as_text(record) != "bad";
    });
  }
};

TEST(MetadataLog, GivesBackWhatWasAppended) {
  SimulatedFiles files;
  Reader reader;
  {
    auto log = reader.open(files);
    ASSERT_TRUE(log) << log.error();
    EXPECT_EQ(*log->append({bytes_of("a"), bytes_of("b")}, 1), 1);
    EXPECT_EQ(*log->append({bytes_of("c")}, 2), 2);
  }
  const auto again = reader.open(files);
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(reader.values, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(reader.offsets, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(again->next_offset(), 3);
}

TEST(MetadataLog, AChangeSurvivesWholeOrNotAtAllWhereverItIsCut) {
  SimulatedFiles files;
  Reader reader;
  std::size_t first = 0;
  {
    auto log = reader.open(files);
    ASSERT_TRUE(log && log->append({bytes_of("a")}, 1));
    first = files.content(path).size();
    ASSERT_TRUE(log->append({bytes_of("b"), bytes_of("c")}, 1));
  }
  const auto whole = files.content(path);
  for (auto kept = first; kept < whole.size(); ++kept) {
    SimulatedFiles torn;
    ASSERT_TRUE(torn.make_directories("/logs/__cluster_metadata-0"));
    ASSERT_TRUE(write_file(torn, path, Bytes(whole).first(kept)));
    auto log = reader.open(torn);
    ASSERT_TRUE(log) << log.error();
    EXPECT_EQ(reader.values, std::vector<std::string>{"a"}) << "cut at " << kept;
    EXPECT_EQ(torn.content(path).size(), first);
    ASSERT_TRUE(log->append({bytes_of("d")}, 1));
    ASSERT_TRUE(reader.open(torn));
    EXPECT_EQ(reader.values, (std::vector<std::string>{"a", "d"}));
  }
}

TEST(MetadataLog, ADamagedBatchWithOthersBehindItIsNoTornTail) {
  SimulatedFiles files;
  Reader reader;
  std::size_t first = 0, second = 0;
  {
    auto log = reader.open(files);
    ASSERT_TRUE(log && log->append({bytes_of("a")}, 1));
    first = files.content(path).size();
    ASSERT_TRUE(log->append({bytes_of("b"), bytes_of("c")}, 1));
    second = files.content(path).size();
    ASSERT_TRUE(log->append({bytes_of("d")}, 1));
  }
  const auto whole = files.content(path);
  for (auto at = first; at < second; ++at) {
    if (at - first >= kafka::batch_at::leader_epoch && at - first < kafka::batch_at::magic)
      continue;  // under no checksum
    auto spoilt = whole;
    spoilt[at] ^= std::byte{0x41};
    SimulatedFiles damaged;
    ASSERT_TRUE(damaged.make_directories("/logs/__cluster_metadata-0"));
    ASSERT_TRUE(write_file(damaged, path, spoilt));
    const auto log = reader.open(damaged);
    ASSERT_FALSE(log) << "byte " << at;
    EXPECT_NE(log.error().find("offset 1"), std::string::npos) << at << ": " << log.error();
    EXPECT_EQ(damaged.content(path), spoilt);
  }
}

TEST(MetadataLog, AFailedWriteLeavesNothingBehind) {
  SimulatedFiles files;
  Reader reader;
  auto log = reader.open(files);
  ASSERT_TRUE(log && log->append({bytes_of("a")}, 1));
  files.fail_write(0);
  EXPECT_FALSE(log->append({bytes_of("lost")}, 1));
  files.heal();
  ASSERT_TRUE(log->append({bytes_of("b")}, 1));
  ASSERT_TRUE(reader.open(files));
  EXPECT_EQ(reader.values, (std::vector<std::string>{"a", "b"}));
}

TEST(MetadataLog, EpochsOfAnApacheQuorumAreNotUndercut) {
  SimulatedFiles files;
  kafka::RecordBatchBuilder builder;
  const auto value = bytes_of("theirs");
  builder.add({1, std::nullopt, Bytes(value), {}});
  kafka::BatchHeader header;
  header.leader_epoch = kafka::LeaderEpoch(9);
  Buffer batch;
  ASSERT_TRUE(builder.finish(header, batch));
  ASSERT_TRUE(files.make_directories("/logs/__cluster_metadata-0"));
  ASSERT_TRUE(write_file(files, path, batch));
  Reader reader;
  auto log = reader.open(files);
  ASSERT_TRUE(log && log->append({bytes_of("ours")}, 1));
  const auto content = files.content(path);
  const auto second = kafka::RecordBatchView::parse(Bytes(content).subspan(batch.size()));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->leader_epoch(), kafka::LeaderEpoch(9));
}

TEST(MetadataLog, ARolledLogIsRefusedNotTakenForAnEmptyOne) {
  SimulatedFiles files;
  ASSERT_TRUE(files.make_directories("/logs/__cluster_metadata-0"));
  ASSERT_TRUE(write_file(files, "/logs/__cluster_metadata-0/00000000000000004711.log", {}));
  Reader reader;
  const auto log = reader.open(files);
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().find("00000000000000004711.log"), std::string::npos) << log.error();
}

TEST(MetadataLog, AWholeBatchThatIsWrongStopsTheStartAndIsNotCut) {
  const auto value = bytes_of("value");
  for (const bool wrong_count : {false, true}) {
    kafka::RecordBatchBuilder builder;
    builder.add({1, std::nullopt, Bytes(value), {}});
    Buffer batch;
    ASSERT_TRUE(builder.finish({}, batch));
    if (wrong_count) {
      kafka::store_be(batch.data() + kafka::batch_at::last_offset_delta, std::int32_t{-1});
    } else {
      batch[kafka::batch_header_bytes] = std::byte{0x7F};  // the record's length
    }
    kafka::set_crc(batch);
    SimulatedFiles files;
    ASSERT_TRUE(files.make_directories("/logs/__cluster_metadata-0"));
    ASSERT_TRUE(write_file(files, path, batch));
    Reader reader;
    const auto log = reader.open(files);
    ASSERT_FALSE(log);
    EXPECT_NE(log.error().find("offset 0 is damaged"), std::string::npos) << log.error();
    EXPECT_EQ(files.content(path), batch);
  }
}

TEST(MetadataImage, AnEpochThatHasNoNextOneIsDamage) {
  ImageBuilder builder;
  kafka::TopicRecord topic;
  topic.name = "t";
  topic.topic_id = kafka::Uuid::random();
  kafka::PartitionRecord partition;
  partition.topic_id = topic.topic_id;
  partition.partition_id = 0;
  partition.leader_epoch = std::numeric_limits<std::int32_t>::max();
  kafka::PartitionChangeRecord change;
  change.topic_id = topic.topic_id;
  change.partition_id = 0;
  change.leader = 1;
  EXPECT_TRUE(builder.replay(encode_metadata(topic), 0));
  EXPECT_TRUE(builder.replay(encode_metadata(partition), 1));
  EXPECT_FALSE(builder.replay(encode_metadata(change), 2));
}

TEST(MetadataImage, WhatWasBuiltStaysAsItIs) {
  ImageBuilder builder;
  kafka::TopicRecord topic;
  topic.name = "t";
  topic.topic_id = kafka::Uuid::random();
  kafka::PartitionRecord partition;
  partition.topic_id = topic.topic_id;
  EXPECT_TRUE(builder.replay(encode_metadata(topic), 0));
  std::vector<MetadataPointer> built;
  for (std::int32_t i = 0; i < 4; ++i) {
    partition.partition_id = i;
    EXPECT_TRUE(builder.replay(encode_metadata(partition), 1 + i));
    built.push_back(builder.build());
  }
  for (std::size_t i = 0; i < built.size(); ++i) {
    EXPECT_EQ(built[i]->topic("t")->partitions.size(), i + 1);
    EXPECT_EQ(built[i]->topic("t"), built[i]->topic(topic.topic_id));
  }
}

TEST(MetadataLog, ARecordThatDoesNotReplayStopsTheStart) {
  SimulatedFiles files;
  Reader reader;
  {
    auto log = reader.open(files);
    ASSERT_TRUE(log && log->append({bytes_of("good"), bytes_of("bad")}, 1));
  }
  const auto log = reader.open(files);
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().find("offset 1"), std::string::npos) << log.error();
}

}  // namespace
}  // namespace ciuic::broker
