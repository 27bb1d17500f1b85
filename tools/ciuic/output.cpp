// What people and programs see of the command: tables, JSON, colours, bars, numbers and times as text.
#include "tools/ciuic/output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "tools/ciuic/failure.h"

namespace ciuic::tool {

namespace {

bool colours(Stream to) {
  const char* const unwanted = std::getenv("NO_COLOR");
  return (unwanted == nullptr || *unwanted == '\0') && ::isatty(static_cast<int>(to)) != 0;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("-0123456789.") == std::string_view::npos;
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string paint(Colour colour, std::string_view text, Stream to) {
  if (colour == Colour::plain || !colours(to)) return std::string(text);
  const char* code = "";
  switch (colour) {
    case Colour::bold:
      code = "1";
      break;
    case Colour::red:
      code = "31";
      break;
    case Colour::green:
      code = "32";
      break;
    case Colour::yellow:
      code = "33";
      break;
    case Colour::dim:
      code = "2";
      break;
    case Colour::plain:
      break;
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

void Table::print() const {
  std::vector<std::size_t> width(head_.size());
  std::vector<bool> right(head_.size(), !rows_.empty());
  for (std::size_t c = 0; c < head_.size(); ++c) {
    width[c] = head_[c].size();
    for (const auto& cells : rows_) {
      width[c] = std::max(width[c], cells[c].size());
      if (!is_number(cells[c])) right[c] = false;
    }
  }
  const auto line = [&](const std::vector<std::string>& cells, Colour colour) {
    std::string out;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const auto pad = std::string(width[c] - cells[c].size(), ' ');
      const bool last = c + 1 == cells.size();
      out += right[c] ? pad + cells[c] : cells[c] + (last ? "" : pad);
      if (!last) out += "  ";
    }
    tool::print(paint(colour, out));
  };
  line(head_, Colour::bold);
  for (const auto& cells : rows_) line(cells, Colour::plain);
}

void print_json(const Json& json) { print(json.dump(2, ' ', false, Json::error_handler_t::replace)); }

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

Progress::Progress(std::string what, std::uint64_t total, bool wanted)
    : what_(std::move(what)), total_(total), shown_(wanted && ::isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (shown_ && last_ms_ != 0) std::fputs("\r\x1b[K", stderr);
}

void Progress::at(std::uint64_t done) {
  const auto now = now_ms();
  if (!shown_ || now - last_ms_ < 100) return;
  last_ms_ = now;
  constexpr std::uint64_t cells = 30;
  if (total_ == 0) {
    std::fputs(fmt::format("\r\x1b[K{} {}", what_, done).c_str(), stderr);
    return;
  }
  const auto part = std::min(done, total_);
  const auto filled = static_cast<std::size_t>(part * cells / total_);
  std::fputs(fmt::format("\r\x1b[K{} [{}{}] {:3}%", what_, std::string(filled, '#'), std::string(cells - filled, '.'),
                         part * 100 / total_)
                 .c_str(),
             stderr);
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string time_text(std::int64_t ms) {
  if (ms < 0) return "-";
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return std::to_string(ms);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text, ms % 1000);
}

std::int64_t parse_time(const std::string& text) {
  if (const auto number = whole_number<std::int64_t>(text); number && *number >= 0) {
    constexpr std::int64_t seconds_end = 100'000'000'000;  // below: seconds, until the year 5138
    return *number < seconds_end ? *number * 1000 : *number;
  }
  for (const char* format :
       {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    std::tm parts{};
    const char* rest = ::strptime(text.c_str(), format, &parts);
    if (rest != nullptr && (*rest == '\0' || std::string_view(rest) == "Z"))
      return static_cast<std::int64_t>(::timegm(&parts)) * 1000;
  }
  throw Failure(Exit::usage, "no time: " + text, "write milliseconds since 1970, or 2026-01-31T12:00:00 (UTC)");
}

}  // namespace ciuic::tool
