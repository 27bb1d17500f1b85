// The loop's look at all partitions: which broker must be asked what. One question a partition at a time.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "client/core/consumer_impl.h"
#include "transport/base/log.h"

namespace ciuic::client {

using core::Assigned;
using core::Co;
using core::failure;
using core::NotOneSided;
using core::OffsetQuery;
using kafka::ErrorCode;

namespace {
/// While a topic may still be coming into being (auto-creation, a broker that restarts) its absence is no error.
constexpr auto unknown_patience = std::chrono::seconds(3);
/// Between looks that nothing asked for: while something is due at a time of its own, and while all that is wanted is
/// an answer, which asks for a look itself.
constexpr auto look_around = Milliseconds(100), look_at_rest = Milliseconds(1000);
/// For more partitions that come to their end, while the program has others to read.
constexpr Milliseconds tails_wait{1};
}  // namespace

Co<void> Consumer::Impl::drive() {
  while (!loop_.closing()) {
    const bool at_rest = plan();
    (void)co_await plan_again_.wait(at_rest ? look_at_rest : look_around);
  }
}

Co<void> Consumer::Impl::plan_soon() {
  (void)co_await loop_.sleep(tails_wait);
  told_soon_.store(false);
  plan_again_.notify();
}

/// Lock held.
void Consumer::Impl::wake_poll() {
  news_ = true;
  ready_.notify_all();
}

bool Consumer::Impl::plan() {
  Plans plans;
  const auto now = loop_.clock().now();
  std::vector<std::string> topics;
  bool at_rest = true;
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [at, one] : assigned_) {
      if (rests(*one)) continue;
      at_rest &= one->asking || waits_at_tail(*one);
      plan_one(*one, plans);
      one->settled_at = waits_at_tail(*one) ? cluster_.refreshed_at() : Clock::TimePoint{};
    }
    for (const auto& [at, one] : assigned_) {
      if (topics.empty() || topics.back() != at.topic) topics.push_back(at.topic);
    }
  }
  const bool old = now - cluster_.refreshed_at() > Milliseconds(settings_.metadata_max_age_ms);
  if (!topics.empty() && (cluster_.stale() || old || !plans.unknown_topics.empty()) && !refreshing_ &&
      now >= next_refresh_) {
    refreshing_ = true;
    loop_.spawn(refresh_metadata(std::move(topics)));
  }
  if (!plans.committed.empty()) loop_.spawn(resolve_committed(std::move(plans.committed)));
  for (auto& [node, wanted] : plans.offsets) loop_.spawn(resolve_offsets(node, std::move(wanted)));
  for (const auto node : plans.connects) {
    nodes_[node].connecting = true;
    loop_.spawn(connect(node));
  }
  for (auto& [session, wanted] : plans.grants) loop_.spawn(ask_grants(session, std::move(wanted)));
  for (const auto& session : plans.waits) loop_.spawn(wait_at_tail(session));
  for (auto& [node, wanted] : plans.fetches) {
    // A broker that waits for the partitions that have nothing would keep the one that has no room just now waiting
    // too.
    if (plans.full[node] || nodes_[node].fetching) continue;
    {
      const std::scoped_lock lock(mutex_);
      // The program may have sought or reassigned since the look.
      std::erase_if(wanted, [this](const ReadPlan& one) { return find(one.key) == nullptr; });
      for (const auto& one : wanted) find(one.key)->asking = true;
    }
    if (wanted.empty()) continue;
    // An answer is filled in the order asked: whoever was served longest ago comes first, so that nobody starves.
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const ReadPlan& a, const ReadPlan& b) { return a.served < b.served; });
    nodes_[node].fetching = true;
    loop_.spawn(fetch(node, std::move(wanted)));
  }
  return at_rest && !refreshing_;
}

/// Lock held.
bool Consumer::Impl::waits_at_tail(const Assigned& one) {
  return one.path == Path::one_sided && one.read && one.at_tail && one.wait_set != 0 &&
         one.wait_set == one.read->session->wait_set && !one.read->session->wait_lost;
}

/// Lock held. There is nothing to plan for it, as there was not when it was last looked at: of a thousand partitions
/// most are so whenever one has news.
bool Consumer::Impl::rests(const Assigned& one) const {
  return one.settled_at != Clock::TimePoint{} && one.settled_at == cluster_.refreshed_at() && waits_at_tail(one) &&
         one.read->session->waiting && !one.paused && !one.error &&
         !one.read->session->over.load(std::memory_order_acquire);
}

Co<void> Consumer::Impl::refresh_metadata(std::vector<std::string> topics) {
  auto refreshed = co_await cluster_.refresh(std::move(topics));
  if (!refreshed) log::debug("client", "metadata could not be read error={}", refreshed.error().text);
  refreshing_ = false;
  next_refresh_ = loop_.clock().now() + Milliseconds(settings_.retry_backoff_ms);
  plan_again_.notify();
}

bool Consumer::Impl::leader_known(Assigned& one, std::int32_t leader) {
  if (leader >= 0) {
    one.unknown_since = {};
    return true;
  }
  const auto now = loop_.clock().now();
  const auto* const topic = cluster_.topic(one.at.topic);
  if (one.unknown_since == Clock::TimePoint{}) one.unknown_since = now;
  auto code = ErrorCode::leader_not_available;
  if (topic != nullptr && topic->error != ErrorCode::none) code = topic->error;
  if (topic != nullptr && topic->error == ErrorCode::none &&
      static_cast<std::size_t>(one.at.partition) >= topic->partitions.size())
    code = ErrorCode::unknown_topic_or_partition;
  if (!kafka::retriable(code) ||
      (code == ErrorCode::unknown_topic_or_partition && now - one.unknown_since > unknown_patience)) {
    partition_failed(one, core::broker_error(code, core::to_text(one.at)));
    one.unknown_since = {};
  }
  return false;
}

void Consumer::Impl::plan_one(Assigned& one, Plans& plans) {
  const auto now = loop_.clock().now();
  if (one.error || one.not_before > now) return;
  const auto leader = cluster_.leader(one.at.topic, one.at.partition);
  if (!one.resolved) return plan_offset(one, leader, plans);
  if (one.paused) return;
  if (!leader_known(one, leader)) {
    plans.unknown_topics.insert(one.at.topic);
    return;
  }
  const auto topic_id = cluster_.topic(one.at.topic)->id;
  choose_path(one, leader, topic_id, plans);
  const Key key{one.at, one.life};
  if (one.path == Path::tcp_fetch) {
    const auto room = 2 * settings_.partition_fetch_bytes;
    if (static_cast<std::int64_t>(one.fetched_bytes) >= room) {
      plans.full[leader] = true;
    } else if (settings_.transport != core::Transport::tcp && now >= one.look_again && !one.fetched.empty()) {
      // A better path is due to be tried, which needs all that was fetched to be read. Where every answer has
      // something, that would never be.
    } else if (!one.asking) {
      plans.fetches[leader].push_back({key, one.fetch_position, topic_id, one.served});
    }
  } else if (one.path == Path::one_sided) {
    const auto& session = nodes_[leader].session;
    if (!one.read && !one.asking) {
      one.asking = true;
      plans.grants[session].push_back({key, one.position, topic_id});
    } else if (one.read && one.at_tail && (!waits_at_tail(one) || !session->waiting)) {
      plans.waits.insert(session);
    }
  }
}

void Consumer::Impl::plan_offset(Assigned& one, std::int32_t leader, Plans& plans) {
  if (one.asking) return;
  const Key key{one.at, one.life};
  if (one.wanted == offset_stored && !settings_.group_id.empty()) {
    one.asking = true;
    plans.committed.push_back(key);
    return;
  }
  if (one.wanted == offset_stored) {
    one.wanted = settings_.offset_reset == core::OffsetReset::earliest ? offset_beginning : offset_end;
  }
  if (!leader_known(one, leader)) {
    plans.unknown_topics.insert(one.at.topic);
    return;
  }
  one.asking = true;
  plans.offsets[leader].emplace_back(key, OffsetQuery{one.at, one.wanted});
}

void Consumer::Impl::choose_path(Assigned& one, std::int32_t leader, kafka::TopicId topic_id, Plans& plans) {
  const auto now = loop_.clock().now();
  const auto use_tcp = [&](const std::string& why) {
    if (one.path == Path::tcp_fetch) return;
    one.path = Path::tcp_fetch;
    one.reason = why;
    one.provider.clear();
    one.fetch_position = one.position;
    stop_reading(one);
  };
  if (settings_.transport == core::Transport::tcp) return use_tcp("transport=tcp");
  if (one.path == Path::tcp_fetch) {
    // Only between answers: what was fetched must be read before bytes come by another path.
    if (now < one.look_again || one.asking || !one.fetched.empty()) return;
    one.path = Path::undecided;
  }
  auto& node = nodes_[leader];
  if (node.session && node.session->over.load(std::memory_order_acquire)) node.session.reset();
  if (one.read && one.read->session != node.session) {
    // Of a session that is over: the polling thread finds out by itself, unless it waits for us.
    // Only this partition's: others of that session, and views of them, are still good where the leader moved.
    one.read->lease->refuse();
    if (std::exchange(one.at_tail, false)) wake_poll();
    one.path = Path::undecided;
    return;
  }
  constexpr int failures_max = 5;
  if (one.failures > failures_max) {
    one.failures = 0;
    return fall_back(one, NotOneSided::failing, "one-sided reads failed several times in a row",
                     std::chrono::seconds(10));
  }
  if (node.session && !topic_id.is_zero()) {
    if (one.path != Path::one_sided) counters_.onesided_starts.fetch_add(1, std::memory_order_relaxed);
    one.path = Path::one_sided;
    one.provider = node.session->provider;
    one.reason.clear();
    one.landing = node.session->landing.text;
    return tell_path(one);
  }
  one.path = Path::undecided;
  if (topic_id.is_zero())
    return fall_back(one, NotOneSided::no_topic_id, "the broker has no topic ids", std::chrono::seconds(60));
  if (node.refused && now < node.try_again)
    return fall_back(one, NotOneSided::no_session, *node.refused, node.try_again - now);
  if (!node.connecting) plans.connects.insert(leader);
}

const char* core::name(NotOneSided why) {
  constexpr std::array names{"no_session", "no_topic_id", "failing", "bad_grant", "broker_memory", "fault"};
  static_assert(names.size() == static_cast<std::size_t>(NotOneSided::count_));
  return names[static_cast<std::size_t>(why)];
}

std::string Consumer::Impl::landing_of(const Assigned& one) const {
  if (!destination_ || one.path == Path::undecided) return {};
  if (one.path == Path::one_sided) return one.landing;
  return "copied: from what Fetch brought into " + destination_->area()->device_name();
}

/// Once for each change: a consumer that goes on by another path works, and says so to whoever wonders about its speed.
void Consumer::Impl::tell_path(Assigned& one) {
  auto now = one.path == Path::one_sided ? "one-sided, by " + one.provider : "Fetch over TCP: " + one.reason;
  if (const auto landing = landing_of(one); !landing.empty()) now += "; batches are " + landing;
  if (now == one.told) return;
  // The first path is told where it is not the best one.
  const auto level = one.path == Path::one_sided && one.told.empty() ? log::Level::debug : log::Level::info;
  log::line(level, "client", "{} is read {}", core::to_text(one.at), now);
  one.told = std::move(now);
}

void Consumer::Impl::fall_back(Assigned& one, NotOneSided reason, const std::string& why,
                               Clock::Duration for_how_long) {
  stop_reading(one);
  one.at_tail = false;
  const auto until = loop_.clock().now() + for_how_long;
  if (settings_.transport == core::Transport::rdma) {
    one.path = Path::undecided;
    one.reason = why;
    one.not_before = until;
    one.error = failure(Trouble::no_one_sided_path, core::to_text(one.at) + ": transport=rdma, but " + why, true);
    wake_poll();
    return;
  }
  counters_.fallbacks[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  one.path = Path::tcp_fetch;
  one.provider.clear();
  one.reason = why;
  one.look_again = until;
  one.fetch_position = one.position;
  tell_path(one);
}

void Consumer::Impl::partition_failed(Assigned& one, const Error& error) {
  one.asking = false;
  one.not_before = loop_.clock().now() + Milliseconds(settings_.retry_backoff_ms);
  if (core::passes(error) && error.kafka_code != static_cast<std::int16_t>(ErrorCode::unknown_topic_or_partition)) {
    cluster_.mark_stale();
    return;
  }
  one.error = error;
  wake_poll();
}

/// Lock held; either thread.
void Consumer::Impl::reset_offset(Assigned& one, const std::string& why) {
  const auto was = one.position;
  if (settings_.offset_reset == core::OffsetReset::none) {
    one.error =
        failure(Trouble::data_loss,
                fmt::format("{}: offset {} cannot be read ({}) and auto.offset.reset=none: seek to where to go on",
                            core::to_text(one.at), was, why));
    one.not_before = Clock::TimePoint::max();  // until a seek
    one.asking = false;
    wake_poll();
    return;
  }
  const bool earliest = settings_.offset_reset == core::OffsetReset::earliest;
  log::warn("client", "position is out of range, going to the log's {} partition={} position={} why={}",
            earliest ? "beginning" : "end", core::to_text(one.at), was, why);
  restart(one, earliest ? offset_beginning : offset_end);
}

Co<void> Consumer::Impl::resolve_offsets(std::int32_t node, std::vector<std::pair<Key, OffsetQuery>> wanted) {
  std::vector<OffsetQuery> queries;
  for (const auto& [key, query] : wanted) queries.push_back(query);
  auto answered = co_await core::list_offsets(cluster_, node, std::move(queries), settings_.isolation);
  {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      auto* const one = find(wanted[i].first);
      if (one == nullptr) continue;
      one->asking = false;
      if (!answered) {
        partition_failed(*one, answered.error());
        continue;
      }
      const auto& query = (*answered)[i];
      if (query.error != ErrorCode::none) {
        partition_failed(*one, core::broker_error(query.error, core::to_text(one->at)));
        continue;
      }
      one->resolved = true;
      one->position = one->fetch_position = std::max<std::int64_t>(query.offset, 0);
    }
    wake_poll();
  }
  plan_again_.notify();
}

Co<void> Consumer::Impl::resolve_committed(std::vector<Key> keys) {
  std::vector<TopicPartition> partitions;
  for (const auto& key : keys) partitions.push_back(key.first);
  const auto deadline = loop_.clock().now() + Milliseconds(settings_.request_timeout_ms);
  auto answered = co_await core::committed_offsets(cluster_, settings_.group_id, std::move(partitions), deadline);
  {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto* const one = find(keys[i]);
      if (one == nullptr) continue;
      one->asking = false;
      if (!answered) {
        partition_failed(*one, answered.error());
      } else if ((*answered)[i].offset >= 0) {
        one->resolved = true;
        one->position = one->fetch_position = (*answered)[i].offset;
      } else if (settings_.offset_reset == core::OffsetReset::none) {
        one->error = failure(Trouble::data_loss,
                             core::to_text(one->at) + ": group " + settings_.group_id +
                                 " has committed no offset and auto.offset.reset=none: seek to where to begin");
        one->not_before = Clock::TimePoint::max();
      } else {
        one->wanted = settings_.offset_reset == core::OffsetReset::earliest ? offset_beginning : offset_end;
      }
    }
    wake_poll();
  }
  plan_again_.notify();
}

}  // namespace ciuic::client
