#pragma once
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace ciuic::broker {

/// A whole decimal number, or nothing.
template <class T>
[[nodiscard]] std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Walks the lines of a checkpoint file.
class TextLines {
 public:
  explicit TextLines(std::string_view text) : rest_(text) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  [[nodiscard]] std::string_view line() {
    const auto end = rest_.find('\n');
    auto line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view{} : rest_.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line;
  }
  template <class T>
  [[nodiscard]] std::optional<T> number() {
    return broker::number<T>(line());
  }
  [[nodiscard]] std::vector<std::string_view> words() {
    std::vector<std::string_view> words;
    auto rest = line();
    while (true) {
      const auto start = rest.find_first_not_of(' ');
      if (start == std::string_view::npos) return words;
      const auto end = rest.find(' ', start);
      words.push_back(rest.substr(start, end == std::string_view::npos ? end : end - start));
      if (end == std::string_view::npos) return words;
      rest = rest.substr(end);
    }
  }

 private:
  std::string_view rest_;
};

}  // namespace ciuic::broker
