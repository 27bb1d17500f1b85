// The public calls of a consumer, on the program's thread. What they need of a broker runs on the loop.
#include "ciuic/consumer.h"

#include <fmt/format.h>

#include <array>
#include <regex>

#include "client/core/consumer_impl.h"

namespace ciuic::client {

using core::Assigned;
using core::Co;
using core::failure;
using core::GroupEvent;
using core::OffsetQuery;

const char* name(Path path) {
  static constexpr std::array names{"undecided", "tcp", "one-sided"};
  const auto at = static_cast<std::size_t>(path);
  return at < names.size() ? names[at] : "unknown";
}

namespace {
Error not_assigned(const TopicPartition& at) {
  return failure(Trouble::invalid_state, core::to_text(at) + " is not assigned to this consumer");
}
Error no_group(const char* what) {
  return failure(Trouble::invalid_state, std::string(what) + " needs group.id: set it in the configuration");
}
}  // namespace

Consumer::Impl::Impl(core::ConsumerSettings settings)
    : settings_(std::move(settings)),
      loop_(system_clock()),
      cluster_(loop_, settings_),
      group_(cluster_, settings_,
             {[this](GroupEvent event, std::vector<TopicPartition> partitions) {
                const std::scoped_lock lock(mutex_);
                if (event == GroupEvent::lost)
                  std::erase_if(rebalances_, [](const Rebalance& one) { return one.event == GroupEvent::revoked; });
                rebalances_.push_back({event, std::move(partitions)});
                ready_.notify_all();
              },
              [this](Error error) {
                const std::scoped_lock lock(mutex_);
                fatal_ = std::move(error);
                ready_.notify_all();
              },
              [this] { return Clock::TimePoint(Clock::Duration(last_poll_.load(std::memory_order_relaxed))); }}),
      plan_again_(loop_),
      last_poll_(system_clock().now().time_since_epoch().count()) {
  loop_.start();
  loop_.post([this] { loop_.spawn(drive()); });
  next_auto_commit_ = loop_.clock().now() + Milliseconds(settings_.auto_commit_interval_ms);
}

Consumer::Impl::~Impl() { (void)close(Milliseconds(5000)); }

Result<void> Consumer::Impl::usable() const {
  if (in_forked_child()) return core::forked_child();
  if (closed_) return failure(Trouble::invalid_state, "the consumer is closed");
  return {};
}

/// Runs a coroutine on the loop and waits for its result.
template <class T>
Result<T> Consumer::Impl::ask(std::function<Co<Result<T>>()> make) {
  if (auto ok = usable(); !ok) return ok.error();
  return loop_.run<Result<T>>(std::move(make));
}

Result<void> Consumer::Impl::close(Milliseconds timeout) {
  if (closed_ || in_forked_child()) return {};
  const auto deadline = loop_.clock().now() + timeout;
  Result<void> outcome;
  const bool member = subscribed_;
  if (settings_.auto_commit && !settings_.group_id.empty()) outcome = commit_sync({}, timeout);
  if (member && listener_.revoked) {
    if (const auto held = assignment(); !held.empty()) listener_.revoked(held);
  }
  run_commit_callbacks();
  subscribed_ = false;
  closed_ = true;
  drop_batches();
  std::vector<std::shared_ptr<core::GrantedRead>> left;
  {
    const std::scoped_lock lock(mutex_);
    clear_assignment();
    left.swap(left_reads_);
  }
  left.clear();  // so that their grants are released below
  (void)loop_.run<bool>([this, deadline]() -> Co<bool> {
    if (group_running_) co_await group_.leave(deadline);
    for (auto& [id, node] : nodes_) {
      if (node.session) co_await end_session(node.session, deadline);
    }
    cluster_.close(failure(Trouble::invalid_state, "the consumer is closed"));
    plan_again_.notify();
    co_return true;
  });
  loop_.stop();
  run_commit_callbacks();
  return outcome;
}

// --- What to read ---

std::unique_ptr<Assigned> Consumer::Impl::make_assigned(const TopicPartition& at, std::int64_t wanted) {
  auto one = std::make_unique<Assigned>();
  one->at = at;
  one->name = std::make_shared<const TopicPartition>(at);
  restart(*one, wanted);
  return one;
}

void Consumer::Impl::restart(Assigned& one, std::int64_t wanted) {
  one.life = ++lives_;
  one.wanted = wanted;
  one.resolved = wanted >= 0;
  one.position = wanted >= 0 ? wanted : -1;
  one.fetch_position = one.position;
  one.asking = false;
  one.not_before = {};
  one.error.reset();
  one.fetched.clear();
  one.fetched_bytes = 0;
  stop_reading(one);
  one.at_tail = false;
  one.tail_since = {};
}

void Consumer::Impl::stop_reading(Assigned& one) {
  if (one.read) left_reads_.push_back(std::exchange(one.read, nullptr));
}

void Consumer::Impl::clear_assignment() {
  for (auto& [at, one] : assigned_) stop_reading(*one);
  order_.clear();
  turn_ = 0;
  assigned_.clear();
}

Result<void> Consumer::Impl::land_in(const LandingBuffer& buffer) {
  if (auto ok = usable(); !ok) return ok;
  if (assigned_once_ || destination_)
    return failure(Trouble::invalid_state, "land_in comes once, and before assign and subscribe");
  auto opened = core::Destination::open(buffer);
  if (!opened) return opened.error();
  destination_ = *std::move(opened);
  return {};
}

Result<void> Consumer::Impl::assign(std::span<const TopicPartitionOffset> partitions) {
  if (auto ok = usable(); !ok) return ok;
  if (subscribed_)
    return failure(Trouble::invalid_state, "assign and subscribe exclude each other: call unsubscribe first");
  for (const auto& each : partitions) {
    if (each.topic.empty() || each.partition < 0)
      return failure(Trouble::invalid_argument,
                     fmt::format("\"{}\" partition {}: no such partition", each.topic, each.partition));
    if (each.offset < 0 && each.offset != offset_beginning && each.offset != offset_end &&
        each.offset != offset_stored) {
      return failure(Trouble::invalid_argument, fmt::format("{}-{}: offset {} is neither a number nor a place",
                                                            each.topic, each.partition, each.offset));
    }
    if (each.offset == offset_stored && settings_.group_id.empty() && settings_.offset_reset == core::OffsetReset::none)
      return no_group("offset_stored");
  }
  assigned_once_ = true;
  drop_batches();
  {
    const std::scoped_lock lock(mutex_);
    clear_assignment();
    for (const auto& each : partitions) {
      const TopicPartition at{each.topic, each.partition};
      assigned_[at] = make_assigned(at, each.offset);
    }
    for (auto& [at, one] : assigned_) order_.push_back(one.get());
  }
  tell_loop();
  return {};
}

Result<void> Consumer::Impl::subscribe(std::vector<std::string> topics, RebalanceListener listener) {
  if (auto ok = usable(); !ok) return ok;
  if (settings_.group_id.empty()) return no_group("subscribe");
  for (const auto& name : topics) {
    if (name.empty()) return failure(Trouble::invalid_argument, "a topic's name is empty");
    if (name.front() != '^') continue;
    try {
      const std::regex checked(name);
      (void)checked;
    } catch (const std::regex_error& error) {
      return failure(Trouble::invalid_argument, name + ": not a regular expression (ECMAScript): " + error.what());
    }
  }
  if (topics.empty()) return unsubscribe();
  assigned_once_ = true;
  {
    const std::scoped_lock lock(mutex_);
    if (!subscribed_ && !assigned_.empty())
      return failure(Trouble::invalid_state, "assign and subscribe exclude each other: call assign with nothing first");
    fatal_.reset();
  }
  listener_ = std::move(listener);
  subscribed_ = true;
  last_poll_.store(loop_.clock().now().time_since_epoch().count(), std::memory_order_relaxed);
  const bool start = !std::exchange(group_running_, true);
  loop_.post([this, topics = std::move(topics), start] {
    group_.subscribe(topics);
    if (start) loop_.spawn(group_.run());
  });
  return {};
}

Result<void> Consumer::Impl::unsubscribe() {
  if (auto ok = usable(); !ok) return ok;
  drop_batches();
  if (subscribed_) {
    if (settings_.auto_commit) {
      if (auto done = commit_sync({}, Milliseconds(5000)); !done) return done;
    }
    if (listener_.revoked) {
      if (const auto held = assignment(); !held.empty()) listener_.revoked(held);
    }
    loop_.post([this] {
      group_.subscribe({});
      group_.handed_over();
    });
  }
  subscribed_ = false;
  listener_ = {};
  const std::scoped_lock lock(mutex_);
  rebalances_.clear();
  fatal_.reset();
  clear_assignment();
  return {};
}

std::vector<TopicPartition> Consumer::Impl::assignment() const {
  if (in_forked_child()) return {};  // the lock may be held by a thread that is not here
  const std::scoped_lock lock(mutex_);
  std::vector<TopicPartition> out;
  for (const auto& [at, one] : assigned_) out.push_back(at);
  return out;
}

Assigned* Consumer::Impl::find(const TopicPartition& at) const {
  const auto found = assigned_.find(at);
  return found == assigned_.end() ? nullptr : found->second.get();
}
Assigned* Consumer::Impl::find(const Key& key) const {
  auto* const one = find(key.first);
  return one != nullptr && one->life == key.second ? one : nullptr;
}

// --- Where to read ---

Result<void> Consumer::Impl::seek(const TopicPartition& at, std::int64_t offset) {
  if (auto ok = usable(); !ok) return ok;
  if (offset < 0 && offset != offset_beginning && offset != offset_end)
    return failure(Trouble::invalid_argument,
                   fmt::format("{}: offset {} is neither a number nor a place", core::to_text(at), offset));
  {
    const std::scoped_lock lock(mutex_);
    auto* const one = find(at);
    if (one == nullptr) return not_assigned(at);
    restart(*one, offset);
  }
  tell_loop();
  return {};
}

Result<std::int64_t> Consumer::Impl::position(const TopicPartition& at, Milliseconds timeout) {
  if (auto ok = usable(); !ok) return ok.error();
  const auto deadline = loop_.clock().now() + timeout;
  std::unique_lock lock(mutex_);
  while (true) {
    auto* const one = find(at);
    if (one == nullptr) return not_assigned(at);
    if (one->resolved) return one->position;
    if (one->error) return *one->error;
    const auto left = deadline - loop_.clock().now();
    if (left <= Clock::Duration::zero())
      return failure(Trouble::timed_out, core::to_text(at) + ": its position is not known yet", true);
    ready_.wait_for(lock, std::min<Clock::Duration>(left, Milliseconds(50)));
  }
}

Result<void> Consumer::Impl::set_paused(std::span<const TopicPartition> partitions, bool paused) {
  if (auto ok = usable(); !ok) return ok;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& at : partitions) {
      if (find(at) == nullptr) return not_assigned(at);
    }
    for (const auto& at : partitions) find(at)->paused = paused;
  }
  tell_loop();
  return {};
}

// --- Commits ---

std::vector<TopicPartitionOffset> Consumer::Impl::positions() const {
  std::vector<TopicPartitionOffset> out;
  for (const auto& [at, one] : assigned_) {
    if (one->resolved) out.push_back({at.topic, at.partition, one->position, {}});
  }
  return out;
}

Result<void> Consumer::Impl::commit_sync(std::span<const TopicPartitionOffset> offsets, Milliseconds timeout) {
  if (auto ok = usable(); !ok) return ok;
  if (settings_.group_id.empty()) return no_group("commit");
  std::vector<TopicPartitionOffset> what(offsets.begin(), offsets.end());
  if (what.empty()) {
    const std::scoped_lock lock(mutex_);
    what = positions();
  }
  if (what.empty()) return {};
  const auto deadline = loop_.clock().now() + timeout;
  auto result = ask<bool>([this, what, deadline]() -> Co<Result<bool>> {
    auto as = group_.membership();
    auto copied = what;
    auto done = co_await core::commit_offsets(cluster_, std::move(as), std::move(copied), deadline);
    if (!done) co_return done.error();
    co_return true;
  });
  run_commit_callbacks();
  if (!result) return result.error();
  return {};
}

Result<void> Consumer::Impl::commit_async(std::span<const TopicPartitionOffset> offsets, CommitCallback done) {
  if (auto ok = usable(); !ok) return ok;
  if (settings_.group_id.empty()) return no_group("commit");
  std::vector<TopicPartitionOffset> what(offsets.begin(), offsets.end());
  if (what.empty()) {
    const std::scoped_lock lock(mutex_);
    what = positions();
  }
  if (what.empty() && !done) return {};
  loop_.post([this, what = std::move(what), done = std::move(done)]() mutable {
    loop_.spawn([](Impl& self, std::vector<TopicPartitionOffset> committed, CommitCallback callback) -> Co<void> {
      auto as = self.group_.membership();
      // Tried once: a later commit may have passed by the time it would be tried again, and must stand.
      const auto deadline = self.loop_.clock().now() + Milliseconds(self.settings_.request_timeout_ms);
      auto result = co_await core::commit_offsets(self.cluster_, std::move(as), std::move(committed), deadline, false);
      const std::scoped_lock lock(self.mutex_);
      self.commits_done_.emplace_back(std::move(callback), std::move(result));
      self.ready_.notify_all();
    }(*this, std::move(what), std::move(done)));
  });
  return {};
}

Result<std::vector<TopicPartitionOffset>> Consumer::Impl::committed(std::span<const TopicPartition> partitions,
                                                                    Milliseconds timeout) {
  if (auto ok = usable(); !ok) return ok.error();
  if (settings_.group_id.empty()) return no_group("committed");
  const std::vector<TopicPartition> asked(partitions.begin(), partitions.end());
  const auto deadline = loop_.clock().now() + timeout;
  return ask<std::vector<TopicPartitionOffset>>(
      [this, asked, deadline] { return core::committed_offsets(cluster_, settings_.group_id, asked, deadline); });
}

// --- Questions ---

Result<std::vector<TopicInfo>> Consumer::Impl::topics(std::span<const std::string> names, Milliseconds timeout) {
  const std::vector<std::string> asked(names.begin(), names.end());
  const auto deadline = loop_.clock().now() + timeout;
  return ask<std::vector<TopicInfo>>([this, asked, deadline]() -> Co<Result<std::vector<TopicInfo>>> {
    while (true) {
      Result<void> refreshed;
      if (asked.empty()) {
        refreshed = co_await cluster_.refresh_all();
      } else {
        auto copied = asked;
        refreshed = co_await cluster_.refresh(std::move(copied));
      }
      std::optional<Error> trouble;
      std::vector<TopicInfo> out;
      if (!refreshed) {
        trouble = refreshed.error();
      } else {
        for (const auto& [topic_name, topic] : cluster_.topics()) {
          if (!asked.empty() && std::find(asked.begin(), asked.end(), topic_name) == asked.end()) continue;
          if (topic.error != kafka::ErrorCode::none) {
            if (!asked.empty()) trouble = core::broker_error(topic.error, "topic " + topic_name);
            continue;
          }
          TopicInfo info;
          info.topic = topic_name;
          if (!topic.id.is_zero()) info.topic_id = topic.id.to_string();
          std::int32_t index = 0;
          for (const auto& partition : topic.partitions)
            info.partitions.push_back(
                {index++, partition.leader, partition.leader_epoch, partition.replicas, partition.in_sync});
          out.push_back(std::move(info));
        }
      }
      if (!trouble) co_return out;
      const auto pause = Milliseconds(settings_.retry_backoff_ms);
      if (!core::passes(*trouble) || loop_.closing() || loop_.clock().now() + pause >= deadline) co_return *trouble;
      (void)co_await loop_.sleep(pause);
    }
  });
}

Result<std::vector<TopicPartitionOffset>> Consumer::Impl::list(std::vector<OffsetQuery> queries, Milliseconds timeout) {
  const auto order = queries;
  const auto deadline = loop_.clock().now() + timeout;
  auto answered = ask<std::vector<OffsetQuery>>([this, order, deadline] {
    return core::list_offsets_everywhere(cluster_, order, settings_.isolation, deadline);
  });
  if (!answered) return answered.error();
  std::map<TopicPartition, std::int64_t> found;
  for (const auto& query : *answered) found[query.at] = query.offset;
  std::vector<TopicPartitionOffset> out;
  for (const auto& query : order) out.push_back({query.at.topic, query.at.partition, found[query.at], {}});
  return out;
}

std::vector<Lag> Consumer::Impl::lags() const {
  if (in_forked_child()) return {};
  const std::scoped_lock lock(mutex_);
  std::vector<Lag> out;
  for (const auto& [at, one] : assigned_) {
    Lag lag;
    lag.at = at;
    lag.position = one->resolved ? one->position : -1;
    lag.readable_end =
        settings_.isolation == kafka::Isolation::read_committed ? one->last_stable_offset : one->high_watermark;
    if (lag.position >= 0 && lag.readable_end >= 0)
      lag.records = std::max<std::int64_t>(0, lag.readable_end - lag.position);
    out.push_back(std::move(lag));
  }
  return out;
}

PathInfo Consumer::Impl::path(const TopicPartition& at) const {
  if (in_forked_child()) return {Path::undecided, {}, core::forked_child().text, {}};
  const std::scoped_lock lock(mutex_);
  const auto* const one = find(at);
  if (one == nullptr) return {Path::undecided, {}, core::to_text(at) + " is not assigned", {}};
  return {one->path, one->provider, one->reason, landing_of(*one)};
}

std::vector<Metric> Consumer::Impl::metrics() const {
  std::vector<Metric> out;
  const auto add = [&out](const char* metric, const std::atomic<std::int64_t>& value, const char* label = "") {
    out.push_back({metric, label, value.load(std::memory_order_relaxed)});
  };
  add("ciuic_client_bytes_total", counters_.tcp_bytes, "tcp");
  add("ciuic_client_bytes_total", counters_.onesided_bytes, "one-sided");
  add("ciuic_client_batches_total", counters_.tcp_batches, "tcp");
  add("ciuic_client_batches_total", counters_.onesided_batches, "one-sided");
  add("ciuic_client_landed_bytes_total", counters_.landed_directly_bytes, "direct");
  add("ciuic_client_landed_bytes_total", counters_.landed_by_copy_bytes, "copied");
  add("ciuic_client_skipped_batches_total", counters_.skipped_batches);
  add("ciuic_client_fetches_total", counters_.fetches);
  add("ciuic_client_sessions_total", counters_.sessions);
  add("ciuic_client_grants_total", counters_.grants);
  add("ciuic_client_renewals_total", counters_.renewals);
  add("ciuic_client_waits_total", counters_.waits);
  add("ciuic_client_lease_losses_total", counters_.lease_losses);
  add("ciuic_client_onesided_starts_total", counters_.onesided_starts);
  for (std::size_t i = 0; i < counters_.fallbacks.size(); ++i)
    add("ciuic_client_fallbacks_total", counters_.fallbacks[i], core::name(static_cast<core::NotOneSided>(i)));
  for (const auto& lag : lags()) out.push_back({"ciuic_client_lag_records_gauge", core::to_text(lag.at), lag.records});
  return out;
}

std::string Consumer::Impl::member_id() const {
  if (!usable() || !group_running_) return {};
  auto& self = const_cast<Impl&>(*this);  // the loop is asked; nothing of ours changes
  return self.loop_.run<std::string>([&self]() -> Co<std::string> { co_return self.group_.membership().member_id; });
}

void Consumer::Impl::wakeup() {
  if (in_forked_child()) return;
  const std::scoped_lock lock(mutex_);
  interrupted_ = true;
  ready_.notify_all();
}

// --- The public class ---

Result<Consumer> Consumer::open(const Config& config) {
  auto settings = core::consumer_settings(config);
  if (!settings) return settings.error();
  return Consumer(std::make_unique<Impl>(*std::move(settings)));
}
Consumer::Consumer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Consumer::Consumer(Consumer&&) noexcept = default;
Consumer& Consumer::operator=(Consumer&& other) noexcept {
  if (this == &other) return *this;
  if (impl_ && impl_->in_forked_child()) (void)impl_.release();
  impl_ = std::move(other.impl_);
  return *this;
}
Consumer::~Consumer() {
  // A child has none of the threads: what they hold cannot be unwound there.
  if (impl_ && impl_->in_forked_child()) (void)impl_.release();
}

Result<void> Consumer::close(Milliseconds timeout) { return impl_->close(timeout); }
Result<void> Consumer::land_in(const LandingBuffer& buffer) { return impl_->land_in(buffer); }
Result<void> Consumer::assign(std::span<const TopicPartitionOffset> partitions) { return impl_->assign(partitions); }
Result<void> Consumer::subscribe(std::vector<std::string> topics, RebalanceListener listener) {
  return impl_->subscribe(std::move(topics), std::move(listener));
}
Result<void> Consumer::unsubscribe() { return impl_->unsubscribe(); }
std::vector<TopicPartition> Consumer::assignment() const { return impl_->assignment(); }
Result<std::span<const RecordBatch>> Consumer::poll(Milliseconds timeout) { return impl_->poll(timeout); }
void Consumer::wakeup() { impl_->wakeup(); }
Result<void> Consumer::seek(const TopicPartition& at, std::int64_t offset) { return impl_->seek(at, offset); }
Result<void> Consumer::seek_to_time(const TopicPartition& at, std::int64_t timestamp_ms, Milliseconds timeout) {
  if (timestamp_ms < 0)
    return failure(Trouble::invalid_argument,
                   fmt::format("{}: time {} is before 1970", core::to_text(at), timestamp_ms));
  auto found = impl_->list({OffsetQuery{at, timestamp_ms}}, timeout);
  if (!found) return found.error();
  const auto offset = found->front().offset;
  return impl_->seek(at, offset < 0 ? offset_end : offset);
}
Result<std::int64_t> Consumer::position(const TopicPartition& at, Milliseconds timeout) {
  return impl_->position(at, timeout);
}
Result<void> Consumer::pause(std::span<const TopicPartition> partitions) { return impl_->set_paused(partitions, true); }
Result<void> Consumer::resume(std::span<const TopicPartition> partitions) {
  return impl_->set_paused(partitions, false);
}
Result<void> Consumer::commit_sync(std::span<const TopicPartitionOffset> offsets, Milliseconds timeout) {
  return impl_->commit_sync(offsets, timeout);
}
Result<void> Consumer::commit_async(std::span<const TopicPartitionOffset> offsets, CommitCallback done) {
  return impl_->commit_async(offsets, std::move(done));
}
Result<std::vector<TopicPartitionOffset>> Consumer::committed(std::span<const TopicPartition> partitions,
                                                              Milliseconds timeout) {
  return impl_->committed(partitions, timeout);
}
Result<std::vector<TopicInfo>> Consumer::topics(std::span<const std::string> topics, Milliseconds timeout) {
  return impl_->topics(topics, timeout);
}

namespace {
std::vector<OffsetQuery> queries_for(std::span<const TopicPartition> partitions, std::int64_t timestamp) {
  std::vector<OffsetQuery> out;
  for (const auto& at : partitions) out.push_back({at, timestamp});
  return out;
}
}  // namespace

Result<std::vector<TopicPartitionOffset>> Consumer::beginning_offsets(std::span<const TopicPartition> partitions,
                                                                      Milliseconds timeout) {
  return impl_->list(queries_for(partitions, offset_beginning), timeout);
}
Result<std::vector<TopicPartitionOffset>> Consumer::end_offsets(std::span<const TopicPartition> partitions,
                                                                Milliseconds timeout) {
  return impl_->list(queries_for(partitions, offset_end), timeout);
}
Result<std::vector<TopicPartitionOffset>> Consumer::offsets_for_times(std::span<const TopicPartitionOffset> times,
                                                                      Milliseconds timeout) {
  std::vector<OffsetQuery> queries;
  for (const auto& each : times) {
    if (each.offset < 0)
      return failure(Trouble::invalid_argument,
                     fmt::format("{}-{}: time {} is before 1970", each.topic, each.partition, each.offset));
    queries.push_back({{each.topic, each.partition}, each.offset});
  }
  return impl_->list(std::move(queries), timeout);
}
std::vector<Lag> Consumer::lags() const { return impl_->lags(); }
PathInfo Consumer::path(const TopicPartition& at) const { return impl_->path(at); }
std::vector<Metric> Consumer::metrics() const { return impl_->metrics(); }
std::string Consumer::member_id() const { return impl_->member_id(); }

}  // namespace ciuic::client
