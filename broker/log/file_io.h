#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "broker/log/files.h"
#include "transport/base/executor.h"

namespace ciuic::broker {

/// Names a sequence of jobs that must run one after the other.
using IoQueue = std::uint64_t;

/// Where blocking file work runs, so that no owner's thread ever waits for a disk. Jobs of one queue run one at a time
/// in the order given; different queues run side by side. A job ends by posting its result to its owner's executor.
/// Production has threads (`ThreadPoolIo`); a simulation runs jobs when its seed says so.
class FileIo {
 public:
  virtual ~FileIo() = default;
  /// A queue of its own. Any thread.
  [[nodiscard]] virtual IoQueue make_queue() = 0;
  /// Any thread; never runs `job` inside the call.
  virtual void submit(IoQueue queue, Task job) = 0;
  [[nodiscard]] virtual Files& files() = 0;
};

/// `threads` threads. The destructor runs what was submitted, then joins.
class ThreadPoolIo final : public FileIo {
 public:
  ThreadPoolIo(Files& files, unsigned threads);
  ~ThreadPoolIo() override;
  ThreadPoolIo(const ThreadPoolIo&) = delete;
  ThreadPoolIo& operator=(const ThreadPoolIo&) = delete;

  IoQueue make_queue() override;
  void submit(IoQueue queue, Task job) override;
  Files& files() override { return files_; }

 private:
  struct Waiting {
    std::deque<Task> jobs;
    bool running = false;
  };
  void work();

  Files& files_;
  std::mutex mutex_;
  std::condition_variable wake_;
  IoQueue next_queue_ = 1;
  bool stopping_ = false;
  std::unordered_map<IoQueue, Waiting> waiting_;
  std::deque<IoQueue> ready_;
  std::vector<std::thread> threads_;
};

}  // namespace ciuic::broker
