#include "transport/kafka/codec.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/kafka/support/message_table.h"
#include "transport/kafka/messages/api_versions.h"
#include "transport/kafka/messages/fetch.h"
#include "transport/kafka/messages/metadata.h"
#include "transport/kafka/messages/produce.h"
#include "transport/kafka/messages/sasl_handshake.h"

namespace ciuic::kafka {
namespace {

Buffer hex(std::string_view text) {
  Buffer bytes;
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] == ' ') continue;
    bytes.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
    ++i;
  }
  return bytes;
}

TEST(Codec, DefaultsOfEveryMessageSurviveEveryVersion) {
  for (const auto& message : testing::every_message()) {
    for (auto v = message.versions.min; v <= message.versions.max; ++v) {
      const auto bytes = message.defaults(v);
      const auto again = message.again(bytes, v);
      EXPECT_EQ(again.error, nullptr) << message.name << " v" << v << ": " << again.error;
      EXPECT_TRUE(again.stable && again.bytes == bytes) << message.name << " v" << v;
    }
  }
}

TEST(Codec, AVersionOutsideTheRangeIsAnErrorValue) {
  for (const auto& message : testing::every_message()) {
    EXPECT_NE(message.again({}, static_cast<std::int16_t>(message.versions.min - 1)).error, nullptr) << message.name;
    EXPECT_NE(message.again({}, static_cast<std::int16_t>(message.versions.max + 1)).error, nullptr) << message.name;
  }
}

TEST(Codec, BytesLeftOverAreAnError) {
  for (const auto& message : testing::every_message()) {
    auto bytes = message.defaults(message.versions.max);
    bytes.push_back(std::byte{0});
    EXPECT_NE(message.again(bytes, message.versions.max).error, nullptr) << message.name;
  }
}

TEST(Codec, AnUnknownTaggedFieldIsSkipped) {
  // Two tags, 5 and 300, then nothing else: ApiVersionsRequest v3 after its two compact strings.
  const auto bytes = hex("02 61 02 62 02 05 01 ff ac02 02 0102");
  const auto request = decode<ApiVersionsRequest>(bytes, 3);
  ASSERT_TRUE(request) << request.error().what;
  EXPECT_EQ(request->client_software_name, "a");
  EXPECT_EQ(request->client_software_version, "b");
}

TEST(Codec, TagsOutOfOrderOrTwiceAreRefused) {
  EXPECT_FALSE(decode<ApiVersionsRequest>(hex("01 01 02 05 00 04 00"), 3));
  EXPECT_FALSE(decode<ApiVersionsRequest>(hex("01 01 02 05 00 05 00"), 3));
}

TEST(Codec, ATagThatClaimsMoreThanIsThereIsRefused) {
  EXPECT_FALSE(decode<ApiVersionsRequest>(hex("01 01 01 05 7f 00"), 3));
  EXPECT_FALSE(decode<ApiVersionsRequest>(hex("01 01 ffffffff0f"), 3));
}

TEST(Codec, ATagOfALaterVersionIsUnknownToAnEarlierOne) {
  FetchRequest request;
  request.topics.resize(1);
  request.topics[0].partitions.resize(1);
  request.topics[0].partitions[0].high_watermark = 7;
  const auto newest = encode(request, 18).flatten();
  const auto as_17 = decode<FetchRequest>(newest, 17);
  ASSERT_TRUE(as_17) << as_17.error().what;
  EXPECT_EQ(as_17->topics[0].partitions[0].high_watermark, std::numeric_limits<std::int64_t>::max());
}

TEST(Codec, AnArrayThatClaimsMoreThanItsBytesCanHoldAsksForNoMemory) {
  // MetadataRequest v9: 2^31 topics in six bytes.
  const auto refused = decode<MetadataRequest>(hex("80808080 08 00"), 9);
  ASSERT_TRUE(refused.has_error());
  EXPECT_FALSE(decode<MetadataRequest>(hex("7fffffff 0000"), 4));
}

TEST(Codec, ANegativeLengthOtherThanNullIsRefused) {
  EXPECT_FALSE(decode<SaslHandshakeRequest>(hex("fffe"), 1));
  EXPECT_FALSE(decode<SaslHandshakeRequest>(hex("ffff"), 1)) << "null where none may be";
  EXPECT_FALSE(decode<MetadataRequest>(hex("fffffffe 00"), 4));
}

TEST(Codec, NullAndEmptyStayApart) {
  MetadataRequest all;
  all.topics = std::nullopt;
  MetadataRequest none;
  none.topics.emplace();
  for (std::int16_t v = 1; v <= MetadataRequest::valid_versions.max; ++v) {
    if (!MetadataRequest::valid_versions.holds(v)) continue;
    EXPECT_FALSE(decode<MetadataRequest>(encode(all, v).flatten(), v)->topics) << v;
    EXPECT_TRUE(decode<MetadataRequest>(encode(none, v).flatten(), v)->topics) << v;
  }
}

TEST(Codec, RecordsOfAProduceRequestAreASpanOfTheFrame) {
  Buffer batch(100, std::byte{0x5A});
  ProduceRequest request;
  request.topic_data.resize(1);
  request.topic_data[0].partition_data.resize(1);
  request.topic_data[0].partition_data[0].records = Records(batch);
  const auto frame = encode(request, 13).flatten();
  const auto read = decode<ProduceRequest>(frame, 13);
  ASSERT_TRUE(read);
  const auto records = read->topic_data[0].partition_data[0].records.single();
  EXPECT_EQ(records.size(), 100U);
  EXPECT_GE(records.data(), frame.data());
  EXPECT_LE(records.data() + records.size(), frame.data() + frame.size());
}

TEST(Codec, RecordsOfAFetchResponseAreSplicedNotCopied) {
  const auto chunk = std::make_shared<Buffer>(1 << 20, std::byte{1});
  FetchResponse response;
  response.responses.resize(1);
  response.responses[0].partitions.resize(2);
  for (auto& partition : response.responses[0].partitions) partition.records.add(Bytes(*chunk).first(1 << 19), chunk);
  response.responses[0].partitions[1].records.add(Bytes(*chunk).subspan(1 << 19), chunk);
  const auto frame = encode_response(7, response, 12);
  EXPECT_LT(frame.head.size(), 300U);
  ASSERT_EQ(frame.splices.size(), 3U);
  EXPECT_EQ(frame.splices[0].bytes.data(), chunk->data());
  EXPECT_EQ(chunk.use_count(), 1 + 3 + 3) << "the frame keeps the chunk as long as the response does";
  std::size_t gathered = 0;
  for (const auto piece : frame.gather()) gathered += piece.size();
  EXPECT_EQ(gathered, frame.size());
  const auto flat = frame.flatten();
  EXPECT_EQ(load_be<std::int32_t>(flat.data()), static_cast<std::int32_t>(flat.size() - 4));
  const auto body = split_response(Bytes(flat).subspan(4), FetchResponse::api_key, 12);
  ASSERT_TRUE(body);
  EXPECT_EQ(body->correlation_id, 7);
  const auto back = decode<FetchResponse>(body->body, 12);
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(*back, response);
}

TEST(Codec, NullRecordsStayNull) {
  FetchResponse response;
  response.responses.resize(1);
  response.responses[0].partitions.resize(2);
  response.responses[0].partitions[1].records = Records::none();
  const auto back = decode<FetchResponse>(encode(response, 17).flatten(), 17);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->responses[0].partitions[0].records.is_null());
  EXPECT_FALSE(back->responses[0].partitions[1].records.is_null());
}

TEST(Headers, ARequestIsSplitAsItWasJoined) {
  MetadataRequest request;
  for (const std::int16_t version : {std::int16_t{4}, std::int16_t{12}}) {
    const auto flat = encode_request(42, "client-7", request, version).flatten();
    ASSERT_EQ(load_be<std::int32_t>(flat.data()), static_cast<std::int32_t>(flat.size() - 4));
    const auto split = split_request(Bytes(flat).subspan(4));
    ASSERT_TRUE(split) << split.error().what;
    EXPECT_EQ(split->api_key, MetadataRequest::api_key);
    EXPECT_EQ(split->api_version, version);
    EXPECT_EQ(split->correlation_id, 42);
    EXPECT_EQ(split->client_id, "client-7");
    EXPECT_TRUE(decode<MetadataRequest>(split->body, version));
  }
}

TEST(Headers, ANullClientIdStaysNull) {
  const auto flat = encode_request(1, std::nullopt, MetadataRequest{}, 12).flatten();
  EXPECT_EQ(split_request(Bytes(flat).subspan(4))->client_id, std::nullopt);
}

TEST(Headers, UnknownApisAndVersionsGiveOnlyWhatEveryHeaderHas) {
  const auto unknown_api = split_request(hex("7fff 0000 00000005 ffff"));
  ASSERT_TRUE(unknown_api);
  EXPECT_EQ(unknown_api->correlation_id, 5);
  EXPECT_TRUE(unknown_api->body.empty());
  const auto bytes = hex("0003 0063 00000006 0002 6162 ff");
  const auto named = split_request(bytes);
  ASSERT_TRUE(named);
  EXPECT_EQ(named->client_id, "ab");  // for the log: the version is nobody's
  const auto unknown_version = split_request(hex("0012 0063 00000006 02"));
  ASSERT_TRUE(unknown_version);
  EXPECT_EQ(unknown_version->api_version, 99);
  EXPECT_EQ(unknown_version->correlation_id, 6);
}

TEST(Headers, ATruncatedOneIsAnError) {
  EXPECT_FALSE(split_request(hex("0003 000c 000000")));
  EXPECT_FALSE(split_request(hex("0003 000c 00000001 0005 6162")));
  EXPECT_FALSE(split_request(hex("0003 000c 00000001 fffe")));
  EXPECT_FALSE(split_request(hex("0003 000c 00000001 ffff 01 00 7f")));
  EXPECT_FALSE(split_response(hex("000000"), 3, 4));
  EXPECT_FALSE(split_response(hex("00000001"), 3, 12));
}

TEST(Headers, ApiVersionsAnswersWithTheOldHeaderAlways) {
  const auto flat = encode_response(9, ApiVersionsResponse{}, 4).flatten();
  // length, correlation id, then the body's error code at once: no tag section between.
  EXPECT_EQ(load_be<std::int32_t>(flat.data() + 4), 9);
  const auto split = split_response(Bytes(flat).subspan(4), api_versions_key, 4);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->body.size(), flat.size() - 8);
  EXPECT_TRUE(decode<ApiVersionsResponse>(split->body, 4));
}

TEST(Apis, EveryRequestIsInTheTableWithItsVersions) {
  std::size_t requests = 0;
  for (const auto& message : testing::every_message()) {
    if (message.kind != testing::MessageKind::request) continue;
    ++requests;
    const auto* api = find_api(message.api_key);
    ASSERT_NE(api, nullptr) << message.name;
    EXPECT_EQ(std::string(api->name) + "Request", message.name);
    EXPECT_EQ(api->versions.min, message.versions.min);
    EXPECT_EQ(api->versions.max, message.versions.max);
    EXPECT_EQ(api->flexible_from, message.flexible_from);
  }
  EXPECT_GE(requests, 39U);
  EXPECT_EQ(find_api(-1), nullptr);
  EXPECT_EQ(find_api(9999), nullptr);
}

}  // namespace
}  // namespace ciuic::kafka
