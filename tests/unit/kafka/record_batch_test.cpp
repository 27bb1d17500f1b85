#include "transport/kafka/record_batch.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "transport/base/crc32c.h"

namespace ciuic::kafka {
namespace {

constexpr std::size_t no_limit = 64 << 20;
constexpr Codec every_codec[] = {Codec::none, Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd};

Buffer three_records(Codec codec = Codec::none) {
  const HeaderToWrite headers[] = {{"a", as_bytes("1")}, {"b", std::nullopt}};
  RecordBatchBuilder builder;
  builder.add({1000, as_bytes("k0"), as_bytes("v0"), headers});
  builder.add({1002, std::nullopt, as_bytes("v1"), {}});
  builder.add({1001, as_bytes("k2"), std::nullopt, {}});
  BatchHeader header;
  header.base_offset = Offset(50);
  header.leader_epoch = LeaderEpoch(4);
  header.codec = codec;
  header.producer_id = ProducerId(9);
  header.producer_epoch = ProducerEpoch(2);
  header.base_sequence = 17;
  Buffer out;
  EXPECT_TRUE(builder.finish(header, out));
  return out;
}

RecordBatchView view_of(Bytes bytes) {
  const auto batch = RecordBatchView::parse(bytes);
  EXPECT_TRUE(batch);
  return *batch;
}

/// The error of walking all records; null where there is none.
const char* walk(const RecordBatchView& batch, int* count = nullptr) {
  Buffer scratch;
  auto reader = RecordReader::open(batch, scratch, no_limit);
  if (!reader) return "cannot be opened";
  int records = 0;
  while (reader->next()) ++records;
  if (count != nullptr) *count = records;
  return reader->error();
}

TEST(RecordBatch, HeaderFieldsComeBack) {
  const auto bytes = three_records();
  const auto batch = view_of(bytes);
  EXPECT_EQ(batch.size(), bytes.size());
  EXPECT_EQ(batch.base_offset(), Offset(50));
  EXPECT_EQ(batch.last_offset(), Offset(52));
  EXPECT_EQ(batch.next_offset(), Offset(53));
  EXPECT_EQ(batch.leader_epoch(), LeaderEpoch(4));
  EXPECT_EQ(batch.first_timestamp(), 1000);
  EXPECT_EQ(batch.max_timestamp(), 1002);
  EXPECT_EQ(batch.producer_id(), ProducerId(9));
  EXPECT_EQ(batch.producer_epoch(), ProducerEpoch(2));
  EXPECT_EQ(batch.base_sequence(), 17);
  EXPECT_EQ(batch.record_count(), 3);
  EXPECT_TRUE(batch.crc_valid());
  EXPECT_FALSE(batch.transactional() || batch.control() || batch.log_append_time() || batch.delete_horizon_set());
}

TEST(RecordBatch, RecordsComeBackFromEveryCodec) {
  for (const auto codec : every_codec) {
    const auto bytes = three_records(codec);
    const auto batch = view_of(bytes);
    EXPECT_EQ(batch.codec(), codec);
    Buffer scratch;
    auto reader = RecordReader::open(batch, scratch, no_limit);
    ASSERT_TRUE(reader) << name(codec);
    const auto first = reader->next();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->offset, Offset(50));
    EXPECT_EQ(first->timestamp, 1000);
    EXPECT_EQ(as_text(*first->key), "k0");
    EXPECT_EQ(as_text(*first->value), "v0");
    EXPECT_EQ(first->header_count, 2);
    auto headers = first->headers;
    const auto a = next_header(headers);
    ASSERT_TRUE(a);
    EXPECT_EQ(a->key, "a");
    EXPECT_EQ(as_text(*a->value), "1");
    const auto b = next_header(headers);
    ASSERT_TRUE(b);
    EXPECT_EQ(b->value, std::nullopt);
    EXPECT_FALSE(next_header(headers));
    const auto second = reader->next();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->key, std::nullopt);
    EXPECT_EQ(second->timestamp, 1002);
    const auto third = reader->next();
    ASSERT_TRUE(third);
    EXPECT_EQ(third->value, std::nullopt);
    EXPECT_EQ(third->offset, Offset(52));
    EXPECT_FALSE(reader->next());
    EXPECT_EQ(reader->error(), nullptr);
  }
}

TEST(RecordBatch, AnUncompressedBatchIsReadInPlace) {
  const auto bytes = three_records();
  Buffer scratch;
  auto reader = RecordReader::open(view_of(bytes), scratch, no_limit);
  const auto record = reader->next();
  EXPECT_GE(record->value->data(), bytes.data());
  EXPECT_LT(record->value->data(), bytes.data() + bytes.size());
  EXPECT_EQ(scratch.capacity(), 0U);
}

TEST(RecordBatch, EveryFlippedBitBehindTheCrcIsSeen) {
  auto bytes = three_records();
  for (std::size_t at = batch_at::crc; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{4};
    EXPECT_FALSE(view_of(bytes).crc_valid()) << at;
    bytes[at] ^= std::byte{4};
  }
}

TEST(RecordBatch, OffsetAndEpochChangeWithoutTheCrc) {
  auto bytes = three_records();
  const auto crc = view_of(bytes).crc();
  set_base_offset(bytes, Offset(1'000'000'007));
  set_leader_epoch(bytes, LeaderEpoch(12));
  EXPECT_EQ(view_of(bytes).base_offset(), Offset(1'000'000'007));
  EXPECT_EQ(view_of(bytes).leader_epoch(), LeaderEpoch(12));
  EXPECT_EQ(view_of(bytes).crc(), crc);
  EXPECT_TRUE(view_of(bytes).crc_valid());
}

TEST(RecordBatch, LogAppendTimeReplacesEveryRecordsTimestamp) {
  auto bytes = three_records();
  set_log_append_time(bytes, 777);
  const auto batch = view_of(bytes);
  EXPECT_TRUE(batch.log_append_time() && batch.crc_valid());
  Buffer scratch;
  auto reader = RecordReader::open(batch, scratch, no_limit);
  while (const auto record = reader->next()) EXPECT_EQ(record->timestamp, 777);
  set_create_time(bytes, 1002);
  EXPECT_FALSE(view_of(bytes).log_append_time());
  EXPECT_TRUE(view_of(bytes).crc_valid());
  EXPECT_EQ(view_of(bytes).max_timestamp(), 1002);
}

TEST(RecordBatch, TruncatedAnywhereIsRefused) {
  const auto bytes = three_records();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto batch = RecordBatchView::parse(Bytes(bytes).first(size));
    ASSERT_TRUE(batch.has_error()) << size;
    EXPECT_EQ(batch.error().code, ErrorCode::corrupt_message) << size;
  }
}

TEST(RecordBatch, LengthsThatCannotBeAreRefused) {
  auto bytes = three_records();
  for (const std::int32_t length :
       {-1, 0, 13, 48, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    store_be(bytes.data() + batch_at::length, length);
    EXPECT_FALSE(RecordBatchView::parse(bytes)) << length;
  }
}

TEST(RecordBatch, OldFormatsAreRecognisedAndOtherMagicIsCorrupt) {
  auto bytes = three_records();
  for (const int magic : {0, 1}) {
    bytes[batch_at::magic] = static_cast<std::byte>(magic);
    EXPECT_EQ(magic_of(bytes), magic);
    EXPECT_EQ(RecordBatchView::parse(bytes).error().code, ErrorCode::unsupported_for_message_format);
    EXPECT_EQ(batch_size(bytes), bytes.size()) << "so that a reader can step over it";
  }
  for (const int magic : {3, 127, -1}) {
    bytes[batch_at::magic] = static_cast<std::byte>(magic);
    EXPECT_EQ(RecordBatchView::parse(bytes).error().code, ErrorCode::corrupt_message) << magic;
  }
  EXPECT_FALSE(magic_of(Bytes(bytes).first(16)));
}

TEST(RecordBatch, ConcatenatedBatchesAreTakenOneByOne) {
  auto bytes = three_records();
  const auto one = bytes.size();
  const auto second = three_records(Codec::zstd);
  bytes.insert(bytes.end(), second.begin(), second.end());
  EXPECT_EQ(view_of(bytes).size(), one);
  EXPECT_EQ(view_of(Bytes(bytes).subspan(one)).size(), second.size());
}

TEST(RecordBatch, ACountThatDoesNotMatchTheBytesIsAnError) {
  for (const std::int32_t count : {2, 4, std::numeric_limits<std::int32_t>::max()}) {
    auto bytes = three_records();
    store_be(bytes.data() + batch_at::record_count, count);
    set_crc(bytes);
    EXPECT_NE(walk(view_of(bytes)), nullptr) << count;
  }
}

TEST(RecordBatch, LyingLengthsInsideARecordAreErrors) {
  const auto whole = three_records();
  // Every byte of the records in turn becomes each of a few nasty ones: never a crash, and never a read outside.
  for (std::size_t at = batch_at::records; at < whole.size(); ++at) {
    for (const unsigned nasty : {0x00U, 0x01U, 0x7FU, 0x80U, 0xFFU}) {
      auto bytes = whole;
      bytes[at] = static_cast<std::byte>(nasty);
      int count = 0;
      (void)walk(view_of(bytes), &count);
      EXPECT_LE(count, 3);
    }
  }
}

TEST(RecordBatch, ExtremeOffsetsAndTimesWrapAsInJava) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  auto bytes = three_records();
  set_base_offset(bytes, Offset(most));
  EXPECT_EQ(view_of(bytes).next_offset().value, std::numeric_limits<std::int64_t>::min() + 2);
  RecordBatchBuilder builder;
  builder.add({std::numeric_limits<std::int64_t>::min(), std::nullopt, std::nullopt, {}});
  builder.add({most, std::nullopt, std::nullopt, {}});
  Buffer out;
  ASSERT_TRUE(builder.finish({}, out));
  Buffer scratch;
  auto reader = RecordReader::open(view_of(out), scratch, no_limit);
  EXPECT_EQ(reader->next()->timestamp, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reader->next()->timestamp, most);
}

TEST(RecordBatch, AnUnknownCodecIsRefusedWhenOpened) {
  auto bytes = three_records();
  store_be(bytes.data() + batch_at::attributes, std::int16_t{5});
  Buffer scratch;
  EXPECT_FALSE(view_of(bytes).codec_known());
  EXPECT_EQ(RecordReader::open(view_of(bytes), scratch, no_limit).error().code,
            ErrorCode::unsupported_compression_type);
}

TEST(RecordBatch, UnpackingIsBoundedByTheCallersLimit) {
  RecordBatchBuilder builder;
  const Buffer zeros(5 << 20);
  builder.add({0, std::nullopt, Bytes(zeros), {}});
  BatchHeader header;
  header.codec = Codec::zstd;
  Buffer out;
  ASSERT_TRUE(builder.finish(header, out));
  EXPECT_LT(out.size(), 10'000U);
  Buffer scratch;
  EXPECT_EQ(RecordReader::open(view_of(out), scratch, 1 << 20).error().code, ErrorCode::message_too_large);
}

TEST(Builder, SizeIsKnownBeforeFinishing) {
  RecordBatchBuilder builder;
  EXPECT_TRUE(builder.empty());
  const std::string value(300, 'x');
  for (int i = 0; i < 200; ++i) {
    const RecordToWrite record{1000 + i * 1000, as_bytes("key"), as_bytes(value), {}};
    const auto expected = builder.size() + builder.size_of(record);
    builder.add(record);
    ASSERT_EQ(builder.size(), expected);
  }
  Buffer out;
  ASSERT_TRUE(builder.finish({}, out));
  EXPECT_EQ(out.size(), builder.size());
  EXPECT_EQ(view_of(out).record_count(), 200);
}

TEST(Builder, GapsOfACompactedBatchAreKept) {
  RecordBatchBuilder builder;
  builder.add({1, as_bytes("a"), std::nullopt, {}}, 3);
  builder.add({1, as_bytes("b"), std::nullopt, {}}, 8);
  BatchHeader header;
  header.base_offset = Offset(100);
  Buffer out;
  ASSERT_TRUE(builder.finish(header, out, 11));
  const auto batch = view_of(out);
  EXPECT_EQ(batch.last_offset(), Offset(111));
  Buffer scratch;
  auto reader = RecordReader::open(batch, scratch, no_limit);
  EXPECT_EQ(reader->next()->offset, Offset(103));
  EXPECT_EQ(reader->next()->offset, Offset(108));
}

TEST(Builder, ClearForgetsEverything) {
  RecordBatchBuilder builder;
  builder.add({5000, as_bytes("old"), std::nullopt, {}});
  builder.clear();
  builder.add({10, as_bytes("k"), as_bytes("v"), {}});
  Buffer out;
  ASSERT_TRUE(builder.finish({}, out));
  EXPECT_EQ(view_of(out).first_timestamp(), 10);
  EXPECT_EQ(view_of(out).max_timestamp(), 10);
  EXPECT_EQ(view_of(out).last_offset_delta(), 0);
}

TEST(Builder, AppendsBehindWhatIsThere) {
  Buffer out = to_buffer(as_bytes("before"));
  RecordBatchBuilder builder;
  builder.add({1, std::nullopt, as_bytes("v"), {}});
  ASSERT_TRUE(builder.finish({}, out));
  EXPECT_TRUE(view_of(Bytes(out).subspan(6)).crc_valid());
}

TEST(ControlRecords, ATransactionMarkerSaysWhichEnd) {
  for (const auto type : {ControlType::abort, ControlType::commit}) {
    BatchHeader header;
    header.producer_id = ProducerId(3);
    header.producer_epoch = ProducerEpoch(1);
    Buffer out;
    append_end_transaction_marker(out, header, type, 7, 123);
    const auto batch = view_of(out);
    EXPECT_TRUE(batch.control() && batch.transactional() && batch.crc_valid());
    Buffer scratch;
    auto reader = RecordReader::open(batch, scratch, no_limit);
    const auto record = reader->next();
    ASSERT_TRUE(record);
    EXPECT_EQ(control_type(*record), type);
    EXPECT_EQ(load_be<std::int32_t>(record->value->data() + 2), 7);
  }
}

TEST(ControlRecords, AKeyTooShortHasNoType) {
  RecordView record;
  EXPECT_FALSE(control_type(record));
  record.key = as_bytes("abc");
  EXPECT_FALSE(control_type(record));
}

}  // namespace
}  // namespace ciuic::kafka
