// v2 null topics are all · v5 leader epoch (KIP-320) · v6 flexible · v7 require stable (KIP-447) · v8 several groups
// (KIP-709) · v9 member id and epoch (KIP-848) · v10 topic ids.
#include "transport/kafka/messages/offset_fetch.h"

#include <algorithm>

#include "broker/api/group_call.h"

namespace ciuic::broker::api {
namespace {

using Request = kafka::OffsetFetchRequest;
using Response = kafka::OffsetFetchResponse;
using Topics = Response::OffsetFetchResponseTopics;

constexpr std::int16_t several_groups = 8;
constexpr std::int16_t by_topic_id = 10;
constexpr std::int16_t top_level_error = 2;

Topics refuse(const Request::OffsetFetchRequestTopics& topic, ErrorCode code) {
  Topics out;
  out.name = topic.name;
  out.topic_id = topic.topic_id;
  for (const auto index : topic.partition_indexes) {
    auto& partition = out.partitions.emplace_back();
    partition.partition_index = index;
    partition.committed_offset = -1;
    partition.metadata = "";
    partition.error_code = code;
  }
  return out;
}

/// One group: what may be asked, is asked; the rest is refused topic by topic.
Awaitable<Response::OffsetFetchResponseGroup> fetch_one(RequestContext& context, Request::OffsetFetchRequestGroup group,
                                                        bool require_stable) {
  Response::OffsetFetchResponseGroup answer;
  answer.group_id = group.group_id;
  if (!may(context, Operation::describe, group.group_id)) {
    answer.error_code = ErrorCode::group_authorization_failed;
    co_return answer;
  }
  const auto image = context.image();
  const bool by_id = context.version() >= by_topic_id;
  const bool all = !group.topics;
  std::vector<Topics> refused;
  if (!all) {
    std::vector<Request::OffsetFetchRequestTopics> asked;
    for (auto& topic : *group.topics) {
      const auto* known = by_id ? image->topic(topic.topic_id) : nullptr;
      if (by_id && known == nullptr) {
        refused.push_back(refuse(topic, ErrorCode::unknown_topic_id));
        continue;
      }
      if (by_id) topic.name = known->name;
      if (context.allowed(Operation::describe, Resource::topic, topic.name)) {
        asked.push_back(std::move(topic));
      } else {
        refused.push_back(refuse(topic, ErrorCode::topic_authorization_failed));
      }
    }
    group.topics = std::move(asked);
  }
  answer = co_await await_callback<Response::OffsetFetchResponseGroup>(
      [&](auto callback) { context.broker.groups->fetch(std::move(group), require_stable, std::move(callback)); });
  if (answer.error_code != ErrorCode::none) co_return answer;
  if (all) {
    const auto hidden = [&](Topics& topic) {
      if (!context.allowed(Operation::describe, Resource::topic, topic.name)) return true;
      const auto* known = image->topic(topic.name);
      if (known != nullptr) topic.topic_id = known->id;
      return by_id && known == nullptr;
    };
    answer.topics.erase(std::remove_if(answer.topics.begin(), answer.topics.end(), hidden), answer.topics.end());
  }
  std::move(refused.begin(), refused.end(), std::back_inserter(answer.topics));
  co_return answer;
}

/// v1–v7 have one group at the top; v1 has errors only beside partitions.
Response single(Response::OffsetFetchResponseGroup group, const Request& request, std::int16_t version) {
  Response response;
  response.error_code = group.error_code;
  for (auto& topic : group.topics) {
    auto& out = response.topics.emplace_back();
    out.name = std::move(topic.name);
    for (auto& partition : topic.partitions) {
      out.partitions.push_back({partition.partition_index, partition.committed_offset, partition.committed_leader_epoch,
                                std::move(partition.metadata), partition.error_code});
    }
  }
  if (group.error_code == ErrorCode::none || version >= top_level_error || !request.topics) return response;
  for (const auto& topic : *request.topics) {
    auto& out = response.topics.emplace_back();
    out.name = topic.name;
    for (const auto index : topic.partition_indexes) out.partitions.push_back({index, -1, -1, "", group.error_code});
  }
  return response;
}

}  // namespace

Awaitable<Response> offset_fetch(RequestContext& context, Request request) {
  if (context.version() < several_groups) {
    Request::OffsetFetchRequestGroup group;
    group.group_id = request.group_id;
    group.topics.reset();
    if (request.topics) {
      auto& topics = group.topics.emplace();
      for (const auto& topic : *request.topics) {
        auto& out = topics.emplace_back();
        out.name = topic.name;
        out.partition_indexes = topic.partition_indexes;
      }
    }
    auto answer = co_await fetch_one(context, std::move(group), request.require_stable);
    co_return single(std::move(answer), request, context.version());
  }
  Response response;
  for (auto& group : request.groups)
    response.groups.push_back(co_await fetch_one(context, std::move(group), request.require_stable));
  co_return response;
}

}  // namespace ciuic::broker::api
