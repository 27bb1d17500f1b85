#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "broker/exposure/exposure.h"
#include "transport/base/executor.h"

namespace ciuic::broker {

/// One thread for what blocks: pinning and unpinning memory for a device. Tasks of a turn run in the order given, and
/// `first` ones before others: a reader's wish for more memory does not delay what gives memory back. Any thread.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// After `stop`: inside the call.
  void run(Task task, Turn turn) {
    {
      const std::scoped_lock lock(mutex_);
      if (!stopping_) {
        (turn == Turn::first ? first_ : last_).push_back(std::move(task));
        more_.notify_one();
        return;
      }
    }
    task();
  }
  /// Runs what was given before, then ends the thread. Idempotent.
  void stop() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      more_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      more_.wait(lock, [this] { return stopping_ || !first_.empty() || !last_.empty(); });
      auto& tasks = first_.empty() ? last_ : first_;
      if (tasks.empty()) return;
      auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = Task();  // what it owned ends here, outside the lock
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Task> first_, last_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ciuic::broker
