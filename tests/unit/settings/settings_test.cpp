// The whole table of settings, row by row: defaults, what is refused and how, what reaches which member.
#include "broker/settings/settings.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/base/log.h"

namespace ciuic::broker {
namespace {

bool is_number(const Setting& setting) {
  return setting.type == ValueType::int16 || setting.type == ValueType::int32 || setting.type == ValueType::int64 ||
         setting.type == ValueType::real;
}
std::string text_of(const Setting& setting, double number) {
  return setting.type == ValueType::real ? fmt::format("{}", number) : fmt::format("{:.0f}", number);
}
/// The key that a server.properties has for the row; empty for topic keys without one.
std::string file_key(const Setting& setting) {
  return std::string(setting.scope == Scope::broker ? setting.key : setting.broker_key);
}

/// Values that the row must refuse.
std::vector<std::string> wrong_values(const Setting& setting) {
  std::vector<std::string> wrong;
  if (setting.type == ValueType::boolean) return {"yes", "1", "", "truee"};
  if (is_number(setting)) {
    wrong = {"", "many", "1x", "0x10", "1 0", "99999999999999999999999", "nan"};
    if (setting.type == ValueType::real) wrong[5] = "1e999";
    wrong.push_back(text_of(setting, setting.min - 1));
    if (setting.max < 9e18) wrong.push_back(text_of(setting, setting.max + 1));
    if (setting.type != ValueType::real) wrong.emplace_back("1.5");
    return wrong;
  }
  if (!setting.allowed.empty()) wrong = {"no-such-word", std::string(setting.allowed) + "|"};
  return wrong;
}

/// A value other than the default that the row takes.
std::string other_value(const Setting& setting) {
  switch (setting.type) {
    case ValueType::boolean:
      return setting.fallback == "true" ? "false" : "true";
    case ValueType::string:
    case ValueType::list: {
      if (setting.allowed.empty()) return "/somewhere/else";
      std::string_view words = setting.allowed;
      while (!words.empty()) {
        const auto word = words.substr(0, words.find('|'));
        if (word != setting.fallback) return std::string(word);
        words.remove_prefix(std::min(words.size(), word.size() + 1));
      }
      return {};  // one word is allowed, and it is the default
    }
    default: {
      const auto least = text_of(setting, setting.min);
      return least == setting.fallback ? text_of(setting, setting.min + 1) : least;
    }
  }
}

Overrides with(const std::string& key, const std::string& value) {
  Overrides keys{{"log.dirs", "/tmp/x"}};
  keys[key] = value;
  return keys;
}

class EveryRow : public ::testing::TestWithParam<const Setting*> {};

TEST_P(EveryRow, HasADefaultThatItAcceptsAndATextForPeople) {
  const auto& row = *GetParam();
  EXPECT_FALSE(row.text.empty());
  EXPECT_EQ(row.text.back(), '.') << row.text;
  EXPECT_EQ(row.text.find_first_of("|\n"), std::string_view::npos) << "would break the table in docs/configuration.md";
  EXPECT_NE(row.scope == Scope::broker, row.set_broker == nullptr);
  EXPECT_NE(row.scope == Scope::topic, row.set_topic == nullptr);
  const bool unset = row.fallback.empty() && is_number(row);
  if (!unset) {
    const auto parsed = parse_value(row, row.fallback);
    EXPECT_TRUE(parsed) << parsed.error();
  }
  if (is_number(row)) {
    EXPECT_LT(row.min, row.max);
  }
}

TEST_P(EveryRow, RefusesWhatIsNotAllowedAndNamesKeyValueAndWhatIs) {
  const auto& row = *GetParam();
  for (const auto& value : wrong_values(row)) {
    SCOPED_TRACE(fmt::format("{}={}", row.key, value));
    const auto refused_with = [&](const std::string& error) {
      EXPECT_NE(error.find(row.key), std::string::npos) << error;
      EXPECT_NE(error.find(fmt::format("Invalid value {} for configuration", value)), std::string::npos) << error;
      const bool says_what = error.find("must be") != std::string::npos || error.find("of type") != std::string::npos ||
                             error.find("either true or false") != std::string::npos;
      EXPECT_TRUE(says_what) << error;
    };
    const auto alone = parse_value(row, value);
    ASSERT_FALSE(alone);
    refused_with(alone.error());
    if (const auto key = file_key(row); !key.empty()) {
      const auto config = make_broker_config(with(key, value));
      ASSERT_FALSE(config) << key;
      refused_with(config.error());
      EXPECT_NE(config.error().find(key), std::string::npos) << config.error();
    }
    if (row.scope == Scope::topic) {
      const auto config = make_topic_config({}, {{std::string(row.key), value}});
      ASSERT_FALSE(config);
      refused_with(config.error());
    }
  }
}

TEST_P(EveryRow, ChangesTheConfigurationWhenItsValueDoes) {
  const auto& row = *GetParam();
  static const std::set<std::string_view> without_effect{"follower.replication.throttled.replicas",
                                                         "leader.replication.throttled.replicas"};
  if (without_effect.contains(row.key)) return;
  const auto value = other_value(row);
  if (value.empty()) return;  // nothing else is allowed
  SCOPED_TRACE(fmt::format("{}={}", row.key, value));
  const auto plain = make_broker_config({{"log.dirs", "/tmp/x"}});
  ASSERT_TRUE(plain) << plain.error();
  if (const auto key = file_key(row); !key.empty()) {
    const auto changed = make_broker_config(with(key, value));
    ASSERT_TRUE(changed) << changed.error();
    EXPECT_NE(*plain, *changed);
    // A topic's row changes what topics have, a broker's row only the broker's own (the coarser units of Kafka aside).
    const bool unit = key == "log.retention.hours" || key == "log.retention.minutes" || key == "log.roll.hours";
    EXPECT_EQ(plain->log != changed->log, row.scope == Scope::topic || unit);
  }
  if (row.scope == Scope::topic) {
    const auto changed = make_topic_config(plain->log, {{std::string(row.key), value}});
    ASSERT_TRUE(changed) << changed.error();
    EXPECT_NE(plain->log, *changed);
  }
}

std::vector<const Setting*> rows() {
  std::vector<const Setting*> found;
  for (const auto& row : all_settings()) found.push_back(&row);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Settings, EveryRow, ::testing::ValuesIn(rows()), [](const auto& row) {
  std::string name(row.param->scope == Scope::topic ? "topic_" : "");
  for (const char c : row.param->key) name += c == '.' ? '_' : c;
  return name;
});

TEST(Settings, NoTwoRowsHaveTheSameKeyOrTheSameMember) {
  std::map<std::pair<Scope, std::string_view>, int> keys;
  std::map<void (*)(BrokerConfig&, const Value&), std::vector<std::string_view>> broker_members;
  std::map<void (*)(LogConfig&, const Value&), std::vector<std::string_view>> topic_members;
  for (const auto& row : all_settings()) {
    EXPECT_EQ(++keys[std::pair(row.scope, row.key)], 1) << row.key;
    if (row.set_broker != nullptr) broker_members[row.set_broker].push_back(row.key);
    if (row.set_topic != nullptr) topic_members[row.set_topic].push_back(row.key);
  }
  for (const auto& [setter, names] : broker_members) {
    if (names.size() < 2) continue;
    EXPECT_EQ(names.front(), "log.retention.hours") << names[1];  // the coarser units share a setter that does nothing
  }
  for (const auto& [setter, names] : topic_members) {
    if (names.size() < 2) continue;
    EXPECT_EQ(names.front(), "follower.replication.throttled.replicas") << names[1];
  }
}

TEST(Settings, RowsAreSortedByScopeAndKey) {
  const auto table = all_settings();
  for (std::size_t i = 1; i < table.size(); ++i) {
    const auto order = [](const Setting& row) { return std::tuple(row.scope, row.ours, row.key); };
    EXPECT_LT(order(table[i - 1]), order(table[i])) << table[i].key;
  }
}

TEST(Settings, TheFinerUnitWins) {
  const auto retention = [](Overrides keys) {
    keys["log.dirs"] = "/tmp/x";
    const auto config = make_broker_config(keys);
    EXPECT_TRUE(config) << config.error();
    return config->log.retention_ms;
  };
  EXPECT_EQ(retention({}), 604'800'000);
  EXPECT_EQ(retention({{"log.retention.hours", "2"}}), 7'200'000);
  EXPECT_EQ(retention({{"log.retention.hours", "2"}, {"log.retention.minutes", "3"}}), 180'000);
  EXPECT_EQ(retention({{"log.retention.hours", "2"}, {"log.retention.minutes", "3"}, {"log.retention.ms", "5"}}), 5);
  EXPECT_EQ(retention({{"log.retention.hours", "-1"}}), -1);
}

TEST(Settings, AUnitThatIsTooCoarseForItsNumberIsRefusedNotWrapped) {
  const Overrides none;
  for (const auto* key : {"log.retention.hours", "log.retention.minutes", "log.roll.hours"}) {
    const Overrides keys{{"log.dirs", "/tmp/x"}, {key, "9223372036854775807"}};
    const auto config = make_broker_config(keys);
    ASSERT_FALSE(config) << key;
    EXPECT_NE(config.error().find(key), std::string::npos) << config.error();
    EXPECT_FALSE(describe_broker({none, none, keys}).empty());
  }
}

TEST(Settings, OldNamesOfAKeyAreRead) {
  const auto config = make_broker_config({{"broker.id", "7"}, {"log.dir", "/tmp/old"}});
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->node_id, 7);
  EXPECT_EQ(config->log_dirs, std::vector<std::string>{"/tmp/old"});
}

TEST(Settings, TheOffsetsTopicHasApachesFiftyPartitionsUnlessSaid) {
  const auto config = make_broker_config({{"log.dirs", "/tmp/x"}});
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->offsets_partitions, 50);  // a group's partition is its hash modulo this
}

TEST(Settings, BooleansAreReadInEitherCase) {
  for (const auto* text : {"FALSE", "False", " false "}) {
    const auto config = make_broker_config(with("delete.topic.enable", text));
    ASSERT_TRUE(config) << config.error();
    EXPECT_FALSE(config->delete_topics);
  }
}

TEST(Settings, AnUnknownKeyIsWarnedOfByNameAndIgnored) {
  const auto path =
      std::filesystem::temp_directory_path() /
      fmt::format("ciuic-settings-{}.log", ::testing::UnitTest::GetInstance()->random_seed() + ::getpid());
  ASSERT_TRUE(log::set_file(path));
  log::set_level(log::Level::warn);
  const auto config =
      make_broker_config({{"log.dirs", "/tmp/x"}, {"log.segmnt.bytes", "5000000"}, {"num.partitions", "3"}});
  log::flush();
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::filesystem::remove(path);
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->partitions_default, 3);
  EXPECT_NE(text.find("log.segmnt.bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("5000000"), std::string::npos) << text;
  EXPECT_EQ(text.find("num.partitions"), std::string::npos) << text;
}

TEST(Settings, AnUnknownTopicKeyIsRefused) {
  const auto config = make_topic_config({}, {{"retention.msec", "5"}});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error(), "Unknown topic config name: retention.msec");
}

TEST(Properties, AreReadAsJavaReadsThem) {
  const auto read =
      parse_properties("# comment\n! also\n\na=1\n b : 2 \nc 3\nd=x\\\n   y\ne=\nf\ng=a\\tb\\\\c\r\nh==v\n");
  ASSERT_TRUE(read) << read.error();
  const Overrides expected{{"a", "1"}, {"b", "2"}, {"c", "3"},       {"d", "xy"},
                           {"e", ""},  {"f", ""},  {"g", "a\tb\\c"}, {"h", "=v"}};
  EXPECT_EQ(*read, expected);
}

TEST(Properties, ALineGoesOnAfterAnOddNumberOfBackslashesButNotBehindTheEnd) {
  const auto read = parse_properties("a=1\\\\\nb=2\\\\\\\n 3\nc\\=d\\:=4\n\\\n\ne=5\\");
  ASSERT_TRUE(read) << read.error();
  const Overrides expected{{"a", "1\\"}, {"b", "2\\3"}, {"c=d:", "4"}, {"e", "5"}};
  EXPECT_EQ(*read, expected);
}

TEST(Properties, AKeylessLineIsNamed) {
  const auto read = parse_properties("a=1\n=2\n");
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().find("line 2"), std::string::npos) << read.error();
}

}  // namespace
}  // namespace ciuic::broker
