#pragma once
#include <functional>
#include <memory>
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

/// What its thread posts while one lives goes at `send`, as one task an executor: one wake where there would be many.
/// The order of posts to one executor stays. One a thread; used on that thread only.
class HeldPosts {
 public:
  HeldPosts();
  ~HeldPosts();  ///< sends
  HeldPosts(const HeldPosts&) = delete;
  HeldPosts& operator=(const HeldPosts&) = delete;

  void send();
  /// For an Executor's `post`: true when this thread holds its posts, and `task` was taken.
  [[nodiscard]] static bool take(Executor& executor, Task& task);

 private:
  struct Held {
    Executor* executor;
    std::vector<Task> tasks;
  };
  std::vector<Held> held_;
};

}  // namespace ciuic
