#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace ciuic::broker {

/// The bytes of memory that this process may use: the machine's, or less where a control group (version 1 or 2) that it
/// is in, or one above, says less. `proc` and `cgroup`: where those file systems are mounted. Nothing: neither says.
[[nodiscard]] std::optional<std::uint64_t> memory_limit(const std::string& proc, const std::string& cgroup);

}  // namespace ciuic::broker
