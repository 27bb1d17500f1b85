// v4 isolation · v5 log start offset · v7 sessions (KIP-227) · v9 leader epoch · v11 rack · v12 flexible, last fetched
// epoch (KIP-320/595) · v13 topic ids (KIP-516) · v15 replica state · v17 directory ids · v18 high watermark
// (KIP-1166).
#include "transport/kafka/messages/fetch.h"

#include <algorithm>
#include <set>

#include "broker/api/apis.h"
#include "broker/api/fetch_read.h"
#include "broker/api/fetch_sessions.h"

namespace ciuic::broker::api {
namespace {

using Request = kafka::FetchRequest;
using Response = kafka::FetchResponse;

constexpr std::int32_t no_session = 0;
constexpr std::int32_t final_epoch = -1;
constexpr std::int32_t initial_epoch = 0;

bool same(const FetchPartition& a, const std::string& topic, const kafka::TopicId& id, std::int32_t partition) {
  return a.partition.value == partition && (id.is_zero() ? a.topic == topic : a.topic_id == id);
}

std::vector<FetchPartition> wanted_of(const Request& request) {
  std::vector<FetchPartition> wanted;
  for (const auto& topic : request.topics) {
    for (const auto& partition : topic.partitions) {
      FetchPartition& part = wanted.emplace_back();
      part.topic = topic.topic;
      part.topic_id = topic.topic_id;
      part.partition = kafka::PartitionIndex(partition.partition);
      part.fetch_offset = kafka::Offset(partition.fetch_offset);
      part.current_leader_epoch = kafka::LeaderEpoch(partition.current_leader_epoch);
      part.last_fetched_epoch = kafka::LeaderEpoch(partition.last_fetched_epoch);
      part.max_bytes = partition.partition_max_bytes;
    }
  }
  return wanted;
}

/// Takes in what an incremental request adds, changes and forgets.
void update(FetchSession& session, const Request& request) {
  for (auto& part : wanted_of(request)) {
    const auto known = std::find_if(session.partitions.begin(), session.partitions.end(), [&](const FetchPartition& p) {
      return same(p, part.topic, part.topic_id, part.partition.value);
    });
    if (known == session.partitions.end()) {
      session.partitions.push_back(std::move(part));
    } else {
      part.told_high_watermark = known->told_high_watermark;
      part.told_last_stable = known->told_last_stable;
      part.told_log_start = known->told_log_start;
      part.told_error = known->told_error;
      *known = std::move(part);
    }
  }
  for (const auto& topic : request.forgotten_topics_data) {
    for (const auto partition : topic.partitions) {
      std::erase_if(session.partitions,
                    [&](const FetchPartition& p) { return same(p, topic.topic, topic.topic_id, partition); });
    }
  }
}

Response::PartitionData answer_of(const FetchPartition& wanted, FetchAnswer& got, kafka::Isolation isolation) {
  Response::PartitionData data;
  data.partition_index = wanted.partition.value;
  data.error_code = got.error;
  data.records = kafka::Records::none();
  data.aborted_transactions.reset();  // null tells read_uncommitted from a list that happens to be empty
  const bool unknown =
      got.error != ErrorCode::none && got.read.high_watermark.value == 0 && got.read.log_start_offset.value == 0;
  data.high_watermark = unknown ? -1 : got.read.high_watermark.value;
  data.last_stable_offset = unknown ? -1 : got.read.last_stable_offset.value;
  data.log_start_offset = unknown ? -1 : got.read.log_start_offset.value;
  if (got.diverging.leader_epoch.value >= 0) {
    data.diverging_epoch.epoch = got.diverging.leader_epoch.value;
    data.diverging_epoch.end_offset = got.diverging.end_offset.value;
  }
  if (isolation == kafka::Isolation::read_committed) {
    auto& aborted = data.aborted_transactions.emplace();
    for (const auto& transaction : got.read.aborted)
      aborted.push_back({transaction.producer_id.value, transaction.first_offset.value});
  }
  for (std::size_t i = 0; i < got.read.spans.size(); ++i) data.records.add(got.read.spans[i], nullptr);
  for (auto& pin : got.read.pins) data.records.add({}, std::move(pin));
  return data;
}

/// In a session, only what the client does not know yet is answered.
bool worth_telling(FetchPartition& part, const Response::PartitionData& data) {
  const bool changed = !data.records.empty() || data.error_code != part.told_error ||
                       data.error_code != ErrorCode::none || data.high_watermark != part.told_high_watermark.value ||
                       data.last_stable_offset != part.told_last_stable.value ||
                       data.log_start_offset != part.told_log_start.value || data.diverging_epoch.epoch >= 0;
  part.told_error = data.error_code;
  part.told_high_watermark = kafka::Offset(data.high_watermark);
  part.told_last_stable = kafka::Offset(data.last_stable_offset);
  part.told_log_start = kafka::Offset(data.log_start_offset);
  return changed;
}

void add(Response& response, const FetchPartition& part, Response::PartitionData data) {
  auto& topics = response.responses;
  if (topics.empty() || topics.back().topic != part.topic || topics.back().topic_id != part.topic_id) {
    topics.push_back({part.topic, part.topic_id, {}});
  }
  topics.back().partitions.push_back(std::move(data));
}

/// Rotates the session so that partitions which gave data come last next time.
void rotate(FetchSession& session,
            const std::set<std::pair<kafka::TopicId, std::pair<std::string, std::int32_t>>>& served) {
  std::stable_partition(session.partitions.begin(), session.partitions.end(), [&](const FetchPartition& part) {
    return !served.contains({part.topic_id, {part.topic, part.partition.value}});
  });
}

}  // namespace

Awaitable<Response> fetch(RequestContext& context, Request request) {
  auto& sessions = *context.broker.fetch_sessions;
  const bool by_id = context.version() >= 13;
  Response response;
  std::shared_ptr<FetchSession> session;
  std::vector<FetchPartition> wanted;
  bool full = true;

  if (request.session_epoch == final_epoch || request.session_epoch == initial_epoch) {
    if (request.session_id != no_session) sessions.remove(request.session_id);
    wanted = wanted_of(request);
    if (request.session_epoch == initial_epoch && context.version() >= 7) session = sessions.create(wanted, by_id);
  } else {
    session = sessions.find(request.session_id);
    if (!session) {
      response.error_code = ErrorCode::fetch_session_id_not_found;
      co_return response;
    }
    const std::lock_guard lock(session->mutex);
    if (session->next_epoch != request.session_epoch) {
      response.error_code = ErrorCode::invalid_fetch_session_epoch;
      co_return response;
    }
    if (session->by_topic_id != by_id) {
      response.error_code = ErrorCode::fetch_session_topic_id_error;
      co_return response;
    }
    session->next_epoch = session->next_epoch == std::numeric_limits<std::int32_t>::max() ? 1 : session->next_epoch + 1;
    update(*session, request);
    wanted = session->partitions;
    full = false;
  }
  response.session_id = session ? session->id : no_session;

  FetchLimits limits;
  limits.min_bytes = request.min_bytes;
  limits.max_bytes = std::clamp(request.max_bytes, 0, context.broker.config.fetch_bytes_max);
  limits.max_wait_ms = request.max_wait_ms;
  limits.isolation =
      request.isolation_level == 1 ? kafka::Isolation::read_committed : kafka::Isolation::read_uncommitted;
  auto answers = co_await read_partitions(context, wanted, limits);

  std::set<std::pair<kafka::TopicId, std::pair<std::string, std::int32_t>>> served;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    auto data = answer_of(wanted[i], answers[i], limits.isolation);
    if (!data.records.empty()) served.insert({wanted[i].topic_id, {wanted[i].topic, wanted[i].partition.value}});
    const bool tell = worth_telling(wanted[i], data);
    if (full || tell) add(response, wanted[i], std::move(data));
  }
  if (session) {
    const std::lock_guard lock(session->mutex);
    // The request held a copy in the session's order; a session has one request at a time, its epoch sees to that.
    for (std::size_t i = 0; i < wanted.size() && i < session->partitions.size(); ++i) {
      auto& known = session->partitions[i];
      if (same(known, wanted[i].topic, wanted[i].topic_id, wanted[i].partition.value)) known = wanted[i];
    }
    rotate(*session, served);
  }
  co_return response;
}

}  // namespace ciuic::broker::api
