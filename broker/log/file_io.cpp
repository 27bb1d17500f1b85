// Threads for blocking file work: one line of jobs a queue, queues side by side.
#include "broker/log/file_io.h"

#include <algorithm>

namespace ciuic::broker {

namespace {
/// Jobs a thread runs before their owners hear of the first.
constexpr std::size_t jobs_together = 8;
constexpr std::size_t jobs_per_looking_thread = 8;
constexpr std::chrono::milliseconds stuck_after{1};
}  // namespace

ThreadPoolIo::ThreadPoolIo(Files& files, unsigned threads) : files_(files) {
  const auto count = std::max(threads, 1U);
  looking_ = count;
  writing_since_.resize(count);
  for (unsigned i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(i); });
}

ThreadPoolIo::~ThreadPoolIo() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

IoQueue ThreadPoolIo::make_queue() {
  const std::scoped_lock lock(mutex_);
  return next_queue_++;
}

void ThreadPoolIo::take(IoQueue queue, IoKind kind, Task job) {
  {
    const std::scoped_lock lock(mutex_);
    auto& waiting = waiting_[queue];
    waiting.jobs.push_back({kind, std::move(job)});
    if (waiting.running || waiting.jobs.size() > 1) return;
    ready_.push_back(queue);
    if (!wake_another()) return;
  }
  wake_.notify_one();
}

bool ThreadPoolIo::device_next() const { return waiting_.at(ready_.front()).jobs.front().kind == IoKind::device; }

/// REQUIRES: the lock, something in ready_. True: one more thread counts as told, and must be notified.
bool ThreadPoolIo::wake_another() {
  if (asleep_ == 0) return false;
  const auto now = system_clock().now();
  const auto stuck =
      static_cast<std::size_t>(std::count_if(writing_since_.begin(), writing_since_.end(),
                                             [now](const auto& since) { return since && now - *since > stuck_after; }));
  const auto coming = looking_ - stuck;
  if (coming > 0 && ready_.size() <= jobs_per_looking_thread * coming) return false;
  --asleep_;
  ++told_;
  ++looking_;
  return true;
}

void ThreadPoolIo::work(std::size_t thread) {
  HeldPosts posts;
  std::unique_lock lock(mutex_);
  while (true) {
    // Nobody's answer waits for a disk that somebody else asked for.
    for (std::size_t done = 0; done < jobs_together && !ready_.empty(); ++done) {
      const bool device = device_next();
      if (device && done > 0) break;
      run_one(lock, thread);
      if (device) break;
    }
    lock.unlock();
    posts.send();
    lock.lock();
    if (!ready_.empty()) continue;
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

void ThreadPoolIo::run_one(std::unique_lock<std::mutex>& lock, std::size_t thread) {
  const auto queue = ready_.front();
  ready_.pop_front();
  auto& waiting = waiting_[queue];
  waiting.running = true;
  auto job = std::move(waiting.jobs.front());
  waiting.jobs.pop_front();
  const bool away = job.kind == IoKind::device;
  if (away)
    --looking_;
  else
    writing_since_[thread] = system_clock().now();
  const bool notify = away && !ready_.empty() && wake_another();
  lock.unlock();
  if (notify) wake_.notify_one();
  job.task();
  job.task = Task{};
  lock.lock();
  if (away) ++looking_;
  writing_since_[thread].reset();
  const auto after = waiting_.find(queue);
  after->second.running = false;
  if (after->second.jobs.empty())
    waiting_.erase(after);
  else
    ready_.push_back(queue);
}

}  // namespace ciuic::broker
