#pragma once
#include <span>
#include <string>
#include <vector>

#include "client/core/cluster.h"

namespace ciuic::client::core {

/// One partition's question to ListOffsets, and what came back.
struct OffsetQuery {
  TopicPartition at{};
  std::int64_t timestamp = -1;  ///< ms, or offset_beginning, offset_end
  std::int64_t offset = -1;     ///< answer; -1: no record is at or after the time
  kafka::ErrorCode error = kafka::ErrorCode::none;
};
/// Asks one leader. Errors: of the connection; a partition's own is in its query.
Co<Result<std::vector<OffsetQuery>>> list_offsets(Cluster& cluster, std::int32_t node, std::vector<OffsetQuery> queries,
                                                  kafka::Isolation isolation);
/// Asks all leaders, refreshing metadata and trying again until `deadline`. Errors: the first partition's that stays.
Co<Result<std::vector<OffsetQuery>>> list_offsets_everywhere(Cluster& cluster, std::vector<OffsetQuery> queries,
                                                             kafka::Isolation isolation, Clock::TimePoint deadline);

/// Who commits, as the coordinator checks it.
struct Membership {
  std::string group{};
  std::string member_id{};
  std::string instance_id{};
  std::int32_t generation = -1;
};
/// Finds the coordinator, tries again on what passes until `deadline`, unless not `again`.
Co<Result<void>> commit_offsets(Cluster& cluster, Membership as, std::vector<TopicPartitionOffset> offsets,
                                Clock::TimePoint deadline, bool again = true);
/// `offset` -1: none committed.
Co<Result<std::vector<TopicPartitionOffset>>> committed_offsets(Cluster& cluster, std::string group,
                                                                std::vector<TopicPartition> partitions,
                                                                Clock::TimePoint deadline);

}  // namespace ciuic::client::core
