#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "client/core/co.h"
#include "transport/base/clock.h"
#include "transport/base/executor.h"
#include "transport/base/unique_fd.h"

namespace ciuic::client::core {

/// What a descriptor's owner does when it is ready (epoll's bits). On the loop's thread.
class IoHandler {
 public:
  virtual ~IoHandler() = default;
  virtual void ready(std::uint32_t events) = 0;
};

/// The client's one I/O thread: sockets, timers, tasks and coroutines, all on it. Blocking work (name resolution, a
/// provider's connect) goes to one helper thread.
class Loop final : public Executor {
 public:
  explicit Loop(const Clock& clock);
  /// REQUIRES: stopped, or never started.
  ~Loop() override;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void start();
  /// Wakes every sleeper with `closing()` true, waits until the last coroutine has ended, ends the threads. Any other
  /// thread.
  void stop();
  /// From now on nothing waits: coroutines must end. Any thread.
  [[nodiscard]] bool closing() const { return closing_.load(std::memory_order_relaxed); }
  [[nodiscard]] const Clock& clock() const { return clock_; }

  void post(Task task) override;
  void post_at(Clock::TimePoint when, Task task) override;
  [[nodiscard]] bool is_current() const override {
    return std::this_thread::get_id() == thread_id_.load(std::memory_order_relaxed);
  }

  // On the loop's thread only.
  void watch(int fd, std::uint32_t events, IoHandler& handler);
  void change(int fd, std::uint32_t events);
  void forget(int fd);
  /// Runs `work` to its end, with nobody waiting for it.
  void spawn(Co<void> work);

  /// Sleeps; shorter when closing.
  auto sleep(Clock::Duration time) { return Sleep{*this, nullptr, clock_.now() + time, {}}; }

  /// Runs `work` on the helper thread. On the loop's thread.
  template <class T>
  Co<T> offload(std::function<T()> work) {
    std::optional<T> result;
    co_await Offload{*this, [&result, &work] { result.emplace(work()); }};
    co_return std::move(*result);
  }
  /// Starts `make()` on the loop and blocks until it ended. Any other thread.
  template <class T>
  T run(std::function<Co<T>()> make) {
    std::mutex mutex;
    std::condition_variable done;
    std::optional<T> result;
    post([&] {
      spawn([](auto& create, auto& lock, auto& ended, auto& out) -> Co<void> {
        T value = co_await create();
        const std::scoped_lock guard(lock);
        out.emplace(std::move(value));
        ended.notify_all();
      }(make, mutex, done, result));
    });
    std::unique_lock guard(mutex);
    done.wait(guard, [&] { return result.has_value(); });
    return std::move(*result);
  }

 private:
  friend class Signal;
  struct Waiter {
    std::coroutine_handle<> handle{};
    bool done = false;
    bool notified = false;
  };
  struct Sleep {
    Loop& loop;
    std::vector<std::shared_ptr<Waiter>>* list;
    Clock::TimePoint until;
    std::shared_ptr<Waiter> waiter;
    [[nodiscard]] bool await_ready() const { return loop.closing(); }
    void await_suspend(std::coroutine_handle<> handle);
    [[nodiscard]] bool await_resume() const { return waiter && waiter->notified; }
  };
  struct Offload {
    Loop& loop;
    std::function<void()> work;
    [[nodiscard]] bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> handle);
    void await_resume() const {}
  };

  void run_thread();
  void run_helper();
  void run_timers();
  void run_tasks();
  void resume(const std::shared_ptr<Waiter>& waiter, bool notified);
  [[nodiscard]] int wait_ms() const;

  const Clock& clock_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};
  std::atomic<bool> closing_{false};
  bool closed_seen_ = false;
  std::mutex mutex_;
  std::deque<Task> tasks_;
  std::multimap<Clock::TimePoint, Task> timers_;
  bool wake_pending_ = false;
  std::vector<IoHandler*> handlers_;
  std::set<std::shared_ptr<Waiter>> sleeping_;
  std::size_t alive_ = 0;

  std::thread helper_;
  std::mutex helper_mutex_;
  std::condition_variable helper_wake_;
  std::deque<Task> helper_tasks_;
  bool helper_stop_ = false;
};

/// Wakes coroutines that wait for a condition; they look again. On the loop's thread.
class Signal {
 public:
  explicit Signal(Loop& loop) : loop_(loop) {}
  void notify();
  /// True: notified; false: time is over, or closing.
  auto wait(Clock::Duration at_most) { return Loop::Sleep{loop_, &waiters_, loop_.clock().now() + at_most, {}}; }

 private:
  Loop& loop_;
  std::vector<std::shared_ptr<Loop::Waiter>> waiters_;
};

/// A value that comes once from elsewhere on the loop's thread.
template <class T>
class OneShot {
 public:
  explicit OneShot(Loop& loop) : state_(std::make_shared<State>()), loop_(&loop) {}
  void set(T value) const {
    if (state_->value) return;
    state_->value.emplace(std::move(value));
    if (state_->handle) loop_->post([handle = state_->handle] { handle.resume(); });
  }
  [[nodiscard]] bool await_ready() const { return state_->value.has_value(); }
  void await_suspend(std::coroutine_handle<> handle) const { state_->handle = handle; }
  T await_resume() const { return std::move(*state_->value); }

 private:
  struct State {
    std::optional<T> value;
    std::coroutine_handle<> handle{};
  };
  std::shared_ptr<State> state_;
  Loop* loop_;
};

}  // namespace ciuic::client::core
