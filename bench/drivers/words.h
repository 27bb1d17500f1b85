#pragma once
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ciuic::bench {

/// Settings of a client library, as `key=value` with Kafka's names.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// The `key=value` words of a driver's command line. Throws std::runtime_error naming the word and the remedy.
class Words {
 public:
  Words(int argc, char** argv, int first) {
    for (int i = first; i < argc; ++i) {
      const std::string_view word = argv[i];
      const auto equals = word.find('=');
      if (equals == std::string_view::npos) throw std::runtime_error(std::string(word) + ": write key=value");
      values_[std::string(word.substr(0, equals))] = word.substr(equals + 1);
    }
  }

  std::string text(const std::string& key, std::optional<std::string> standard = {}) {
    used_.insert(key);
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (!standard) throw std::runtime_error(key + " is missing; write " + key + "=…");
    return *standard;
  }

  std::uint64_t number(const std::string& key, std::optional<std::uint64_t> standard = {}) {
    const auto word = text(key, standard ? std::optional(std::to_string(*standard)) : std::nullopt);
    std::uint64_t value = 0;
    const auto* end = word.data() + word.size();
    if (const auto [at, error] = std::from_chars(word.data(), end, value); error != std::errc() || at != end)
      throw std::runtime_error(key + "=" + word + ": write a whole number");
    return value;
  }

  /// What follows `prefix`: handed to the client library as it is, so that every setting stands in the declarations.
  Settings settings(std::string_view prefix = "set.") {
    Settings out;
    for (const auto& [key, value] : values_) {
      if (!key.starts_with(prefix)) continue;
      used_.insert(key);
      out.emplace_back(key.substr(prefix.size()), value);
    }
    return out;
  }

  /// A misspelt word would measure something else: call after the last question.
  void all_used() const {
    for (const auto& [key, value] : values_) {
      if (!used_.contains(key)) throw std::runtime_error(key + "=" + value + ": this workload has no such word");
    }
  }

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> used_;
};

}  // namespace ciuic::bench
