// Threads for blocking file work: one line of jobs a queue, queues side by side.
#include "broker/log/file_io.h"

#include <algorithm>

namespace ciuic::broker {

namespace {
/// Jobs a thread runs before their owners hear of the first.
constexpr std::size_t jobs_together = 8;
constexpr std::size_t jobs_per_looking_thread = 8;
constexpr std::chrono::milliseconds stuck_after{1};
constexpr std::chrono::milliseconds watch_interval{5};
/// The watcher sleeps after so many looks at which nothing was new: an idle broker does nothing.
constexpr int quiet_looks = 40;
}  // namespace

ThreadPoolIo::ThreadPoolIo(Files& files, unsigned threads) : files_(files), rounds_(std::max(threads, 1U)) {
  looking_ = rounds_.size();
  for (auto& round : rounds_) threads_.emplace_back([this, &round] { work(round); });
  watcher_ = std::thread([this] { watch(); });
}

ThreadPoolIo::~ThreadPoolIo() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
  wake_watcher_.notify_all();
  watcher_.join();
}

IoQueue ThreadPoolIo::make_queue() {
  const std::scoped_lock lock(mutex_);
  return next_queue_++;
}

void ThreadPoolIo::take(IoQueue queue, IoKind kind, Task job) {
  bool watch = false;
  bool wake = false;
  {
    const std::scoped_lock lock(mutex_);
    ++taken_;
    watch = !std::exchange(watching_, true);
    auto& waiting = waiting_[queue];
    waiting.jobs.push_back({kind, std::move(job)});
    if (!waiting.running && waiting.jobs.size() == 1) {
      ready_.push_back(queue);
      wake = wake_another();
    }
  }
  if (wake) wake_.notify_one();
  if (watch) wake_watcher_.notify_one();
}

bool ThreadPoolIo::device_next() const { return waiting_.at(ready_.front()).jobs.front().kind == IoKind::device; }

bool ThreadPoolIo::stuck(const Round& round) const {
  return round.since && system_clock().now() - *round.since > stuck_after;
}

/// REQUIRES: the lock, something in ready_. True: one more thread counts as told, and must be notified.
bool ThreadPoolIo::wake_another() {
  if (asleep_ == 0) return false;
  const auto held_up = static_cast<std::size_t>(
      std::count_if(rounds_.begin(), rounds_.end(), [this](const Round& round) { return stuck(round); }));
  const auto coming = looking_ - held_up;
  if (coming > 0 && ready_.size() <= jobs_per_looking_thread * coming) return false;
  --asleep_;
  ++told_;
  ++looking_;
  return true;
}

void ThreadPoolIo::work(Round& round) {
  Lock lock(mutex_);
  while (true) {
    if (!ready_.empty()) {
      // Nobody's answer waits for a disk that somebody else asked for.
      if (device_next())
        run_device_job(lock);
      else
        run_round(lock, round);
      continue;
    }
    if (stopping_) return;
    --looking_;
    ++asleep_;
    wake_.wait(lock, [this] { return stopping_ || told_ > 0; });
    if (told_ > 0) {
      --told_;
    } else {
      --asleep_;
      ++looking_;
    }
  }
}

ThreadPoolIo::Job ThreadPoolIo::start_next(IoQueue queue) {
  auto& waiting = waiting_[queue];
  waiting.running = true;
  auto job = std::move(waiting.jobs.front());
  waiting.jobs.pop_front();
  return job;
}

void ThreadPoolIo::run_round(Lock& lock, Round& round) {
  round.since = system_clock().now();
  {
    const HeldPosts::Scope held(round.posts);
    for (std::size_t n = 0; n < jobs_together && !ready_.empty() && !device_next(); ++n) {
      const auto queue = ready_.front();
      ready_.pop_front();
      auto job = start_next(queue);
      lock.unlock();
      job.task();
      job.task = Task{};
      lock.lock();
      round.done.push_back(queue);
    }
  }
  send_on(lock, round);
  round.since.reset();
}

void ThreadPoolIo::run_device_job(Lock& lock) {
  const auto queue = ready_.front();
  ready_.pop_front();
  auto job = start_next(queue);
  --looking_;
  const bool notify = !ready_.empty() && wake_another();
  lock.unlock();
  if (notify) wake_.notify_one();
  job.task();
  job.task = Task{};
  lock.lock();
  ++looking_;
  finished(queue);
}

/// Owners hear of what was done; then its queues may go on.
void ThreadPoolIo::send_on(Lock& lock, Round& round) {
  const auto done = std::exchange(round.done, {});
  lock.unlock();
  round.posts.send();
  lock.lock();
  for (const auto queue : done) finished(queue);
}

void ThreadPoolIo::finished(IoQueue queue) {
  const auto at = waiting_.find(queue);
  at->second.running = false;
  if (at->second.jobs.empty())
    waiting_.erase(at);
  else
    ready_.push_back(queue);
}

void ThreadPoolIo::watch() {
  Lock lock(mutex_);
  std::uint64_t seen = 0;
  int quiet = 0;
  while (!stopping_) {
    if (quiet >= quiet_looks) {
      watching_ = false;
      wake_watcher_.wait(lock, [this] { return stopping_ || watching_; });
      quiet = 0;
    }
    wake_watcher_.wait_for(lock, watch_interval, [this] { return stopping_; });
    bool held_up = false;
    for (auto& round : rounds_) {
      if (!stuck(round)) continue;
      held_up = true;
      send_on(lock, round);
    }
    quiet = held_up || !ready_.empty() || taken_ != seen ? 0 : quiet + 1;
    seen = taken_;
    if (!ready_.empty() && wake_another()) wake_.notify_one();
  }
}

}  // namespace ciuic::broker
