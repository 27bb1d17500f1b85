#pragma once
#include <string>
#include <vector>

#include "broker/log/files.h"
#include "transport/base/result.h"
#include "transport/base/unique_fd.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// The log directories as a broker's home: locked against a second broker, and carrying who it is (meta.properties).
struct Home {
  std::vector<UniqueFd> locks;
  std::string cluster_id;
  std::vector<kafka::Uuid> directory_ids;  // beside the directories
};

/// Locks every directory (making it if missing) and reads its meta.properties; an empty one is formatted with the
/// others' cluster id, or a new one. Errors: words that name the path, and the remedy.
[[nodiscard]] ResultOf<Home, std::string> open_home(Files& files, const std::vector<std::string>& directories,
                                                    std::int32_t node_id);

}  // namespace ciuic::broker
