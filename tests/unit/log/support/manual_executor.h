#pragma once
#include <deque>
#include <map>

#include "transport/base/clock.h"
#include "transport/base/executor.h"

namespace ciuic::broker::testing {

/// One executor on the test's own thread: runs what was posted when told to, timers when the manual clock passes them.
class ManualExecutor final : public Executor {
 public:
  explicit ManualExecutor(ManualClock& clock) : clock_(clock) {}

  void post(Task task) override { ready_.push_back(std::move(task)); }
  void post_at(Clock::TimePoint when, Task task) override { timers_.emplace(when, std::move(task)); }
  [[nodiscard]] bool is_current() const override { return true; }

  /// Runs one task that is due; false if there is none.
  bool run_one() {
    while (!timers_.empty() && timers_.begin()->first <= clock_.now()) {
      ready_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (ready_.empty()) return false;
    auto task = std::move(ready_.front());
    ready_.pop_front();
    task();
    return true;
  }
  void run_ready() {
    while (run_one()) {
    }
  }
  [[nodiscard]] std::size_t timers() const { return timers_.size(); }
  /// Forgets everything posted: the process died.
  void drop_all() {
    ready_.clear();
    timers_.clear();
  }

 private:
  ManualClock& clock_;
  std::deque<Task> ready_;
  std::multimap<Clock::TimePoint, Task> timers_;
};

}  // namespace ciuic::broker::testing
