// How much memory there is for this process.
#include "broker/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>

namespace ciuic::broker {

std::optional<std::uint64_t> memory_limit(const std::string& proc, const std::string& cgroup) {
  constexpr auto none = std::numeric_limits<std::uint64_t>::max();
  auto least = none;
  std::string word;
  std::uint64_t kib = 0;
  if (std::ifstream file(proc + "/meminfo"); file >> word >> kib && word == "MemTotal:") least = kib * 1024;
  const auto consider = [&least](const std::string& path) {
    std::uint64_t bytes = 0;
    if (std::ifstream file(path); file >> bytes) least = std::min(least, bytes);  // "max" is no number
  };
  std::ifstream groups(proc + "/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    const bool unified = line.starts_with("0::");
    if (!unified && line.find("memory") > second) continue;
    // In a container the path may be the host's: then the mount itself is the group.
    for (auto path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      consider(unified ? fmt::format("{}{}/memory.max", cgroup, path)
                       : fmt::format("{}/memory{}/memory.limit_in_bytes", cgroup, path));
      if (path.find('/') == std::string::npos) break;
    }
  }
  if (least == none) return std::nullopt;
  return least;
}

}  // namespace ciuic::broker
