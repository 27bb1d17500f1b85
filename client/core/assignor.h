#pragma once
#include <map>
#include <string>
#include <vector>

#include "ciuic/types.h"

namespace ciuic::client::core {

/// A member as the leader of a group sees it.
struct Member {
  std::string id{};
  std::string instance_id{};  ///< static members keep their place over restarts: they are sorted by it
  std::vector<std::string> topics{};
};
using Assignment = std::map<std::string, std::vector<TopicPartition>>;  ///< by member id; every member has an entry

/// "range": a topic's partitions in runs, as org.apache.kafka.clients.consumer.RangeAssignor without racks.
/// "roundrobin": all partitions dealt in turn, as RoundRobinAssignor. `partitions`: how many each topic has.
[[nodiscard]] Assignment assign_range(std::vector<Member> members,
                                      const std::map<std::string, std::int32_t>& partitions);
[[nodiscard]] Assignment assign_round_robin(std::vector<Member> members,
                                            const std::map<std::string, std::int32_t>& partitions);
/// REQUIRES: `strategy` is one of the two.
[[nodiscard]] Assignment assign_by(const std::string& strategy, std::vector<Member> members,
                                   const std::map<std::string, std::int32_t>& partitions);

}  // namespace ciuic::client::core
