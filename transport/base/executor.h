#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "transport/base/clock.h"

namespace ciuic {

/// A callable that may own what cannot be copied (C++23's move_only_function, as far as we need it). Called once.
class Task {
 public:
  Task() = default;
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, Task>) Task(F&& f)
      : call_(std::make_unique<Model<std::decay_t<F>>>(std::forward<F>(f))) {}  // NOLINT: implicit on purpose
  explicit operator bool() const { return call_ != nullptr; }
  void operator()() { std::exchange(call_, nullptr)->run(); }

 private:
  struct Concept {
    virtual ~Concept() = default;
    virtual void run() = 0;
  };
  template <class F>
  struct Model final : Concept {
    explicit Model(F f) : f_(std::move(f)) {}
    void run() override { f_(); }
    F f_;
  };
  std::unique_ptr<Concept> call_;
};

/// Where an owner's code runs: tasks posted to one executor run one at a time, in the order posted. The broker has one
/// per core (an asio::io_context), a simulation one in all. Crossing is a posted closure, never a lock.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Runs `task` later on this executor's thread, never inside the call. Any thread.
  virtual void post(Task task) = 0;
  /// Runs `task` on this executor's thread at `when` or soon after. Any thread. There is no cancel: the task looks at
  /// whether it is still wanted (a weak_ptr, a generation).
  virtual void post_at(Clock::TimePoint when, Task task) = 0;
  /// True on this executor's own thread.
  [[nodiscard]] virtual bool is_current() const = 0;
};

/// Posts kept back: what a thread posts inside a `Scope` goes at `send`, as one task an executor: one wake where there
/// would be many. The order of posts to one executor stays.
class HeldPosts {
 public:
  /// This thread's posts are kept in `posts` while it lives. One at a time a thread.
  class Scope {
   public:
    explicit Scope(HeldPosts& posts);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  /// Any thread. What is posted meanwhile goes with the next call.
  void send();
  /// For an Executor's `post`: true when this thread is inside a Scope, and `task` was taken.
  [[nodiscard]] static bool take(Executor& executor, Task& task);

 private:
  struct Held {
    Executor* executor;
    std::vector<Task> tasks;
  };
  std::mutex mutex_;
  std::vector<Held> held_;
};

}  // namespace ciuic
