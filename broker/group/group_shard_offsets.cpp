// Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, and their end by retention or with their topic.
#include <algorithm>
#include <utility>

#include "broker/group/group_records.h"
#include "broker/group/group_shard.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

constexpr std::int16_t knows_group_id_not_found = 9;

ErrorCode commit_error(ErrorCode code) {
  switch (code) {
    case ErrorCode::message_too_large:
    case ErrorCode::record_list_too_large:
    case ErrorCode::invalid_fetch_size:
      return ErrorCode::invalid_commit_offset_size;
    default:
      return append_error(code);
  }
}

/// The request's topics and partitions, each with `code`.
kafka::OffsetCommitResponse commit_response(const kafka::OffsetCommitRequest& request, ErrorCode code) {
  kafka::OffsetCommitResponse response;
  response.topics.reserve(request.topics.size());
  for (const auto& topic : request.topics) {
    auto& out = response.topics.emplace_back();
    out.name = topic.name;
    out.topic_id = topic.topic_id;
    out.partitions.reserve(topic.partitions.size());
    for (const auto& partition : topic.partitions) out.partitions.push_back({partition.partition_index, code});
  }
  return response;
}

}  // namespace

ErrorCode GroupShard::check_commit(const GroupCaller& caller, const kafka::OffsetCommitRequest& request,
                                   GroupPointer& group) {
  const auto generation = request.generation_id_or_member_epoch;
  group = find(request.group_id);
  if (!group) {
    // Without a generation it comes from a tool, or from a consumer that assigns itself: that makes a simple group.
    if (generation >= 0)
      return caller.version >= knows_group_id_not_found ? ErrorCode::group_id_not_found : ErrorCode::illegal_generation;
    group = find_or_make(request.group_id);
    return ErrorCode::none;
  }
  if (generation < 0 && group->is(GroupState::empty)) return ErrorCode::none;
  if (generation < 0 && request.member_id.empty() && !request.group_instance_id) {
    // While the group has members only they may commit.
    return group->is(GroupState::empty) ? ErrorCode::none : ErrorCode::unknown_member_id;
  }
  if (const auto wrong = group->check_member(request.member_id, request.group_instance_id); wrong != ErrorCode::none)
    return wrong;
  if (generation != group->generation()) return ErrorCode::illegal_generation;
  return group->is(GroupState::completing_rebalance) ? ErrorCode::rebalance_in_progress : ErrorCode::none;
}

void GroupShard::commit(const GroupCaller& caller, kafka::OffsetCommitRequest request,
                        Callback<kafka::OffsetCommitResponse> answer) {
  GroupPointer group;
  if (const auto wrong = check_commit(caller, request, group); wrong != ErrorCode::none)
    return answer(commit_response(request, wrong));
  if (auto* const member = group->member(request.member_id)) touch(group, *member);
  struct Pending {
    kafka::OffsetCommitResponse response;
    std::vector<std::pair<kafka::TopicPartition, CommittedOffset>> offsets;
    Callback<kafka::OffsetCommitResponse> answer;
  };
  auto pending = std::make_shared<Pending>();
  pending->response = commit_response(request, ErrorCode::none);
  const auto now = clock_.wall_ms();
  std::vector<CoordinatorRecord> records;
  for (std::size_t t = 0; t < request.topics.size(); ++t) {
    auto& topic = request.topics[t];
    for (std::size_t p = 0; p < topic.partitions.size(); ++p) {
      auto& partition = topic.partitions[p];
      auto metadata = std::move(partition.committed_metadata).value_or("");
      if (metadata.size() > static_cast<std::size_t>(settings_.offset_metadata_bytes_max)) {
        pending->response.topics[t].partitions[p].error_code = ErrorCode::offset_metadata_too_large;
        continue;
      }
      CommittedOffset offset;
      offset.offset = kafka::Offset(partition.committed_offset);
      offset.leader_epoch = kafka::LeaderEpoch(partition.committed_leader_epoch);
      offset.metadata = std::move(metadata);
      offset.commit_ms = now;
      offset.topic_id = topic.topic_id;
      if (request.retention_time_ms >= 0)
        offset.expire_ms = now + std::min(request.retention_time_ms, std::int64_t{1} << 50);
      kafka::TopicPartition at{topic.name, kafka::PartitionIndex(partition.partition_index)};
      records.push_back(offset_record(group->id(), at, offset));
      group->offsets.begin(at);
      pending->offsets.emplace_back(std::move(at), std::move(offset));
    }
  }
  pending->answer = std::move(answer);
  if (records.empty()) return pending->answer(std::move(pending->response));
  log_->append(std::move(records), [group, pending](ErrorCode error) {
    for (auto& [at, offset] : pending->offsets) {
      group->offsets.end(at, error == ErrorCode::none ? std::optional(std::move(offset)) : std::nullopt);
    }
    if (error != ErrorCode::none) {
      for (auto& topic : pending->response.topics) {
        for (auto& partition : topic.partitions) {
          if (partition.error_code == ErrorCode::none) partition.error_code = commit_error(error);
        }
      }
    }
    pending->answer(std::move(pending->response));
  });
}

GroupShard::FetchedGroup GroupShard::fetch(const FetchGroup& request, bool require_stable) {
  FetchedGroup response;
  response.group_id = request.group_id;
  const auto group = find(request.group_id);
  const auto put = [&](auto& topic, const kafka::TopicPartition& at, const CommittedOffset* offset) {
    auto& out = topic.partitions.emplace_back();
    out.partition_index = at.partition.value;
    out.committed_offset = -1;
    out.metadata = "";
    if (require_stable && group && group->offsets.unstable(at)) {
      out.error_code = ErrorCode::unstable_offset_commit;
    } else if (offset != nullptr) {
      out.committed_offset = offset->offset.value;
      out.committed_leader_epoch = offset->leader_epoch.value;
      out.metadata = offset->metadata;
    }
  };
  if (!request.topics) {
    if (!group) return response;
    group->offsets.each([&](const kafka::TopicPartition& at, const CommittedOffset& offset) {
      if (response.topics.empty() || response.topics.back().name != at.topic)
        response.topics.emplace_back().name = at.topic;
      put(response.topics.back(), at, &offset);
    });
    return response;
  }
  response.topics.reserve(request.topics->size());
  for (const auto& topic : *request.topics) {
    auto& out = response.topics.emplace_back();
    out.name = topic.name;
    out.topic_id = topic.topic_id;
    out.partitions.reserve(topic.partition_indexes.size());
    for (const auto index : topic.partition_indexes) {
      const kafka::TopicPartition at{topic.name, kafka::PartitionIndex(index)};
      put(out, at, group ? group->offsets.find(at) : nullptr);
    }
  }
  return response;
}

void GroupShard::store_tombstones(const GroupPointer& group, std::vector<kafka::TopicPartition> gone, bool with_group,
                                  std::function<void(ErrorCode)> done) {
  std::vector<CoordinatorRecord> records;
  records.reserve(gone.size() + 1);
  for (const auto& at : gone) {
    records.push_back(offset_tombstone(group->id(), at));
    group->offsets.begin(at);
  }
  if (with_group) records.push_back(group_tombstone(group->id()));
  log_->append(std::move(records), [self = shared_from_this(), group, gone = std::move(gone), with_group,
                                    done = std::move(done)](ErrorCode error) {
    for (const auto& at : gone) {
      if (error == ErrorCode::none) group->offsets.erase(at);
      group->offsets.end(at, std::nullopt);
    }
    // Somebody may have joined or committed since: then it lives on, as the log says too.
    const bool unused = group->is(GroupState::empty) && group->pending_count() == 0 && group->offsets.empty();
    if (error == ErrorCode::none && with_group && unused && self->find(group->id()) == group) self->drop(group);
    done(error);
  });
}

void GroupShard::remove_offsets(kafka::OffsetDeleteRequest request, Callback<kafka::OffsetDeleteResponse> answer) {
  auto response = std::make_shared<kafka::OffsetDeleteResponse>();
  const auto group = find(request.group_id);
  const bool active = group && !group->is(GroupState::empty);
  if (!group) {
    response->error_code = ErrorCode::group_id_not_found;
  } else if (active && !group->uses_consumer_protocol()) {
    response->error_code = ErrorCode::non_empty_group;
  }
  if (response->error_code != ErrorCode::none) return answer(std::move(*response));
  std::vector<kafka::TopicPartition> gone;
  for (const auto& topic : request.topics) {
    auto& out = response->topics.emplace_back();
    out.name = topic.name;
    const bool in_use = active && group->subscribed_to(topic.name);
    for (const auto& partition : topic.partitions) {
      const kafka::TopicPartition at{topic.name, kafka::PartitionIndex(partition.partition_index)};
      out.partitions.push_back(
          {partition.partition_index, in_use ? ErrorCode::group_subscribed_to_topic : ErrorCode::none});
      if (!in_use && (group->offsets.find(at) != nullptr || group->offsets.in_flight(at))) gone.push_back(at);
    }
  }
  if (gone.empty()) return answer(std::move(*response));
  store_tombstones(group, std::move(gone), false, [response, answer = std::move(answer)](ErrorCode error) {
    response->error_code = append_error(error);
    if (error != ErrorCode::none) response->topics.clear();
    answer(std::move(*response));
  });
}

void GroupShard::forget_topics(const std::set<std::string>& topics) {
  if (status_ == Status::loading) {  // what is being read may hold offsets of them
    return at(Milliseconds(100), [topics](GroupShard& self) { self.forget_topics(topics); });
  }
  if (status_ != Status::active) return;
  for (const auto& [id, group] : groups_) {
    auto gone = group->offsets.all();
    gone.erase(std::remove_if(gone.begin(), gone.end(),
                              [&](const kafka::TopicPartition& each) { return topics.count(each.topic) == 0; }),
               gone.end());
    if (gone.empty()) continue;
    store_tombstones(group, std::move(gone), false, [group_id = id](ErrorCode error) {
      if (error != ErrorCode::none)
        log::bounded(log::Level::warn, "group", "offsets of deleted topics not removed group={} code={}", group_id,
                     kafka::name(error));
    });
  }
}

bool GroupShard::expired(const Group& group, const kafka::TopicPartition& at, const CommittedOffset& offset,
                         std::int64_t now_ms) const {
  auto since = offset.commit_ms;
  if (group.protocol_type()) {
    if (group.is(GroupState::empty)) {
      if (group.state_since_ms() >= 0) since = group.state_since_ms();
    } else if (!group.is(GroupState::stable) || !group.subscriptions_known() || group.subscribed_to(at.topic)) {
      return false;  // it is, or may be, consumed from
    }
  }
  if (offset.expire_ms) return now_ms >= *offset.expire_ms;
  return now_ms - since >= settings_.offsets_retention_ms;
}

void GroupShard::expire_offsets() {
  if (status_ != Status::active) return;
  const auto now = clock_.wall_ms();
  std::vector<GroupPointer> all;
  for (const auto& [id, group] : groups_) all.push_back(group);
  std::size_t offsets = 0;
  for (const auto& group : all) {
    std::vector<kafka::TopicPartition> gone;
    std::size_t kept = 0;
    group->offsets.each([&](const kafka::TopicPartition& each, const CommittedOffset& offset) {
      const bool over =
          expired(*group, each, offset, now) && !group->offsets.in_flight(each) && !group->offsets.unstable(each);
      over ? gone.push_back(each) : static_cast<void>(++kept);
    });
    const bool last = kept == 0 && group->is(GroupState::empty) && group->pending_count() == 0 &&
                      !group->offsets.any_pending() && group->offsets.all().size() == gone.size();
    if (gone.empty() && !last) continue;
    offsets += gone.size();
    store_tombstones(group, std::move(gone), last, [group_id = group->id()](ErrorCode error) {
      if (error != ErrorCode::none)
        log::bounded(log::Level::warn, "group", "expired offsets not removed group={} code={}", group_id,
                     kafka::name(error));
    });
  }
  if (offsets != 0) log::info("group", "expired offsets removed partition={} offsets={}", index_, offsets);
  at(Milliseconds(settings_.offsets_retention_check_interval_ms), [](GroupShard& self) { self.expire_offsets(); });
}

}  // namespace ciuic::broker
