#pragma once
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ciuic::tool {

using Json = nlohmann::ordered_json;

/// Options that every subcommand has.
struct Common {
  std::string bootstrap = "localhost:9092";
  bool json = false;
  std::int64_t timeout_ms = 15000;
};

enum class Colour { plain, bold, red, green, yellow, dim };
enum class Stream : int { out = 1, error = 2 };
/// `text` coloured where the stream is a terminal (NO_COLOR is honoured), as it is elsewhere.
[[nodiscard]] std::string paint(Colour colour, std::string_view text, Stream to = Stream::out);

/// Columns as wide as needed; numbers (cells of digits only) to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : head_(std::move(head)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  void print() const;

 private:
  std::vector<std::string> head_;
  std::vector<std::vector<std::string>> rows_;
};

void print_json(const Json& json);
void print(std::string_view line);

/// A bar on standard error while something long goes on; only on a terminal.
class Progress {
 public:
  /// `total` 0: not known.
  Progress(std::string what, std::uint64_t total, bool wanted = true);
  ~Progress();
  void at(std::uint64_t done);

 private:
  std::string what_;
  std::uint64_t total_;
  bool shown_;
  std::int64_t last_ms_ = 0;
};

/// The whole text as a number of T; nothing where it is none, or out of T's range.
template <class T>
[[nodiscard]] std::optional<T> whole_number(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && at == end ? std::optional(number) : std::nullopt;
}
/// 1536 → "1.5 KiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
/// Milliseconds since 1970 as "2026-01-31T12:00:00.000Z"; "-" for -1.
[[nodiscard]] std::string time_text(std::int64_t ms);
/// "@…" without its "@": a number of milliseconds (or seconds, below 10^11), or an ISO date and time in UTC. Throws
/// Failure.
[[nodiscard]] std::int64_t parse_time(const std::string& text);

}  // namespace ciuic::tool
