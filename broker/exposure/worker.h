#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "transport/base/executor.h"

namespace ciuic::broker {

/// One thread for what blocks: pinning and unpinning memory for a device. Tasks run in the order given. Any thread.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// After `stop`: inside the call.
  void run(Task task) {
    {
      const std::scoped_lock lock(mutex_);
      if (!stopping_) {
        tasks_.push_back(std::move(task));
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
      more_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = Task();  // what it owned ends here, outside the lock
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ciuic::broker
