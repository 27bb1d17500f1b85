#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "broker/group/coordinator.h"
#include "broker/group/group.h"
#include "broker/group/group_log.h"
#include "broker/group/group_settings.h"

namespace ciuic::broker {

/// The groups of one partition of __consumer_offsets: what every request does to them, their timers, and their records.
/// Lives on its log's executor: every call is made there. Answers are as GroupCoordinator's.
class GroupShard final : public GroupReplay, public std::enable_shared_from_this<GroupShard> {
 public:
  template <class T>
  using Callback = GroupCoordinator::Callback<T>;
  using FetchGroup = kafka::OffsetFetchRequest::OffsetFetchRequestGroup;
  using FetchedGroup = kafka::OffsetFetchResponse::OffsetFetchResponseGroup;
  using DescribedGroup = kafka::DescribeGroupsResponse::DescribedGroup;

  GroupShard(std::int32_t index, std::shared_ptr<GroupLog> log, const GroupSettings& settings, const Clock& clock);

  [[nodiscard]] Executor& executor() { return log_->executor(); }  // any thread
  /// Reads the log; until that is done requests are answered COORDINATOR_LOAD_IN_PROGRESS.
  void load();
  /// Answers what waits with NOT_COORDINATOR and forgets everything; requests are refused from now on.
  void unload();
  /// none, or why this partition cannot serve now.
  [[nodiscard]] kafka::ErrorCode unavailable() const;

  void join(const GroupCaller& caller, kafka::JoinGroupRequest request, JoinAnswer answer);
  void sync(kafka::SyncGroupRequest request, SyncAnswer answer);
  [[nodiscard]] kafka::HeartbeatResponse heartbeat(const kafka::HeartbeatRequest& request);
  [[nodiscard]] kafka::LeaveGroupResponse leave(const kafka::LeaveGroupRequest& request);
  void commit(const GroupCaller& caller, kafka::OffsetCommitRequest request,
              Callback<kafka::OffsetCommitResponse> answer);
  [[nodiscard]] FetchedGroup fetch(const FetchGroup& request, bool require_stable);
  [[nodiscard]] DescribedGroup describe(std::int16_t version, const std::string& group_id);
  void list(const kafka::ListGroupsRequest& request, std::vector<kafka::ListGroupsResponse::ListedGroup>& into) const;
  void remove(const std::string& group_id, Callback<kafka::ErrorCode> answer);
  void remove_offsets(kafka::OffsetDeleteRequest request, Callback<kafka::OffsetDeleteResponse> answer);
  /// Topics are gone: so are the offsets committed for them.
  void forget_topics(const std::set<std::string>& topics);
  /// One look for expired offsets and empty groups, as the timer does.
  void expire_offsets();

  void record(Bytes key, std::optional<Bytes> value, std::optional<kafka::ProducerId> producer) override;
  void transaction_ended(kafka::ProducerId producer, bool committed) override;

 private:
  using GroupPointer = std::shared_ptr<Group>;
  enum class Status { loading, active, gone };
  struct JoinCall {
    GroupCaller caller;
    kafka::JoinGroupRequest request;
    JoinAnswer answer;
  };

  [[nodiscard]] GroupPointer find(const std::string& group_id) const;
  GroupPointer find_or_make(const std::string& group_id);
  void drop(const GroupPointer& group);
  /// Runs `then(*this)` at that time, if this partition is still here.
  void at(Milliseconds from_now, std::function<void(GroupShard&)> then);

  // group_shard_join.cpp
  [[nodiscard]] bool has_room_for(const Group& group, const std::string& member_id) const;
  void join_new(const GroupPointer& group, JoinCall call);
  void join_again(const GroupPointer& group, JoinCall call);
  void add_member(const GroupPointer& group, JoinCall call, std::string member_id);
  void update_member(const GroupPointer& group, GroupMember& member, JoinCall call);
  void return_static(const GroupPointer& group, JoinCall call, const std::string& old_id, const std::string& new_id);
  void static_stored(const GroupPointer& group, const std::string& member_id, const std::string& former_leader,
                     std::int32_t generation, std::int16_t version, kafka::ErrorCode error);
  void rebalance_or_complete(const GroupPointer& group, std::string_view why);
  void prepare_rebalance(const GroupPointer& group, std::string_view why);
  void maybe_complete_join(const GroupPointer& group);
  void schedule_join_end(const GroupPointer& group, Milliseconds from_now);
  void initial_wait(const GroupPointer& group, Milliseconds delay, Milliseconds remaining);
  void complete_join(const GroupPointer& group);
  // group_shard_sync.cpp
  void store_assignment(const GroupPointer& group, const kafka::SyncGroupRequest& request);
  void propagate(const GroupPointer& group, kafka::ErrorCode error);
  void clear_assignments(const GroupPointer& group, kafka::ErrorCode error);
  void synced(const GroupPointer& group, const std::string& member_id);
  void expire_pending_sync(const GroupPointer& group, std::int32_t generation);
  // sessions, in group_shard.cpp
  void touch(const GroupPointer& group, GroupMember& member) {
    touch(group, member, Milliseconds(member.session_timeout_ms));
  }
  void touch(const GroupPointer& group, GroupMember& member, Milliseconds timeout);
  void arm(const GroupPointer& group, GroupMember& member);
  void session_timer(const std::string& group_id, const std::string& member_id, std::uint64_t timer);
  void remove_member(const GroupPointer& group, const std::string& member_id, std::string_view why);
  // group_shard_offsets.cpp
  [[nodiscard]] kafka::ErrorCode check_commit(const GroupCaller& caller, const kafka::OffsetCommitRequest& request,
                                              GroupPointer& group);
  void store_tombstones(const GroupPointer& group, std::vector<kafka::TopicPartition> gone, bool with_group,
                        std::function<void(kafka::ErrorCode)> done);
  [[nodiscard]] bool expired(const Group& group, const kafka::TopicPartition& at, const CommittedOffset& offset,
                             std::int64_t now_ms) const;

  std::int32_t index_;
  std::shared_ptr<GroupLog> log_;
  GroupSettings settings_;
  const Clock& clock_;
  Status status_ = Status::loading;
  std::unordered_map<std::string, GroupPointer> groups_;
  std::unordered_map<std::string, kafka::GroupMetadataValue> loading_;  // the last record of each group
  std::uint64_t load_attempt_ = 0;
};

/// What a client is told when a coordinator's append failed, as Apache maps it.
[[nodiscard]] kafka::ErrorCode append_error(kafka::ErrorCode code);

}  // namespace ciuic::broker
