#include "transport/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "transport/base/clock.h"

namespace ciuic::log {
namespace {

constexpr std::array<std::pair<std::string_view, spdlog::level::level_enum>, 5> levels{{{"debug", spdlog::level::debug},
                                                                                        {"info", spdlog::level::info},
                                                                                        {"warn", spdlog::level::warn},
                                                                                        {"error", spdlog::level::err},
                                                                                        {"off", spdlog::level::off}}};

constexpr auto pattern = "%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v";

std::shared_ptr<spdlog::logger> make(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("ciuic", std::move(sink));
  logger->set_pattern(pattern);
  logger->set_level(spdlog::level::info);
  logger->flush_on(spdlog::level::info);
  return logger;
}

/// Colours on a terminal, unless NO_COLOR says otherwise.
spdlog::sink_ptr to_stderr() {
  const char* const unwanted = std::getenv("NO_COLOR");
  const bool plain = unwanted != nullptr && *unwanted != '\0';
  const auto mode = plain ? spdlog::color_mode::never : spdlog::color_mode::automatic;
  return std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode);
}

std::shared_ptr<spdlog::logger>& current() {
  static auto logger = make(to_stderr());
  return logger;
}

}  // namespace

bool parse_level(std::string_view text, Level& level) {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].first == text) {
      level = static_cast<Level>(i);
      return true;
    }
  }
  return false;
}

void set_level(Level level) { current()->set_level(levels[static_cast<std::size_t>(level)].second); }

bool enabled(Level level) { return current()->should_log(levels[static_cast<std::size_t>(level)].second); }

bool set_file(const std::string& path) {
  try {  // spdlog reports an unopenable file only by an exception.
    auto logger = make(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
    logger->set_level(current()->level());
    current() = std::move(logger);
    return true;
  } catch (const spdlog::spdlog_ex&) {
    return false;
  }
}

void write(Level level, std::string_view room, std::string_view text) {
  current()->log(levels[static_cast<std::size_t>(level)].second, "{}: {}", room, text);
}

std::optional<std::uint64_t> admit(std::string_view text) {
  struct Kind {
    Clock::TimePoint since{};
    std::uint64_t written = 0, left_out = 0;
  };
  static std::mutex mutex;
  static std::unordered_map<std::string_view, Kind> kinds;
  const auto now = system_clock().now();
  const std::scoped_lock lock(mutex);
  auto& kind = kinds[text];
  if (kind.written == 0 || now - kind.since >= std::chrono::seconds(1)) {
    kind.since = now;
    kind.written = 0;
  }
  if (kind.written >= bounded_lines_max) {
    ++kind.left_out;
    return std::nullopt;
  }
  ++kind.written;
  return std::exchange(kind.left_out, 0);
}

void flush() { current()->flush(); }

}  // namespace ciuic::log
