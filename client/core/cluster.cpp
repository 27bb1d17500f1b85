// Connections by broker and lane, and the cluster's metadata.
#include "client/core/cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/log.h"
#include "transport/kafka/messages/find_coordinator.h"
#include "transport/kafka/messages/metadata.h"

namespace ciuic::client::core {

namespace {
/// A broker that is started anew is back sooner.
constexpr std::chrono::seconds unreached_patience{2};
}  // namespace

Co<Result<std::shared_ptr<Connection>>> Cluster::link(std::pair<Address, Lane> key) {
  const auto give_up = loop_.clock().now() + Milliseconds(settings_.connect_timeout_ms);
  while (true) {
    if (closed_) co_return *closed_;
    if (loop_.closing()) co_return failure(Trouble::invalid_state, "the client is closing");
    auto& entry = links_[key];
    if (entry.connection && entry.connection->usable()) co_return entry.connection;
    const auto now = loop_.clock().now();
    if (entry.dialling) {
      if (now >= give_up)
        co_return failure(Trouble::timed_out,
                          fmt::format("{}:{}: connecting takes too long", key.first.host, key.first.port), true);
      (void)co_await changed_.wait(Milliseconds(100));
      continue;
    }
    if (entry.not_before > now) {
      // A failure that everyone has just seen is answered at once: the caller decides whether to come again.
      if (entry.last_error) co_return *entry.last_error;
    }
    const auto dialled = std::make_shared<Connection>(loop_, key.first, settings_);
    entry.dialling = dialled;
    auto started = co_await dialled->start();
    auto& after = links_[key];
    after.dialling.reset();
    if (closed_) {
      dialled->close(*closed_);
      co_return *closed_;
    }
    if (started) {
      after.connection = dialled;
      after.backoff_ms = 0;
      after.last_error.reset();
    } else {
      after.backoff_ms =
          std::min(std::max(settings_.reconnect_backoff_ms, after.backoff_ms * 2), settings_.reconnect_backoff_max_ms);
      after.not_before = loop_.clock().now() + Milliseconds(after.backoff_ms);
      after.last_error = started.error();
    }
    changed_.notify();
    if (!started) co_return started.error();
    co_return dialled;
  }
}

Co<Result<std::shared_ptr<Connection>>> Cluster::connection(std::int32_t node, Lane lane) {
  const auto found = brokers_.find(node);
  if (found == brokers_.end()) {
    stale_ = true;
    co_return failure(Trouble::disconnected, fmt::format("broker {} is not in the cluster's metadata", node), true);
  }
  const std::pair<Address, Lane> key{found->second, lane};
  auto got = co_await link(key);
  if (!got) stale_ = true;
  co_return got;
}

Co<Result<std::shared_ptr<Connection>>> Cluster::any() {
  std::vector<Address> candidates;
  for (const auto& [key, entry] : links_) {
    if (key.second == Lane::control && entry.connection && entry.connection->usable()) candidates.push_back(key.first);
  }
  for (const auto& [node, address] : brokers_) candidates.push_back(address);
  candidates.insert(candidates.end(), settings_.bootstrap.begin(), settings_.bootstrap.end());
  std::string tried;
  std::vector<Address> seen;
  for (const auto& address : candidates) {
    if (std::find(seen.begin(), seen.end(), address) != seen.end()) continue;
    seen.push_back(address);
    const std::pair<Address, Lane> key{address, Lane::control};
    auto got = co_await link(key);
    if (got) {
      reached();
      co_return got;
    }
    if (!tried.empty()) tried += "; ";
    tried += got.error().text;
  }
  unreached(tried);
  co_return failure(Trouble::disconnected, "no broker can be reached: " + tried, true);
}

void Cluster::unreached(const std::string& tried) {
  const auto now = loop_.clock().now();
  if (!unreached_since_) unreached_since_ = now;
  if (unreached_told_ || now - *unreached_since_ < unreached_patience) return;
  unreached_told_ = true;
  log::warn("client", "no broker can be reached, trying again tried=\"{}\"", tried);
}

void Cluster::reached() {
  if (unreached_told_)
    log::warn("client", "brokers can be reached again after_s={}",
              std::chrono::duration_cast<std::chrono::seconds>(loop_.clock().now() - *unreached_since_).count());
  unreached_since_.reset();
  unreached_told_ = false;
}

Co<Result<void>> Cluster::refresh(std::vector<std::string> topics) {
  interest_.insert(topics.begin(), topics.end());
  std::optional<std::vector<std::string>> all(std::in_place, interest_.begin(), interest_.end());
  co_return co_await ask(std::move(all));
}

Co<Result<void>> Cluster::refresh_all() {
  std::optional<std::vector<std::string>> none;
  co_return co_await ask(std::move(none));
}

Co<Result<void>> Cluster::ask(std::optional<std::vector<std::string>> topics) {
  auto connection = co_await any();
  if (!connection) co_return connection.error();
  kafka::MetadataRequest request;
  request.allow_auto_topic_creation = settings_.auto_create_topics;
  if (topics) {
    for (const auto& name : *topics) {
      kafka::MetadataRequest::MetadataRequestTopic topic;
      topic.name = name;
      request.topics->push_back(std::move(topic));
    }
  } else {
    request.topics.reset();
  }
  auto answer = co_await (*connection)
                    ->call<kafka::MetadataResponse>(std::move(request), Milliseconds(settings_.request_timeout_ms));
  if (!answer) co_return answer.error();
  auto& body = answer->body;
  if (body.brokers.empty()) co_return failure(Trouble::disconnected, "the cluster has no brokers yet", true);
  brokers_.clear();
  for (const auto& broker : body.brokers) {
    if (broker.port > 0 && broker.port < 65536)
      brokers_[broker.node_id] = Address{broker.host, static_cast<std::uint16_t>(broker.port)};
  }
  if (!topics) topics_.clear();
  for (auto& from : body.topics) {
    if (!from.name) continue;
    Topic topic;
    topic.error = from.error_code;
    topic.id = from.topic_id;
    std::sort(from.partitions.begin(), from.partitions.end(),
              [](const auto& a, const auto& b) { return a.partition_index < b.partition_index; });
    for (std::size_t i = 0; i < from.partitions.size(); ++i) {
      const auto& one = from.partitions[i];
      if (one.partition_index != static_cast<std::int32_t>(i)) break;  // a hole: what follows cannot be numbered
      topic.partitions.push_back({one.leader_id, one.leader_epoch, one.replica_nodes, one.isr_nodes});
    }
    topics_[*from.name] = std::move(topic);
  }
  refreshed_at_ = loop_.clock().now();
  stale_ = false;
  co_return Result<void>();
}

Co<Result<std::int32_t>> Cluster::find_coordinator(std::string key, std::int8_t type) {
  auto connection = co_await any();
  if (!connection) co_return connection.error();
  kafka::FindCoordinatorRequest request;
  request.key = key;
  request.key_type = type;
  request.coordinator_keys.push_back(key);
  auto answer =
      co_await (*connection)
          ->call<kafka::FindCoordinatorResponse>(std::move(request), Milliseconds(settings_.request_timeout_ms));
  if (!answer) co_return answer.error();
  kafka::FindCoordinatorResponse::Coordinator found;
  if (!answer->body.coordinators.empty()) {
    found = answer->body.coordinators.front();
  } else {
    found.node_id = answer->body.node_id;
    found.host = answer->body.host;
    found.port = answer->body.port;
    found.error_code = answer->body.error_code;
    found.error_message = answer->body.error_message;
  }
  if (found.error_code != kafka::ErrorCode::none) {
    co_return broker_error(found.error_code,
                           (type == 0 ? "coordinator of group " : "coordinator of transactional id ") + key,
                           found.error_message.value_or(""));
  }
  if (found.port <= 0 || found.port > 65535)
    co_return failure(Trouble::disconnected, "a coordinator without an address", true);
  brokers_[found.node_id] = Address{found.host, static_cast<std::uint16_t>(found.port)};
  co_return found.node_id;
}

const Topic* Cluster::topic(const std::string& name) const {
  const auto found = topics_.find(name);
  return found == topics_.end() ? nullptr : &found->second;
}

std::int32_t Cluster::leader(const std::string& name, std::int32_t partition) const {
  const auto* const found = topic(name);
  if (found == nullptr || partition < 0 || static_cast<std::size_t>(partition) >= found->partitions.size()) return -1;
  return found->partitions[static_cast<std::size_t>(partition)].leader;
}

void Cluster::keep_only(const std::set<std::string>& names) { interest_ = names; }

void Cluster::close(const Error& why) {
  closed_ = why;
  for (auto& [key, entry] : links_) {
    if (entry.connection) entry.connection->close(why);
    if (const auto dialling = entry.dialling) dialling->close(why);
  }
  changed_.notify();
}

}  // namespace ciuic::client::core
