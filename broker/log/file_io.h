#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
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
  /// Any thread; never runs `job` inside the call. The job may wait for the disk.
  void submit(IoQueue queue, Task job) { take(queue, IoKind::device, std::move(job)); }
  /// The same for a write that the kernel takes into its page cache: microseconds, unless it throttles the writer.
  void submit_cached(IoQueue queue, Task job) { take(queue, IoKind::page_cache, std::move(job)); }
  [[nodiscard]] virtual Files& files() = 0;

 protected:
  enum class IoKind : std::uint8_t { page_cache, device };

 private:
  virtual void take(IoQueue queue, IoKind kind, Task job) = 0;
};

/// `threads` threads. The destructor runs what was submitted, then joins.
///
/// Waking a thread costs as much as a small write. So one that is awake takes a round of page cache jobs one after the
/// other, and their answers go to the owners together. Another is woken when jobs gather, and when those awake are at
/// the device or have not ended their round within a millisecond (the kernel throttles them): a watcher looks at that
/// every few milliseconds while there is work, and sends on what such a round has already done. A queue's next job
/// begins when the last one's answer has gone.
class ThreadPoolIo final : public FileIo {
 public:
  ThreadPoolIo(Files& files, unsigned threads);
  ~ThreadPoolIo() override;
  ThreadPoolIo(const ThreadPoolIo&) = delete;
  ThreadPoolIo& operator=(const ThreadPoolIo&) = delete;

  IoQueue make_queue() override;
  Files& files() override { return files_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Job {
    IoKind kind;
    Task task;
  };
  struct Waiting {
    std::deque<Job> jobs;
    bool running = false;
  };
  /// A thread's page cache jobs since it last told their owners.
  struct Round {
    std::optional<Clock::TimePoint> since;
    std::vector<IoQueue> done;
    HeldPosts posts;
  };
  void take(IoQueue queue, IoKind kind, Task job) override;
  void work(Round& round);
  void run_round(Lock& lock, Round& round);
  void run_device_job(Lock& lock);
  void send_on(Lock& lock, Round& round);
  void finished(IoQueue queue);
  void watch();
  Job start_next(IoQueue queue);
  [[nodiscard]] bool device_next() const;
  [[nodiscard]] bool stuck(const Round& round) const;
  [[nodiscard]] bool wake_another();

  Files& files_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable wake_watcher_;
  IoQueue next_queue_ = 1;
  bool stopping_ = false;
  bool watching_ = false;
  std::uint64_t taken_ = 0;  // jobs, for the watcher to see whether there is work
  std::unordered_map<IoQueue, Waiting> waiting_;
  std::deque<IoQueue> ready_;
  std::size_t asleep_ = 0;    // threads that nobody has told to wake
  std::size_t told_ = 0;      // told, and not awake yet
  std::size_t looking_ = 0;   // threads that will look at ready_ soon: told, or awake and not at the device
  std::deque<Round> rounds_;  // one a thread
  std::vector<std::thread> threads_;
  std::thread watcher_;
};

}  // namespace ciuic::broker
