// ListOffsets, OffsetCommit and OffsetFetch, each tried until it works or time is over.
#include "client/core/offsets.h"

#include <map>
#include <set>

#include "client/core/find_from.h"
#include "transport/kafka/messages/list_offsets.h"
#include "transport/kafka/messages/offset_commit.h"
#include "transport/kafka/messages/offset_fetch.h"

namespace ciuic::client::core {

using kafka::ErrorCode;

Co<Result<std::vector<OffsetQuery>>> list_offsets(Cluster& cluster, std::int32_t node, std::vector<OffsetQuery> queries,
                                                  kafka::Isolation isolation) {
  auto connection = co_await cluster.connection(node, Lane::control);
  if (!connection) co_return connection.error();
  kafka::ListOffsetsRequest request;
  request.replica_id = -1;
  request.isolation_level = static_cast<std::int8_t>(isolation);
  std::map<std::string, std::size_t> topics;
  for (const auto& query : queries) {
    const auto [at, added] = topics.try_emplace(query.at.topic, request.topics.size());
    if (added) request.topics.emplace_back().name = query.at.topic;
    auto& partition = request.topics[at->second].partitions.emplace_back();
    partition.partition_index = query.at.partition;
    partition.timestamp = query.timestamp;
  }
  request.timeout_ms = static_cast<std::int32_t>(cluster.settings().request_timeout_ms);
  auto answer =
      co_await (*connection)
          ->call<kafka::ListOffsetsResponse>(std::move(request), Milliseconds(cluster.settings().request_timeout_ms));
  if (!answer) co_return answer.error();
  std::size_t in_topics = 0, in_partitions = 0;
  for (auto& query : queries) {
    query.error = ErrorCode::unknown_server_error;
    const auto* const topic =
        find_from(answer->body.topics, in_topics, [&](const auto& one) { return one.name == query.at.topic; });
    if (topic == nullptr) continue;
    const auto* const partition = find_from(topic->partitions, in_partitions,
                                            [&](const auto& one) { return one.partition_index == query.at.partition; });
    if (partition == nullptr) continue;
    query.error = partition->error_code;
    query.offset = partition->offset;
  }
  co_return queries;
}

Co<Result<std::vector<OffsetQuery>>> list_offsets_everywhere(Cluster& cluster, std::vector<OffsetQuery> queries,
                                                             kafka::Isolation isolation, Clock::TimePoint deadline) {
  std::vector<OffsetQuery> done;
  std::set<std::string> names;
  for (const auto& query : queries) names.insert(query.at.topic);
  std::optional<Error> last;
  bool fresh = false;
  while (!queries.empty()) {
    if (cluster.loop().closing()) co_return failure(Trouble::invalid_state, "the client is closing");
    if (cluster.loop().clock().now() >= deadline) {
      co_return last.value_or(
          failure(Trouble::timed_out, "offsets of " + to_text(queries.front().at) + ": no answer in time", true));
    }
    bool known = true;
    for (const auto& query : queries) known = known && cluster.leader(query.at.topic, query.at.partition) >= 0;
    if (!known || cluster.stale()) {
      std::vector<std::string> wanted(names.begin(), names.end());
      auto refreshed = co_await cluster.refresh(std::move(wanted));
      if (!refreshed) last = refreshed.error();
      fresh = static_cast<bool>(refreshed);
    }
    std::map<std::int32_t, std::vector<OffsetQuery>> by_leader;
    std::vector<OffsetQuery> again;
    for (const auto& query : queries) {
      const auto leader = cluster.leader(query.at.topic, query.at.partition);
      if (leader >= 0) {
        by_leader[leader].push_back(query);
        continue;
      }
      const auto* const topic = cluster.topic(query.at.topic);
      if (topic != nullptr) {
        const auto code = topic->error != ErrorCode::none ? topic->error
                          : static_cast<std::size_t>(query.at.partition) >= topic->partitions.size()
                              ? ErrorCode::unknown_topic_or_partition
                              : ErrorCode::leader_not_available;
        last = broker_error(code, to_text(query.at));
        // A topic that auto-creation is making answers LEADER_NOT_AVAILABLE or UNKNOWN for a moment.
        if (!last->retriable ||
            (fresh && code == ErrorCode::unknown_topic_or_partition && !cluster.settings().auto_create_topics))
          co_return *last;
      }
      again.push_back(query);
    }
    for (auto& [node, part] : by_leader) {
      const auto kept = part;
      auto answered = co_await list_offsets(cluster, node, std::move(part), isolation);
      if (!answered) {
        last = answered.error();
        if (!passes(*last)) co_return *last;
        cluster.mark_stale();
        again.insert(again.end(), kept.begin(), kept.end());
        continue;
      }
      for (auto& query : *answered) {
        if (query.error == ErrorCode::none) {
          done.push_back(query);
          continue;
        }
        last = broker_error(query.error, to_text(query.at));
        if (!last->retriable) co_return *last;
        cluster.mark_stale();
        again.push_back(query);
      }
    }
    queries = std::move(again);
    if (!queries.empty()) (void)co_await cluster.loop().sleep(Milliseconds(cluster.settings().retry_backoff_ms));
  }
  co_return done;
}

namespace {

/// Runs `ask` against the group's coordinator until it succeeds, fails for good, or time is over. `ask` must not refer
/// to what may go away before it ends.
template <class T, class Ask>
Co<Result<T>> at_coordinator(Cluster& cluster, std::string group, Clock::TimePoint deadline, Ask ask,
                             bool again = true) {
  std::optional<Error> last;
  while (true) {
    if (cluster.loop().closing()) co_return failure(Trouble::invalid_state, "the client is closing");
    auto node = co_await cluster.find_coordinator(group, 0);
    if (node) {
      auto connection = co_await cluster.connection(*node, Lane::coordinator);
      if (connection) {
        const auto left = std::clamp<Clock::Duration>(deadline - cluster.loop().clock().now(), Milliseconds(1),
                                                      Milliseconds(cluster.settings().request_timeout_ms));
        Result<T> done = co_await ask(**connection, left);
        if (done || !passes(done.error())) co_return done;
        last = done.error();
      } else {
        last = connection.error();
      }
    } else {
      last = node.error();
      if (!passes(*last)) co_return *last;
    }
    const auto pause = Milliseconds(cluster.settings().retry_backoff_ms);
    if (!again || cluster.loop().clock().now() + pause >= deadline) co_return *last;
    (void)co_await cluster.loop().sleep(pause);
  }
}

Co<Result<void>> commit_once(Connection& connection, Clock::Duration timeout, const Membership& as,
                             const std::vector<TopicPartitionOffset>& offsets) {
  kafka::OffsetCommitRequest request;
  request.group_id = as.group;
  request.generation_id_or_member_epoch = as.generation;
  request.member_id = as.member_id;
  if (!as.instance_id.empty()) request.group_instance_id = as.instance_id;
  std::map<std::string, std::size_t> topics;
  for (const auto& offset : offsets) {
    const auto [at, added] = topics.try_emplace(offset.topic, request.topics.size());
    if (added) request.topics.emplace_back().name = offset.topic;
    auto& partition = request.topics[at->second].partitions.emplace_back();
    partition.partition_index = offset.partition;
    partition.committed_offset = offset.offset;
    partition.committed_metadata = offset.metadata;
  }
  constexpr std::int16_t by_name = 9;  // version 10 names topics by id
  auto answer = co_await connection.call<kafka::OffsetCommitResponse>(std::move(request), timeout, by_name);
  if (!answer) co_return answer.error();
  for (const auto& topic : answer->body.topics) {
    for (const auto& partition : topic.partitions) {
      if (partition.error_code != ErrorCode::none) {
        co_return broker_error(
            partition.error_code,
            "commit of " + topic.name + "-" + std::to_string(partition.partition_index) + " for group " + as.group);
      }
    }
  }
  co_return Result<void>();
}

Co<Result<std::vector<TopicPartitionOffset>>> committed_once(Connection& connection, Clock::Duration timeout,
                                                             const std::string& group,
                                                             const std::vector<TopicPartition>& partitions) {
  kafka::OffsetFetchRequest request;
  std::map<std::string, std::vector<std::int32_t>> topics;
  for (const auto& at : partitions) topics[at.topic].push_back(at.partition);
  request.group_id = group;
  request.topics.emplace();
  auto& asked = request.groups.emplace_back();
  asked.group_id = group;
  asked.topics.emplace();
  for (const auto& [name, indexes] : topics) {
    auto& old_way = request.topics->emplace_back();
    old_way.name = name;
    old_way.partition_indexes = indexes;
    auto& new_way = asked.topics->emplace_back();
    new_way.name = name;
    new_way.partition_indexes = indexes;
  }
  constexpr std::int16_t by_name = 9;
  auto answer = co_await connection.call<kafka::OffsetFetchResponse>(std::move(request), timeout, by_name);
  if (!answer) co_return answer.error();
  const auto what = "committed offsets of group " + group;
  if (answer->body.error_code != ErrorCode::none) co_return broker_error(answer->body.error_code, what);
  std::map<std::pair<std::string, std::int32_t>, TopicPartitionOffset> found;
  for (const auto& answered : answer->body.groups) {
    if (answered.error_code != ErrorCode::none) co_return broker_error(answered.error_code, what);
    for (const auto& topic : answered.topics) {
      for (const auto& one : topic.partitions) {
        if (one.error_code != ErrorCode::none) co_return broker_error(one.error_code, what + " in " + topic.name);
        found[{topic.name, one.partition_index}] = {topic.name, one.partition_index, one.committed_offset,
                                                    one.metadata.value_or("")};
      }
    }
  }
  for (const auto& topic : answer->body.topics) {
    for (const auto& one : topic.partitions) {
      if (one.error_code != ErrorCode::none) co_return broker_error(one.error_code, what + " in " + topic.name);
      found[{topic.name, one.partition_index}] = {topic.name, one.partition_index, one.committed_offset,
                                                  one.metadata.value_or("")};
    }
  }
  std::vector<TopicPartitionOffset> out;
  for (const auto& at : partitions) {
    const auto one = found.find({at.topic, at.partition});
    out.push_back(one == found.end() ? TopicPartitionOffset{at.topic, at.partition, -1, {}} : one->second);
  }
  co_return out;
}

}  // namespace

Co<Result<void>> commit_offsets(Cluster& cluster, Membership as, std::vector<TopicPartitionOffset> offsets,
                                Clock::TimePoint deadline, bool again) {
  if (offsets.empty()) co_return Result<void>();
  const auto group = as.group;
  auto ask = [&as, &offsets](Connection& connection, Clock::Duration timeout) {
    return commit_once(connection, timeout, as, offsets);
  };
  co_return co_await at_coordinator<void>(cluster, group, deadline, ask, again);
}

Co<Result<std::vector<TopicPartitionOffset>>> committed_offsets(Cluster& cluster, std::string group,
                                                                std::vector<TopicPartition> partitions,
                                                                Clock::TimePoint deadline) {
  const auto name = group;
  auto ask = [&group, &partitions](Connection& connection, Clock::Duration timeout) {
    return committed_once(connection, timeout, group, partitions);
  };
  co_return co_await at_coordinator<std::vector<TopicPartitionOffset>>(cluster, name, deadline, ask);
}

}  // namespace ciuic::client::core
