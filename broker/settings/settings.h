#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "broker/log/log_config.h"
#include "broker/settings/broker_config.h"
#include "transport/base/result.h"

/// Every setting is one row of one table: parsing, DescribeConfigs, IncrementalAlterConfigs, `--print-settings` and
/// docs/configuration.md read it. Pure; any thread.
namespace ciuic::broker {

enum class Scope { broker, topic };
/// Numbers as DescribeConfigs' config_type has them (KIP-569).
enum class ValueType : std::int8_t { boolean = 1, string = 2, int32 = 3, int16 = 4, int64 = 5, real = 6, list = 7 };

struct Value {
  std::int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::string text{};
  std::vector<std::string> list{};
};

struct Setting {
  std::string_view key;  // Kafka's key, or ours
  Scope scope;
  ValueType type;
  std::string_view fallback;      // the default, as text; "" with type int64/int32 and `optional`: not set
  double min = 0, max = 0;        // numbers: inclusive range
  std::string_view allowed{};     // "a|b|c": strings and list elements must be one of these
  std::string_view broker_key{};  // topic scope: the broker-wide key that sets its default (its synonym)
  void (*set_broker)(BrokerConfig&, const Value&) = nullptr;
  void (*set_topic)(LogConfig&, const Value&) = nullptr;
  std::string_view text{};  // one sentence for people
  bool ours = false;        // not a key of Apache Kafka
};

/// All rows, broker scope first, sorted by key within a scope.
[[nodiscard]] std::span<const Setting> all_settings();
[[nodiscard]] const Setting* find_setting(Scope scope, std::string_view key);

/// `text` as the row's type and within its range; the error has Kafka's wording:
/// "Invalid value X for configuration K: …".
[[nodiscard]] ResultOf<Value, std::string> parse_value(const Setting& setting, std::string_view text);

using Overrides = std::map<std::string, std::string, std::less<>>;

/// A server.properties text (Java's format: comments, continuation lines, escapes) as keys and values.
/// The error names the line.
[[nodiscard]] ResultOf<Overrides, std::string> parse_properties(std::string_view text);

/// What a set of keys gives. Unknown keys are warned of in the log and ignored, as Kafka does; a wrong value is an
/// error that names key, value and what is allowed.
[[nodiscard]] ResultOf<BrokerConfig, std::string> make_broker_config(const Overrides& overrides);

/// A topic's config on top of the broker's defaults. Error: first wrong or unknown key, with Kafka's wording.
[[nodiscard]] ResultOf<LogConfig, std::string> make_topic_config(const LogConfig& defaults, const Overrides& overrides);

/// Where broker-wide values come from, best first: set on this broker and set on all brokers while they run
/// (IncrementalAlterConfigs), then server.properties.
struct BrokerLayers {
  const Overrides& node;
  const Overrides& cluster;
  const Overrides& file;
};
/// True for keys that may be set while the broker runs: those that give topics their defaults.
[[nodiscard]] bool is_dynamic(std::string_view broker_key);
/// What topics without a config of their own have. Error as above.
[[nodiscard]] ResultOf<LogConfig, std::string> make_log_defaults(const BrokerLayers& layers);

/// One row as DescribeConfigs answers it.
struct ConfigEntry {
  const Setting* setting;
  std::string value;
  std::string key;  // the row's, or its broker-wide one
  /// Where it comes from, best first. Source as Kafka's ConfigSource: 1 topic, 2 this broker, 3 all brokers,
  /// 4 server.properties, 5 default.
  struct Source {
    std::string key;
    std::string value;
    std::int8_t source;
  };
  std::vector<Source> sources;
};
[[nodiscard]] std::vector<ConfigEntry> describe_topic(const BrokerLayers& broker, const Overrides& topic);
[[nodiscard]] std::vector<ConfigEntry> describe_broker(const BrokerLayers& broker);

/// docs/configuration.md.
[[nodiscard]] std::string settings_markdown();

}  // namespace ciuic::broker
