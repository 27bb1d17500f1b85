#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Structured logs: one line an event, `level room text key=value …`. spdlog writes them; its headers stay in log.cpp.
///   log::info("log", "segment rolled topic={} partition={} base_offset={}", topic, partition, base);
/// Nothing is formatted below the level in force. Any thread. Never log on a per-record path.
namespace ciuic::log {

enum class Level { debug, info, warn, error, off };

/// Parses "debug" … "off"; false if it is none of them.
[[nodiscard]] bool parse_level(std::string_view text, Level& level);
void set_level(Level level);
[[nodiscard]] bool enabled(Level level);
/// stderr by default; a path writes there instead (appending). False if it cannot be opened.
[[nodiscard]] bool set_file(const std::string& path);
void write(Level level, std::string_view room, std::string_view text);
void flush();

template <class... Args>
void line(Level level, std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(level)) write(level, room, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void debug(std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  line(Level::debug, room, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  line(Level::info, room, format, std::forward<Args>(args)...);
}
template <class... Args>
void warn(std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  line(Level::warn, room, format, std::forward<Args>(args)...);
}
template <class... Args>
void error(std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  line(Level::error, room, format, std::forward<Args>(args)...);
}

/// How many lines of one text `bounded` writes a second.
inline constexpr std::uint64_t bounded_lines_max = 10;
/// May another line of this text be written now? Then how many were left out since the last one. `text` is a literal.
[[nodiscard]] std::optional<std::uint64_t> admit(std::string_view text);

/// For every line that somebody at the other end of a socket can cause: a flood of one kind, which is a format text,
/// costs `bounded_lines_max` lines a second; the next line that is written ends with ` left_out=N`. What groups and
/// members rightly do is told whole, by `info`: a large job's start is no flood.
template <class... Args>
void bounded(Level level, std::string_view room, fmt::format_string<Args...> format, Args&&... args) {
  if (!enabled(level)) return;
  const fmt::string_view kind = format;
  const auto left_out = admit({kind.data(), kind.size()});
  if (!left_out) return;
  auto text = fmt::format(format, std::forward<Args>(args)...);
  if (*left_out > 0) text += fmt::format(" left_out={}", *left_out);
  write(level, room, text);
}

}  // namespace ciuic::log
