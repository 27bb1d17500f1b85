// Reading values by the table (table.cpp). Not here: which settings there are.
#include "broker/settings/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "transport/base/log.h"

namespace ciuic::broker {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view blank = " \t\r\n\f";
  const auto from = text.find_first_not_of(blank);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(blank) - from + 1);
}

/// Kafka reads booleans in either case.
bool same_word(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(by), text.size());
    if (const auto part = trim(text.substr(0, end)); !part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string refuse(const Setting& setting, std::string_view text, std::string_view why) {
  return fmt::format("Invalid value {} for configuration {}: {}", text, setting.key, why);
}

std::string one_of(const Setting& setting) {
  std::string names(setting.allowed);
  for (std::size_t at = 0; (at = names.find('|', at)) != std::string::npos; at += 2) names.replace(at, 1, ", ");
  return "String must be one of: " + names;
}

bool is_allowed(const Setting& setting, std::string_view word) {
  if (setting.allowed.empty()) return true;
  const auto words = split(setting.allowed, '|');
  return std::find(words.begin(), words.end(), word) != words.end();
}

ResultOf<Value, std::string> parse_number(const Setting& setting, std::string_view text) {
  Value value;
  const auto* const end = text.data() + text.size();
  if (setting.type == ValueType::real) {
    const auto [stop, problem] = std::from_chars(text.data(), end, value.real);
    if (problem != std::errc{} || stop != end) return refuse(setting, text, "Not a number of type DOUBLE");
  } else {
    const auto [stop, problem] = std::from_chars(text.data(), end, value.integer);
    const char* const type = setting.type == ValueType::int64   ? "LONG"
                             : setting.type == ValueType::int32 ? "INT"
                                                                : "SHORT";
    if (problem != std::errc{} || stop != end)
      return refuse(setting, text, fmt::format("Not a number of type {}", type));
    value.real = static_cast<double>(value.integer);
  }
  const auto bound = [&](double limit) {
    return setting.type == ValueType::real ? fmt::format("{}", limit) : fmt::format("{:.0f}", limit);
  };
  if (std::isnan(value.real)) return refuse(setting, text, "Not a number of type DOUBLE");
  if (value.real < setting.min) return refuse(setting, text, "Value must be at least " + bound(setting.min));
  if (value.real > setting.max && setting.max < 9e18) {
    return refuse(setting, text, "Value must be no more than " + bound(setting.max));
  }
  return value;
}

std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      plain += text[at];
      continue;
    }
    const char c = text[++at];
    plain += c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
  }
  return plain;
}

/// Where the key of a properties line ends: at the first mark or blank that is not escaped.
std::size_t end_of_key(std::string_view line) {
  constexpr std::string_view marks = "=: \t";
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\\') {
      ++at;
    } else if (marks.find(line[at]) != std::string_view::npos) {
      return at;
    }
  }
  return std::string_view::npos;
}

const std::string* find(const Overrides& overrides, std::string_view key) {
  const auto found = overrides.find(key);
  return found == overrides.end() ? nullptr : &found->second;
}

/// Older names of a key that Kafka still reads.
constexpr std::pair<std::string_view, std::string_view> aliases[] = {{"broker.id", "node.id"}, {"log.dir", "log.dirs"}};

/// The broker-wide value of a topic key, from the exact key or from the coarser units Kafka also has.
std::optional<std::string> broker_wide(const Setting& setting, const Overrides& overrides) {
  if (setting.broker_key.empty()) return std::nullopt;
  if (const auto* exact = find(overrides, setting.broker_key)) return *exact;
  const auto scaled = [&](std::string_view key, std::int64_t factor) -> std::optional<std::string> {
    const auto* text = find(overrides, key);
    if (text == nullptr) return std::nullopt;
    std::int64_t number = 0;
    const auto [stop, problem] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (problem != std::errc{} || stop != text->data() + text->size() ||
        number > std::numeric_limits<std::int64_t>::max() / factor)
      return *text;  // refused by its own row
    return std::to_string(number < 0 ? number : number * factor);
  };
  if (setting.key == "retention.ms") {
    if (auto minutes = scaled("log.retention.minutes", 60'000)) return minutes;
    return scaled("log.retention.hours", 3'600'000);
  }
  if (setting.key == "segment.ms") return scaled("log.roll.hours", 3'600'000);
  return std::nullopt;
}

}  // namespace

const Setting* find_setting(Scope scope, std::string_view key) {
  for (const auto& setting : all_settings()) {
    if (setting.scope == scope && setting.key == key) return &setting;
  }
  return nullptr;
}

ResultOf<Value, std::string> parse_value(const Setting& setting, std::string_view raw) {
  const auto text = trim(raw);
  Value value;
  switch (setting.type) {
    case ValueType::boolean:
      if (!same_word(text, "true") && !same_word(text, "false")) {
        return refuse(setting, text, "Expected value to be either true or false");
      }
      value.boolean = same_word(text, "true");
      return value;
    case ValueType::string:
      if (!is_allowed(setting, text)) return refuse(setting, text, one_of(setting));
      value.text = text;
      return value;
    case ValueType::list:
      value.list = split(text, ',');
      for (const auto& word : value.list) {
        if (!is_allowed(setting, word)) return refuse(setting, text, one_of(setting));
      }
      return value;
    case ValueType::int16:
    case ValueType::int32:
    case ValueType::int64:
    case ValueType::real:
      return parse_number(setting, text);
  }
  return refuse(setting, text, "unknown type");
}

ResultOf<Overrides, std::string> parse_properties(std::string_view text) {
  Overrides found;
  std::size_t number = 0;
  std::string line;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto piece = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() && (piece.empty() || piece.front() == '#' || piece.front() == '!')) continue;
    // An even number of backslashes escape each other; the file's last line goes on nowhere.
    const auto plain = piece.find_last_not_of('\\') + 1;
    const bool escaped = (piece.size() - plain) % 2 == 1;
    if (escaped) piece.remove_suffix(1);
    line += piece;
    if (escaped && !text.empty()) continue;
    if (line.empty()) continue;
    const auto mark = end_of_key(line);
    const auto key = trim(std::string_view(line).substr(0, mark));
    if (key.empty()) return fmt::format("line {}: '{}' has no key; write key=value", number, line);
    auto value = mark == std::string::npos ? std::string_view{} : trim(std::string_view(line).substr(mark + 1));
    // "key = value": the blank ended the key, the mark is still to come. "key==value" has a value that begins with it.
    const bool by_blank = mark != std::string::npos && (line[mark] == ' ' || line[mark] == '\t');
    if (by_blank && !value.empty() && (value.front() == '=' || value.front() == ':')) value = trim(value.substr(1));
    found[unescape(key)] = unescape(value);
    line.clear();
  }
  return found;
}

ResultOf<BrokerConfig, std::string> make_broker_config(const Overrides& given) {
  Overrides overrides = given;
  for (const auto& [old_key, key] : aliases) {
    if (const auto* value = find(overrides, old_key)) {
      const std::string copy = *value;
      overrides.try_emplace(std::string(key), copy);
      overrides.erase(std::string(old_key));
    }
  }
  BrokerConfig config;
  for (const auto& setting : all_settings()) {
    if (setting.scope == Scope::broker) {
      const auto* text = find(overrides, setting.key);
      if (text == nullptr && setting.fallback.empty() && setting.type != ValueType::string &&
          setting.type != ValueType::list) {
        continue;
      }
      auto value = parse_value(setting, text != nullptr ? std::string_view(*text) : setting.fallback);
      if (!value) return value.error();
      setting.set_broker(config, *value);
    }
  }
  const Overrides none;
  auto defaults = make_log_defaults({none, none, overrides});
  if (!defaults) return defaults.error();
  config.log = *defaults;
  for (const auto& [key, value] : overrides) {
    const auto known = std::any_of(all_settings().begin(), all_settings().end(),
                                   [&, wanted = std::string_view(key)](const Setting& s) {
                                     return s.scope == Scope::broker ? s.key == wanted : s.broker_key == wanted;
                                   });
    if (!known) log::warn("settings", "unknown key ignored key={} value={}", key, value);
  }
  if (config.log_dirs.empty())
    return std::string("Invalid value  for configuration log.dirs: name at least one directory");
  return config;
}

ResultOf<LogConfig, std::string> make_topic_config(const LogConfig& defaults, const Overrides& overrides) {
  LogConfig config = defaults;
  for (const auto& [key, text] : overrides) {
    const auto* setting = find_setting(Scope::topic, key);
    if (setting == nullptr) return fmt::format("Unknown topic config name: {}", key);
    auto value = parse_value(*setting, text);
    if (!value) return value.error();
    setting->set_topic(config, *value);
  }
  return config;
}

namespace {

struct Found {
  std::string value;
  std::int8_t source;
};

/// The values that a topic key has broker-wide, best first.
std::vector<Found> layered(const Setting& setting, const BrokerLayers& layers) {
  std::vector<Found> found;
  if (const auto value = broker_wide(setting, layers.node)) found.push_back({*value, 2});
  if (const auto value = broker_wide(setting, layers.cluster)) found.push_back({*value, 3});
  if (const auto value = broker_wide(setting, layers.file)) found.push_back({*value, 4});
  return found;
}

ConfigEntry describe(const Setting& setting, std::string_view key, const std::string* topic_value,
                     std::string_view broker_key, const std::vector<Found>& broker_values) {
  ConfigEntry entry{&setting, {}, std::string(key), {}};
  if (topic_value != nullptr) entry.sources.push_back({std::string(setting.key), *topic_value, 1});
  for (const auto& each : broker_values) entry.sources.push_back({std::string(broker_key), each.value, each.source});
  entry.sources.push_back(
      {std::string(broker_key.empty() ? setting.key : broker_key), std::string(setting.fallback), 5});
  entry.value = entry.sources.front().value;
  return entry;
}

}  // namespace

bool is_dynamic(std::string_view broker_key) {
  const auto& rows = all_settings();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Setting& s) { return s.scope == Scope::topic && s.broker_key == broker_key; });
}

ResultOf<LogConfig, std::string> make_log_defaults(const BrokerLayers& layers) {
  LogConfig config;
  for (const auto& setting : all_settings()) {
    if (setting.scope != Scope::topic) continue;
    const auto found = layered(setting, layers);
    auto value = parse_value(setting, found.empty() ? setting.fallback : std::string_view(found.front().value));
    if (!value) return value.error() + fmt::format(" (broker-wide key: {})", setting.broker_key);
    setting.set_topic(config, *value);
  }
  return config;
}

std::vector<ConfigEntry> describe_topic(const BrokerLayers& broker, const Overrides& topic) {
  std::vector<ConfigEntry> entries;
  for (const auto& setting : all_settings()) {
    if (setting.scope != Scope::topic) continue;
    entries.push_back(
        describe(setting, setting.key, find(topic, setting.key), setting.broker_key, layered(setting, broker)));
  }
  return entries;
}

std::vector<ConfigEntry> describe_broker(const BrokerLayers& broker) {
  std::vector<ConfigEntry> entries;
  for (const auto& setting : all_settings()) {
    if (setting.scope == Scope::broker) {
      std::vector<Found> given;
      if (const auto* own = find(broker.file, setting.key)) given.push_back({*own, 4});
      entries.push_back(describe(setting, setting.key, nullptr, setting.key, given));
    } else if (!setting.broker_key.empty()) {
      entries.push_back(describe(setting, setting.broker_key, nullptr, setting.broker_key, layered(setting, broker)));
    }
  }
  return entries;
}

std::string settings_markdown() {
  std::string out =
      "# Configuration\n\nGenerated from the table that the broker itself reads (`ciuic-broker --print-settings`). A "
      "`server.properties` file holds `key=value` lines; `--override key=value` wins over it. Keys marked * are ours, "
      "all "
      "others are Apache Kafka's. Topic keys are set with CreateTopics and IncrementalAlterConfigs; their defaults "
      "come from "
      "the broker-wide key beside them.\n";
  const auto range = [](const Setting& setting) -> std::string {
    if (!setting.allowed.empty()) {
      std::string words(setting.allowed);
      std::replace(words.begin(), words.end(), '|', ' ');
      return words;
    }
    if (setting.type == ValueType::boolean) return "true false";
    if (setting.type == ValueType::string || setting.type == ValueType::list) return "";
    const auto bound = [&](double limit) {
      return setting.type == ValueType::real ? fmt::format("{}", limit) : fmt::format("{:.0f}", limit);
    };
    return setting.max > 9e18 ? fmt::format("{}…", bound(setting.min))
                              : fmt::format("{}…{}", bound(setting.min), bound(setting.max));
  };
  out += "\n## Broker\n\n| key | default | allowed | what it does |\n|---|---|---|---|\n";
  for (const auto& setting : all_settings()) {
    if (setting.scope == Scope::broker) {
      out += fmt::format("| `{}`{} | {} | {} | {} |\n", setting.key, setting.ours ? " *" : "", setting.fallback,
                         range(setting), setting.text);
    }
  }
  out += "\n## Topic\n\n| key | broker-wide | default | allowed | what it does |\n|---|---|---|---|---|\n";
  for (const auto& setting : all_settings()) {
    if (setting.scope == Scope::topic) {
      out += fmt::format("| `{}` | `{}` | {} | {} | {} |\n", setting.key, setting.broker_key, setting.fallback,
                         range(setting), setting.text);
    }
  }
  return out;
}

}  // namespace ciuic::broker
