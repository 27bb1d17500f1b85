// Threads for blocking file work: one line of jobs a queue, queues side by side.
#include "broker/log/file_io.h"

namespace ciuic::broker {

ThreadPoolIo::ThreadPoolIo(Files& files, unsigned threads) : files_(files) {
  for (unsigned i = 0; i < std::max(threads, 1U); ++i) threads_.emplace_back([this] { work(); });
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

void ThreadPoolIo::submit(IoQueue queue, Task job) {
  {
    const std::scoped_lock lock(mutex_);
    auto& waiting = waiting_[queue];
    waiting.jobs.push_back(std::move(job));
    if (waiting.running || waiting.jobs.size() > 1) return;
    ready_.push_back(queue);
  }
  wake_.notify_one();
}

void ThreadPoolIo::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !ready_.empty(); });
    if (ready_.empty()) return;
    const auto queue = ready_.front();
    ready_.pop_front();
    auto& waiting = waiting_[queue];
    waiting.running = true;
    auto job = std::move(waiting.jobs.front());
    waiting.jobs.pop_front();
    lock.unlock();
    job();
    job = Task{};
    lock.lock();
    const auto after = waiting_.find(queue);
    after->second.running = false;
    if (after->second.jobs.empty()) {
      waiting_.erase(after);
    } else {
      ready_.push_back(queue);
      if (ready_.size() > 1) wake_.notify_one();
    }
  }
}

}  // namespace ciuic::broker
