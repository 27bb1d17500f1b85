// The table of settings: every default is allowed, wrong values are refused with key, value and what is allowed.
#include "client/core/settings.h"

#include <gtest/gtest.h>

#include <set>

#include "ciuic/client.h"

namespace ciuic::client::core {
namespace {

const std::pair<std::string, std::string> broker{"bootstrap.servers", "localhost:9092"};

TEST(ClientSettings, EveryDefaultMayBeWrittenOut) {
  std::set<std::string> keys;
  for (const auto& row : settings()) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key << " twice";
    if (row.standard[0] == '\0') continue;
    EXPECT_TRUE(consumer_settings({broker, {row.key, row.standard}})) << row.key;
    EXPECT_TRUE(producer_settings({broker, {row.key, row.standard}})) << row.key;
  }
}

TEST(ClientSettings, WrongValuesNameKeyValueAndWhatIsAllowed) {
  for (const auto& row : settings()) {
    if (std::string_view(row.type) == "string" && std::string_view(row.key) != "bootstrap.servers" &&
        std::string_view(row.key) != "partition.assignment.strategy")
      continue;
    for (const char* wrong : {"", "-77", "99999999999999999999", "no such"}) {
      if (std::string_view(row.key) == "bootstrap.servers" &&
          (std::string_view(wrong) == "-77" || std::string_view(wrong) == "no such" || wrong[0] == '9'))
        continue;  // may be a host
      const auto refused = consumer_settings({broker, {row.key, wrong}});
      EXPECT_FALSE(refused) << row.key << "=" << wrong;
      if (refused) continue;
      EXPECT_EQ(refused.error().trouble, Trouble::invalid_config);
      EXPECT_NE(refused.error().text.find(row.key), std::string::npos);
      EXPECT_NE(refused.error().text.find(row.allowed), std::string::npos) << refused.error().text;
    }
  }
}

TEST(ClientSettings, UnknownKeysAreRefused) {
  const auto refused = consumer_settings({broker, {"fetch.min.byte", "1"}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text.find("fetch.min.byte"), std::string::npos);
}

TEST(ClientSettings, WithoutBrokersThereIsNoClient) { EXPECT_FALSE(consumer_settings({})); }

TEST(ClientSettings, Addresses) {
  EXPECT_EQ(*parse_address("a:1"), (Address{"a", 1}));
  EXPECT_EQ(*parse_address("a"), (Address{"a", 9092}));
  EXPECT_EQ(*parse_address("[::1]:7"), (Address{"::1", 7}));
  EXPECT_EQ(*parse_address("[::1]"), (Address{"::1", 9092}));
  for (const char* wrong : {"a:0", "a:70000", "a:x", ":9092", "a:"}) EXPECT_FALSE(parse_address(wrong)) << wrong;
}

TEST(ClientSettings, IdempotenceFollowsAcks) {
  EXPECT_TRUE(producer_settings({broker})->idempotence);
  EXPECT_FALSE(producer_settings({broker, {"acks", "1"}})->idempotence);
  EXPECT_FALSE(producer_settings({broker, {"acks", "1"}, {"enable.idempotence", "true"}}));
  EXPECT_FALSE(producer_settings({broker, {"max.in.flight", "6"}, {"enable.idempotence", "true"}}));
  EXPECT_EQ(producer_settings({broker, {"max.in.flight", "6"}})->in_flight_max, 5);
  EXPECT_EQ(producer_settings({broker, {"max.in.flight", "6"}, {"acks", "0"}})->in_flight_max, 6);
}

TEST(ClientSettings, OtherLibrariesNamesMeanTheSame) {
  EXPECT_EQ(producer_settings({{"metadata.broker.list", "x:1"}, {"queue.buffering.max.ms", "77"}})->linger_ms, 77);
}

}  // namespace
}  // namespace ciuic::client::core
