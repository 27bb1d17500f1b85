#pragma once
#include <fmt/core.h>

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

}  // namespace ciuic::log
