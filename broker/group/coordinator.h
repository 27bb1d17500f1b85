#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "broker/group/group_settings.h"
#include "broker/log/partition.h"
#include "broker/metadata/internal_topics.h"
#include "broker/metadata/metadata_image.h"
#include "transport/base/clock.h"
#include "transport/kafka/messages/delete_groups.h"
#include "transport/kafka/messages/describe_groups.h"
#include "transport/kafka/messages/heartbeat.h"
#include "transport/kafka/messages/join_group.h"
#include "transport/kafka/messages/leave_group.h"
#include "transport/kafka/messages/list_groups.h"
#include "transport/kafka/messages/offset_commit.h"
#include "transport/kafka/messages/offset_delete.h"
#include "transport/kafka/messages/offset_fetch.h"
#include "transport/kafka/messages/sync_group.h"

namespace ciuic::broker {

class GroupShard;

/// Who asks, as far as groups care.
struct GroupCaller {
  std::int16_t version = 0;  ///< of the request
  std::string client_id{};
  std::string client_host{};  ///< "/127.0.0.1", as Apache shows it
};

/// The classic group coordinator of this broker: groups and their committed offsets, partitioned as __consumer_offsets
/// is. The state of one partition lives on that partition's executor, is rebuilt from its log, and is changed only by
/// what has been appended to it.
///
/// Any thread may call anything. Every callback is called exactly once, on some executor's thread or inside the call:
/// with an answer, or with an error when the partition goes away or `stop` is called; it may not call back into the
/// coordinator inside the call. A JoinGroup or SyncGroup whose
/// client is gone is answered all the same; the caller drops the answer.
/// Errors every request may get: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
/// Authorization, topic ids and existence of topics are the handlers' (broker/api).
class GroupCoordinator {
 public:
  template <class T>
  using Callback = std::function<void(T)>;
  using FindPartition = std::function<std::shared_ptr<Partition>(const kafka::TopicId&, kafka::PartitionIndex)>;

  /// `clock` outlives the coordinator.
  GroupCoordinator(GroupSettings settings, const Clock& clock);
  ~GroupCoordinator();
  GroupCoordinator(const GroupCoordinator&) = delete;
  GroupCoordinator& operator=(const GroupCoordinator&) = delete;

  /// Call at start and after every change of the image, when its partitions are open: takes on the partitions of
  /// __consumer_offsets that `find` gives (and begins to load them), lets go of those that are gone, and forgets
  /// committed offsets of topics that were deleted.
  void image_changed(const MetadataPointer& image, const FindPartition& find);
  /// Answers whatever waits with NOT_COORDINATOR and takes nothing on any more. `done` once, on any thread. Before the
  /// partitions are closed.
  void stop(std::function<void()> done);

  /// The partition that a group belongs to: |Java's String.hashCode| % partitions.
  [[nodiscard]] static kafka::PartitionIndex partition_for(std::string_view group_id, std::int32_t partitions);
  [[nodiscard]] const GroupSettings& settings() const { return settings_; }

  void join(GroupCaller caller, kafka::JoinGroupRequest request, Callback<kafka::JoinGroupResponse> answer);
  void sync(GroupCaller caller, kafka::SyncGroupRequest request, Callback<kafka::SyncGroupResponse> answer);
  void heartbeat(kafka::HeartbeatRequest request, Callback<kafka::HeartbeatResponse> answer);
  /// Takes `members` whatever the version was; up to v2 the caller moves member_id there and the answer's first error
  /// up.
  void leave(kafka::LeaveGroupRequest request, Callback<kafka::LeaveGroupResponse> answer);
  /// By topic name; topic ids are kept where they are set.
  void commit(GroupCaller caller, kafka::OffsetCommitRequest request, Callback<kafka::OffsetCommitResponse> answer);
  /// One group, by topic name; null topics: every committed offset.
  void fetch(kafka::OffsetFetchRequest::OffsetFetchRequestGroup request, bool require_stable,
             Callback<kafka::OffsetFetchResponse::OffsetFetchResponseGroup> answer);
  /// In the order asked. An unknown group: state Dead, from v6 GROUP_ID_NOT_FOUND.
  void describe(std::int16_t version, std::vector<std::string> groups,
                Callback<std::vector<kafka::DescribeGroupsResponse::DescribedGroup>> answer);
  void list(kafka::ListGroupsRequest request, Callback<kafka::ListGroupsResponse> answer);
  void remove(std::vector<std::string> groups,
              Callback<std::vector<kafka::DeleteGroupsResponse::DeletableGroupResult>> answer);
  void remove_offsets(kafka::OffsetDeleteRequest request, Callback<kafka::OffsetDeleteResponse> answer);

 private:
  using ShardMap = std::map<std::int32_t, std::shared_ptr<GroupShard>>;
  [[nodiscard]] std::shared_ptr<GroupShard> shard_for(std::string_view group_id) const;
  [[nodiscard]] std::vector<std::shared_ptr<GroupShard>> shards() const;
  template <class Run>
  void route(std::string_view group_id, Run run);

  GroupSettings settings_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  kafka::TopicId topic_id_{};
  std::int32_t partitions_ = 0;
  ShardMap shards_;
  std::map<std::string, kafka::TopicId, std::less<>> topics_seen_;
  bool stopped_ = false;
};

}  // namespace ciuic::broker
