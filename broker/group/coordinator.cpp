// Finds the partition of a group and asks it there. Not here: anything about groups (group_shard*.cpp).
#include "broker/group/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "broker/group/group_shard.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

/// Collects the parts of an answer from several partitions; calls back with all when the last is in. Any thread.
template <class T>
class Gather {
 public:
  Gather(std::size_t parts, std::function<void(std::vector<T>)> done)
      : parts_(parts), left_(parts), done_(std::move(done)) {}
  void put(std::size_t at, T part) {
    {
      const std::lock_guard lock(mutex_);
      parts_[at] = std::move(part);
      if (--left_ != 0) return;
    }
    done_(std::move(parts_));
  }

 private:
  std::mutex mutex_;
  std::vector<T> parts_;
  std::size_t left_;
  std::function<void(std::vector<T>)> done_;
};

template <class Answer>
Answer failed(ErrorCode code) {
  Answer answer;
  answer.error_code = code;
  return answer;
}

}  // namespace

GroupCoordinator::GroupCoordinator(GroupSettings settings, const Clock& clock) : settings_(settings), clock_(clock) {}
GroupCoordinator::~GroupCoordinator() = default;

kafka::PartitionIndex GroupCoordinator::partition_for(std::string_view group_id, std::int32_t partitions) {
  if (partitions <= 0) return kafka::PartitionIndex(0);
  // Java hashes UTF-16 units: s[0]*31^(n-1) + … in wrapping 32-bit arithmetic.
  std::uint32_t hash = 0;
  const auto add = [&](std::uint32_t unit) { hash = hash * 31 + unit; };
  for (std::size_t i = 0; i < group_id.size();) {
    const auto first = static_cast<std::uint8_t>(group_id[i]);
    const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (length > group_id.size() - i) break;
    std::uint32_t point = length == 1 ? first : first & (0xFFU >> (length + 1));
    for (std::size_t k = 1; k < length; ++k)
      point = (point << 6) | (static_cast<std::uint8_t>(group_id[i + k]) & 0x3FU);
    i += length;
    if (point < 0x10000) {
      add(point);
    } else {
      add(0xD800 + ((point - 0x10000) >> 10));
      add(0xDC00 + ((point - 0x10000) & 0x3FF));
    }
  }
  const auto value = static_cast<std::int32_t>(hash);
  const auto positive = value == std::numeric_limits<std::int32_t>::min() ? 0 : std::abs(value);
  return kafka::PartitionIndex(positive % partitions);
}

// --- Which partitions are here ---

void GroupCoordinator::image_changed(const MetadataPointer& image, const FindPartition& find) {
  std::vector<std::shared_ptr<GroupShard>> come, gone, all;
  std::set<std::string> deleted;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    for (const auto& [name, id] : topics_seen_) {
      const auto* topic = image->topic(name);
      if (topic == nullptr || topic->id != id) deleted.insert(name);
    }
    topics_seen_.clear();
    for (const auto& [name, topic] : image->topics()) topics_seen_.emplace(name, topic->id);

    const auto* topic = image->topic(offsets_topic);
    if (topic == nullptr || topic->id != topic_id_) {
      for (auto& [index, shard] : std::exchange(shards_, {})) gone.push_back(std::move(shard));
      topic_id_ = topic == nullptr ? kafka::TopicId{} : topic->id;
    }
    partitions_ = topic == nullptr ? 0 : static_cast<std::int32_t>(topic->partitions.size());
    for (std::int32_t i = 0; i < partitions_; ++i) {
      if (shards_.count(i) != 0) continue;
      auto partition = find(topic_id_, kafka::PartitionIndex(i));
      if (!partition) continue;
      auto shard = std::make_shared<GroupShard>(i, std::make_shared<PartitionGroupLog>(std::move(partition), clock_),
                                                settings_, clock_);
      shards_.emplace(i, shard);
      come.push_back(std::move(shard));
    }
    for (const auto& [index, shard] : shards_) all.push_back(shard);
  }
  for (const auto& shard : gone) shard->executor().post([shard] { shard->unload(); });
  for (const auto& shard : come) shard->executor().post([shard] { shard->load(); });
  if (deleted.empty()) return;
  for (const auto& shard : all) shard->executor().post([shard, deleted] { shard->forget_topics(deleted); });
}

void GroupCoordinator::stop(std::function<void()> done) {
  ShardMap shards;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    shards = std::exchange(shards_, {});
  }
  if (shards.empty()) return done();
  auto left = std::make_shared<std::atomic<std::size_t>>(shards.size());
  for (const auto& [index, shard] : shards) {
    shard->executor().post([shard = shard, left, done] {
      shard->unload();
      if (left->fetch_sub(1) == 1) done();
    });
  }
}

std::shared_ptr<GroupShard> GroupCoordinator::shard_for(std::string_view group_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = shards_.find(partition_for(group_id, partitions_).value);
  return found == shards_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<GroupShard>> GroupCoordinator::shards() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<GroupShard>> all;
  for (const auto& [index, shard] : shards_) all.push_back(shard);
  return all;
}

/// Runs `run(shard, error)` where the group lives; `shard` is null or may not be asked where there is an error.
template <class Run>
void GroupCoordinator::route(std::string_view group_id, Run run) {
  auto shard = shard_for(group_id);
  if (!shard) return run(nullptr, ErrorCode::not_coordinator);
  auto task = [shard, run = std::move(run)]() mutable { run(shard.get(), shard->unavailable()); };
  shard->executor().is_current() ? task() : shard->executor().post(std::move(task));
}

// --- Requests ---

void GroupCoordinator::join(GroupCaller caller, kafka::JoinGroupRequest request,
                            Callback<kafka::JoinGroupResponse> answer) {
  if (request.group_id.empty()) {
    auto refused = failed<kafka::JoinGroupResponse>(ErrorCode::invalid_group_id);
    refused.member_id = request.member_id;
    return answer(std::move(refused));
  }
  const auto group_id = request.group_id;
  route(group_id, [caller = std::move(caller), request = std::move(request), answer = std::move(answer)](
                      GroupShard* shard, ErrorCode error) mutable {
    if (error == ErrorCode::none) return shard->join(caller, std::move(request), std::move(answer));
    auto refused = failed<kafka::JoinGroupResponse>(error);
    refused.member_id = request.member_id;
    answer(std::move(refused));
  });
}

void GroupCoordinator::sync(GroupCaller, kafka::SyncGroupRequest request, Callback<kafka::SyncGroupResponse> answer) {
  if (request.group_id.empty()) return answer(failed<kafka::SyncGroupResponse>(ErrorCode::invalid_group_id));
  const auto group_id = request.group_id;
  route(group_id,
        [request = std::move(request), answer = std::move(answer)](GroupShard* shard, ErrorCode error) mutable {
          if (error == ErrorCode::none) return shard->sync(std::move(request), std::move(answer));
          // A rebalance that a restart interrupted begins anew: Apache's clients rejoin on this, and spin on "loading".
          answer(failed<kafka::SyncGroupResponse>(
              error == ErrorCode::coordinator_load_in_progress ? ErrorCode::rebalance_in_progress : error));
        });
}

void GroupCoordinator::heartbeat(kafka::HeartbeatRequest request, Callback<kafka::HeartbeatResponse> answer) {
  if (request.group_id.empty()) return answer(failed<kafka::HeartbeatResponse>(ErrorCode::invalid_group_id));
  const auto group_id = request.group_id;
  route(group_id, [request = std::move(request), answer = std::move(answer)](GroupShard* shard, ErrorCode error) {
    if (error == ErrorCode::none) return answer(shard->heartbeat(request));
    // While loading nobody's session runs: all is well, as Apache answers too.
    answer(
        failed<kafka::HeartbeatResponse>(error == ErrorCode::coordinator_load_in_progress ? ErrorCode::none : error));
  });
}

void GroupCoordinator::leave(kafka::LeaveGroupRequest request, Callback<kafka::LeaveGroupResponse> answer) {
  if (request.group_id.empty()) return answer(failed<kafka::LeaveGroupResponse>(ErrorCode::invalid_group_id));
  const auto group_id = request.group_id;
  route(group_id, [request = std::move(request), answer = std::move(answer)](GroupShard* shard, ErrorCode error) {
    answer(error == ErrorCode::none ? shard->leave(request) : failed<kafka::LeaveGroupResponse>(error));
  });
}

void GroupCoordinator::commit(GroupCaller caller, kafka::OffsetCommitRequest request,
                              Callback<kafka::OffsetCommitResponse> answer) {
  const auto group_id = request.group_id;
  route(group_id, [caller = std::move(caller), request = std::move(request), answer = std::move(answer)](
                      GroupShard* shard, ErrorCode error) mutable {
    if (error == ErrorCode::none) return shard->commit(caller, std::move(request), std::move(answer));
    kafka::OffsetCommitResponse refused;
    for (const auto& topic : request.topics) {
      auto& out = refused.topics.emplace_back();
      out.name = topic.name;
      out.topic_id = topic.topic_id;
      for (const auto& partition : topic.partitions) out.partitions.push_back({partition.partition_index, error});
    }
    answer(std::move(refused));
  });
}

void GroupCoordinator::fetch(kafka::OffsetFetchRequest::OffsetFetchRequestGroup request, bool require_stable,
                             Callback<kafka::OffsetFetchResponse::OffsetFetchResponseGroup> answer) {
  const auto group_id = request.group_id;
  route(group_id,
        [request = std::move(request), require_stable, answer = std::move(answer)](GroupShard* shard, ErrorCode error) {
          if (error == ErrorCode::none) return answer(shard->fetch(request, require_stable));
          auto refused = failed<kafka::OffsetFetchResponse::OffsetFetchResponseGroup>(error);
          refused.group_id = request.group_id;
          answer(std::move(refused));
        });
}

void GroupCoordinator::describe(std::int16_t version, std::vector<std::string> groups,
                                Callback<std::vector<kafka::DescribeGroupsResponse::DescribedGroup>> answer) {
  using Described = kafka::DescribeGroupsResponse::DescribedGroup;
  if (groups.empty()) return answer({});
  auto gather = std::make_shared<Gather<Described>>(groups.size(), std::move(answer));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    route(groups[i], [gather, i, version, group_id = groups[i]](GroupShard* shard, ErrorCode error) {
      if (error == ErrorCode::none && group_id.empty()) error = ErrorCode::invalid_group_id;
      if (error == ErrorCode::none) return gather->put(i, shard->describe(version, group_id));
      auto refused = failed<Described>(error);
      refused.group_id = group_id;
      gather->put(i, std::move(refused));
    });
  }
}

void GroupCoordinator::list(kafka::ListGroupsRequest request, Callback<kafka::ListGroupsResponse> answer) {
  const auto all = shards();
  if (all.empty()) return answer({});
  auto gather = std::make_shared<Gather<kafka::ListGroupsResponse>>(
      all.size(), [answer = std::move(answer)](std::vector<kafka::ListGroupsResponse> parts) {
        kafka::ListGroupsResponse whole;
        for (auto& part : parts) {
          if (part.error_code != ErrorCode::none) whole.error_code = part.error_code;
          std::move(part.groups.begin(), part.groups.end(), std::back_inserter(whole.groups));
        }
        answer(std::move(whole));
      });
  const auto shared = std::make_shared<const kafka::ListGroupsRequest>(std::move(request));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i]->executor().post([gather, i, shard = all[i], shared] {
      kafka::ListGroupsResponse part;
      part.error_code = shard->unavailable();
      if (part.error_code == ErrorCode::not_coordinator)
        part.error_code = ErrorCode::none;  // it went away: nothing to list
      shard->list(*shared, part.groups);
      gather->put(i, std::move(part));
    });
  }
}

void GroupCoordinator::remove(std::vector<std::string> groups,
                              Callback<std::vector<kafka::DeleteGroupsResponse::DeletableGroupResult>> answer) {
  using Result = kafka::DeleteGroupsResponse::DeletableGroupResult;
  if (groups.empty()) return answer({});
  auto gather = std::make_shared<Gather<Result>>(groups.size(), std::move(answer));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    route(groups[i], [gather, i, group_id = groups[i]](GroupShard* shard, ErrorCode error) {
      const auto put = [gather, i, group_id](ErrorCode code) { gather->put(i, Result{group_id, code}); };
      if (error == ErrorCode::none && group_id.empty()) error = ErrorCode::invalid_group_id;
      error == ErrorCode::none ? shard->remove(group_id, put) : put(error);
    });
  }
}

void GroupCoordinator::remove_offsets(kafka::OffsetDeleteRequest request,
                                      Callback<kafka::OffsetDeleteResponse> answer) {
  if (request.group_id.empty()) return answer(failed<kafka::OffsetDeleteResponse>(ErrorCode::invalid_group_id));
  const auto group_id = request.group_id;
  route(group_id,
        [request = std::move(request), answer = std::move(answer)](GroupShard* shard, ErrorCode error) mutable {
          if (error == ErrorCode::none) return shard->remove_offsets(std::move(request), std::move(answer));
          answer(failed<kafka::OffsetDeleteResponse>(error));
        });
}

}  // namespace ciuic::broker
