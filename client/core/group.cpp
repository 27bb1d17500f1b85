// Membership of a classic consumer group: join, sync, heartbeats, leave (KIP-345 static members, KIP-394 two-step
// join).
#include "client/core/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "transport/base/log.h"
#include "transport/kafka/messages/consumer_protocol.h"
#include "transport/kafka/messages/heartbeat.h"
#include "transport/kafka/messages/join_group.h"
#include "transport/kafka/messages/leave_group.h"
#include "transport/kafka/messages/sync_group.h"
#include "transport/kafka/wire.h"

namespace ciuic::client::core {

using kafka::ErrorCode;

namespace {

constexpr const char* protocol_type = "consumer";
constexpr std::int16_t subscription_version = 1;

/// The embedded consumer protocol: a version, then the message.
template <class M>
Buffer embed(const M& message, std::int16_t version) {
  Buffer out(2);
  kafka::store_be<std::int16_t>(out.data(), version);
  const auto body = kafka::encode(message, version).flatten();
  out.insert(out.end(), body.begin(), body.end());
  return out;
}
template <class M>
std::optional<M> extract(Bytes bytes) {
  if (bytes.size() < 2) return std::nullopt;
  const auto version = std::min(kafka::load_be<std::int16_t>(bytes.data()), M::valid_versions.max);
  if (version < 0) return std::nullopt;
  auto message = kafka::decode<M>(bytes.subspan(2), version);
  if (!message) return std::nullopt;
  return std::move(*message);
}

}  // namespace

GroupMember::GroupMember(Cluster& cluster, const ConsumerSettings& settings, GroupHooks hooks)
    : cluster_(cluster), settings_(settings), hooks_(std::move(hooks)), changed_(cluster.loop()) {}

void GroupMember::subscribe(std::vector<std::string> topics) {
  asked_ = std::move(topics);
  ++subscription_;
  failed_ = false;
  changed_.notify();
}

bool GroupMember::poll_is_late() const {
  return cluster_.loop().clock().now() - hooks_.last_poll() > Milliseconds(settings_.max_poll_interval_ms);
}

void GroupMember::forget_membership() {
  member_id_.clear();
  generation_ = -1;
  is_leader_ = false;
}

Co<void> GroupMember::run() {
  running_ = true;
  const auto pause = Milliseconds(settings_.retry_backoff_ms);
  while (!stopped()) {
    if (asked_.empty() || failed_) {
      if (generation_ >= 0) {
        co_await say_goodbye(cluster_.loop().clock().now() + Milliseconds(settings_.request_timeout_ms));
        forget_membership();
        owned_.clear();
      }
      (void)co_await changed_.wait(Milliseconds(1000));
      continue;
    }
    // Eager: what we hold is given back before we ask for more.
    if (!owned_.empty()) co_await hand_over(GroupEvent::revoked);
    if (stopped() || asked_.empty()) continue;
    if (poll_is_late()) {
      // Whoever does not poll cannot take partitions: join when it comes back.
      (void)co_await changed_.wait(Milliseconds(100));
      continue;
    }
    joined_subscription_ = subscription_;
    auto looked_up = co_await look_up_topics();
    if (!looked_up) {
      if (!passes(looked_up.error())) {
        failed_ = true;
        hooks_.fail(looked_up.error());
      }
      (void)co_await cluster_.loop().sleep(pause);
      continue;
    }
    const auto next = co_await join();
    if (next == Next::over) {
      failed_ = true;
      continue;
    }
    if (next == Next::again) {
      (void)co_await cluster_.loop().sleep(pause);
      continue;
    }
    co_await stay();
  }
  running_ = false;
  changed_.notify();
}

Co<Result<void>> GroupMember::look_up_topics() {
  looked_up_at_ = cluster_.loop().clock().now();
  std::vector<std::string> names;
  std::vector<std::regex> patterns;
  for (const auto& one : asked_) {
    if (!one.empty() && one.front() == '^') {
      patterns.emplace_back(one);
    } else {
      names.push_back(one);
    }
  }
  if (!patterns.empty()) {
    auto all = co_await cluster_.refresh_all();
    if (!all) co_return all.error();
    for (const auto& [name, topic] : cluster_.topics()) {
      if (topic.error != ErrorCode::none || name.starts_with("__")) continue;
      if (std::any_of(patterns.begin(), patterns.end(),
                      [&name = name](const std::regex& pattern) { return std::regex_match(name, pattern); }))
        names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  topics_ = names;
  if (names.empty()) co_return Result<void>();
  auto refreshed = co_await cluster_.refresh(names);
  if (!refreshed) co_return refreshed.error();
  for (const auto& name : names) {
    const auto* const topic = cluster_.topic(name);
    if (topic != nullptr && topic->error != ErrorCode::none && !kafka::retriable(topic->error))
      co_return broker_error(topic->error, "topic " + name);
  }
  co_return Result<void>();
}

std::map<std::string, std::int32_t> GroupMember::partition_counts(const std::vector<std::string>& topics) const {
  std::map<std::string, std::int32_t> counts;
  for (const auto& name : topics) {
    const auto* const topic = cluster_.topic(name);
    const bool known = topic != nullptr && topic->error == ErrorCode::none;
    counts[name] = known ? static_cast<std::int32_t>(topic->partitions.size()) : 0;
  }
  return counts;
}

Co<Result<std::shared_ptr<Connection>>> GroupMember::coordinator() {
  if (!coordinator_) {
    auto found = co_await cluster_.find_coordinator(settings_.group_id, 0);
    if (!found) co_return found.error();
    coordinator_ = *found;
  }
  auto connection = co_await cluster_.connection(*coordinator_, Lane::coordinator);
  if (!connection) coordinator_.reset();
  co_return connection;
}

Co<GroupMember::Next> GroupMember::react(ErrorCode code, const char* where) {
  switch (code) {
    case ErrorCode::unknown_member_id:
    case ErrorCode::illegal_generation:
      forget_membership();
      if (!owned_.empty()) co_await hand_over(GroupEvent::lost);
      co_return Next::again;
    case ErrorCode::rebalance_in_progress:
      co_return Next::again;
    case ErrorCode::not_coordinator:
    case ErrorCode::coordinator_not_available:
    case ErrorCode::coordinator_load_in_progress:
      coordinator_.reset();
      co_return Next::again;
    default:
      break;
  }
  if (kafka::retriable(code)) co_return Next::again;
  forget_membership();
  if (!owned_.empty()) co_await hand_over(GroupEvent::lost);
  hooks_.fail(broker_error(code, fmt::format("group {}: {}", settings_.group_id, where)));
  co_return Next::over;
}

Co<GroupMember::Next> GroupMember::join() {
  auto connection = co_await coordinator();
  if (!connection) {
    if (passes(connection.error())) co_return Next::again;
    hooks_.fail(connection.error());
    co_return Next::over;
  }
  kafka::ConsumerProtocolSubscription subscription;
  subscription.topics = topics_;
  kafka::JoinGroupRequest request;
  request.group_id = settings_.group_id;
  request.session_timeout_ms = static_cast<std::int32_t>(settings_.session_timeout_ms);
  request.rebalance_timeout_ms = static_cast<std::int32_t>(settings_.max_poll_interval_ms);
  request.member_id = member_id_;
  if (!settings_.group_instance_id.empty()) request.group_instance_id = settings_.group_instance_id;
  request.protocol_type = protocol_type;
  for (const auto& name : settings_.assignors) {
    auto& protocol = request.protocols.emplace_back();
    protocol.name = name;
    protocol.metadata = embed(subscription, subscription_version);
  }
  // The coordinator answers when all members have joined: at most the rebalance timeout.
  const auto timeout = Milliseconds(settings_.max_poll_interval_ms + 5000);
  auto answer = co_await (*connection)->call<kafka::JoinGroupResponse>(std::move(request), timeout);
  if (!answer) {
    coordinator_.reset();
    if (passes(answer.error())) co_return Next::again;
    hooks_.fail(answer.error());
    co_return Next::over;
  }
  auto& joined = answer->body;
  if (joined.error_code == ErrorCode::member_id_required) {
    member_id_ = joined.member_id;
    co_return co_await join();
  }
  if (joined.error_code != ErrorCode::none) co_return co_await react(joined.error_code, "join");
  member_id_ = joined.member_id;
  generation_ = joined.generation_id;
  is_leader_ = joined.leader == joined.member_id;
  const auto protocol = joined.protocol_name.value_or("");
  std::vector<std::pair<std::string, Buffer>> assignments;
  if (is_leader_ && !joined.skip_assignment) {
    std::vector<Member> members;
    for (auto& one : joined.members) {
      auto theirs = extract<kafka::ConsumerProtocolSubscription>(one.metadata);
      if (!theirs)
        log::warn("client", "member with an unreadable subscription gets no partitions group={} member={}",
                  settings_.group_id, one.member_id);
      members.push_back({one.member_id, one.group_instance_id.value_or(""),
                         theirs ? std::move(theirs->topics) : std::vector<std::string>{}});
    }
    auto shared_out = co_await lead(protocol, std::move(members));
    if (!shared_out) co_return Next::again;
    assignments = std::move(*shared_out);
  }
  co_return co_await sync(protocol, std::move(assignments));
}

Co<Result<std::vector<std::pair<std::string, Buffer>>>> GroupMember::lead(const std::string& protocol,
                                                                          std::vector<Member> members) {
  std::set<std::string> names;
  for (const auto& member : members) names.insert(member.topics.begin(), member.topics.end());
  const std::vector<std::string> all(names.begin(), names.end());
  // Others may be subscribed to topics that we are not.
  auto refreshed = co_await cluster_.refresh(all);
  if (!refreshed) co_return refreshed.error();
  led_counts_ = partition_counts(all);
  std::vector<std::pair<std::string, Buffer>> out;
  for (auto& [id, partitions] : assign_by(protocol, std::move(members), led_counts_)) {
    kafka::ConsumerProtocolAssignment assignment;
    for (const auto& at : partitions) {
      if (assignment.assigned_partitions.empty() || assignment.assigned_partitions.back().topic != at.topic)
        assignment.assigned_partitions.emplace_back().topic = at.topic;
      assignment.assigned_partitions.back().partitions.push_back(at.partition);
    }
    out.emplace_back(id, embed(assignment, subscription_version));
  }
  co_return out;
}

Co<GroupMember::Next> GroupMember::sync(const std::string& protocol,
                                        std::vector<std::pair<std::string, Buffer>> assignments) {
  auto connection = co_await coordinator();
  if (!connection) co_return Next::again;
  kafka::SyncGroupRequest request;
  request.group_id = settings_.group_id;
  request.generation_id = generation_;
  request.member_id = member_id_;
  if (!settings_.group_instance_id.empty()) request.group_instance_id = settings_.group_instance_id;
  request.protocol_type = protocol_type;
  request.protocol_name = protocol;
  for (auto& [id, bytes] : assignments) {
    auto& one = request.assignments.emplace_back();
    one.member_id = id;
    one.assignment = std::move(bytes);
  }
  const auto timeout = Milliseconds(settings_.max_poll_interval_ms + 5000);
  auto answer = co_await (*connection)->call<kafka::SyncGroupResponse>(std::move(request), timeout);
  if (!answer) {
    coordinator_.reset();
    co_return Next::again;
  }
  if (answer->body.error_code != ErrorCode::none) co_return co_await react(answer->body.error_code, "sync");
  std::vector<TopicPartition> ours;
  if (!answer->body.assignment.empty()) {
    const auto assignment = extract<kafka::ConsumerProtocolAssignment>(answer->body.assignment);
    if (!assignment) {
      hooks_.fail(
          failure(Trouble::corrupt, "group " + settings_.group_id + ": the leader's assignment cannot be read"));
      co_return Next::over;
    }
    for (const auto& topic : assignment->assigned_partitions) {
      for (const auto index : topic.partitions) ours.push_back({topic.topic, index});
    }
  }
  log::debug("client", "joined group={} generation={} leader={} partitions={}", settings_.group_id, generation_,
             is_leader_, ours.size());
  owned_ = std::move(ours);
  handing_over_ = true;
  hooks_.tell(GroupEvent::assigned, owned_);
  co_return Next::joined;
}

Co<ErrorCode> GroupMember::heartbeat() {
  auto connection = co_await coordinator();
  if (!connection) co_return ErrorCode::coordinator_not_available;
  kafka::HeartbeatRequest request;
  request.group_id = settings_.group_id;
  request.generation_id = generation_;
  request.member_id = member_id_;
  if (!settings_.group_instance_id.empty()) request.group_instance_id = settings_.group_instance_id;
  auto answer = co_await (*connection)
                    ->call<kafka::HeartbeatResponse>(std::move(request), Milliseconds(settings_.request_timeout_ms));
  if (!answer) co_return ErrorCode::coordinator_not_available;
  co_return answer->body.error_code;
}

/// Looks again for topics that a pattern or a name finds now, and for partitions that were added: soon while something
/// is wanting, else as often as metadata ages. True: the group must share out anew.
Co<bool> GroupMember::topics_changed() {
  const auto before = topics_;
  const auto known = partition_counts(topics_);
  const bool wanting =
      known.empty() || std::any_of(known.begin(), known.end(), [](const auto& one) { return one.second == 0; });
  const auto age = Milliseconds(wanting ? std::min<std::int64_t>(settings_.metadata_max_age_ms, 1000)
                                        : settings_.metadata_max_age_ms);
  const auto now = cluster_.loop().clock().now();
  if (now - looked_up_at_ >= age) {
    auto looked_up = co_await look_up_topics();
    if (!looked_up)
      log::debug("client", "looking for topics failed group={} error={}", settings_.group_id, looked_up.error().text);
  }
  if (topics_ != before) co_return true;
  if (!is_leader_) co_return false;
  std::vector<std::string> names;
  for (const auto& [name, count] : led_counts_) names.push_back(name);
  co_return partition_counts(names) != led_counts_;
}

/// Between two rebalances.
Co<void> GroupMember::stay() {
  auto last_answer = cluster_.loop().clock().now();
  while (!stopped()) {
    (void)co_await changed_.wait(Milliseconds(settings_.heartbeat_interval_ms));
    if (stopped() || asked_.empty() || subscription_ != joined_subscription_) co_return;
    if (poll_is_late()) {
      log::warn("client", "no poll for max.poll.interval.ms, leaving the group group={} interval_ms={}",
                settings_.group_id, settings_.max_poll_interval_ms);
      co_await say_goodbye(cluster_.loop().clock().now() + Milliseconds(settings_.request_timeout_ms));
      forget_membership();
      co_await hand_over(GroupEvent::lost);
      co_return;
    }
    const auto code = co_await heartbeat();
    const auto now = cluster_.loop().clock().now();
    if (code == ErrorCode::coordinator_not_available || code == ErrorCode::coordinator_load_in_progress ||
        code == ErrorCode::not_coordinator) {
      coordinator_.reset();
      if (now - last_answer > Milliseconds(settings_.session_timeout_ms)) {
        // The coordinator, wherever it is, has given our partitions to others by now.
        forget_membership();
        co_await hand_over(GroupEvent::lost);
        co_return;
      }
      (void)co_await cluster_.loop().sleep(Milliseconds(settings_.retry_backoff_ms));
      continue;
    }
    last_answer = now;
    if (code == ErrorCode::none) {
      if (co_await topics_changed()) co_return;
      continue;
    }
    const auto next = co_await react(code, "heartbeat");
    if (next == Next::over) failed_ = true;
    co_return;
  }
}

Co<void> GroupMember::hand_over(GroupEvent event) {
  // An assignment that was never taken up needs no giving back, but the poller must have seen it first.
  const auto until = cluster_.loop().clock().now() + Milliseconds(settings_.max_poll_interval_ms);
  const auto wait_until_dealt_with = [&]() -> Co<void> {
    while (handing_over_ && !leaving_ && !cluster_.loop().closing() && cluster_.loop().clock().now() < until) {
      (void)co_await changed_.wait(Milliseconds(settings_.heartbeat_interval_ms));
      // While the program winds up its work the coordinator must not think us dead.
      if (handing_over_ && generation_ >= 0) (void)co_await heartbeat();
    }
  };
  co_await wait_until_dealt_with();
  if (stopped()) co_return;
  handing_over_ = true;
  const auto held = std::exchange(owned_, {});
  hooks_.tell(event, held);
  co_await wait_until_dealt_with();
  if (handing_over_ && event == GroupEvent::revoked && poll_is_late() && !stopped()) {
    // Whoever polls too late to give its partitions back has lost them.
    co_await say_goodbye(cluster_.loop().clock().now() + Milliseconds(settings_.request_timeout_ms));
    forget_membership();
    hooks_.tell(GroupEvent::lost, held);
  }
}

Co<void> GroupMember::say_goodbye(Clock::TimePoint deadline) {
  // A static member that leaves comes back under the same name (KIP-345): nobody is told.
  if (member_id_.empty() || !coordinator_ || !settings_.group_instance_id.empty()) co_return;
  // Not behind a join that may wait for long.
  auto connection = co_await cluster_.connection(*coordinator_, Lane::control);
  if (!connection) co_return;
  kafka::LeaveGroupRequest request;
  request.group_id = settings_.group_id;
  request.member_id = member_id_;
  auto& member = request.members.emplace_back();
  member.member_id = member_id_;
  member.reason = "the consumer is being closed";
  const auto left = deadline - cluster_.loop().clock().now();
  if (left <= Clock::Duration::zero()) co_return;
  auto answer = co_await (*connection)->call<kafka::LeaveGroupResponse>(std::move(request), left);
  if (!answer)
    log::debug("client", "leaving the group was not answered group={} error={}", settings_.group_id,
               answer.error().text);
}

Co<void> GroupMember::leave(Clock::TimePoint deadline) {
  leaving_ = true;
  changed_.notify();
  // A join under way ends when its connection does.
  co_await say_goodbye(deadline);
}

}  // namespace ciuic::client::core
