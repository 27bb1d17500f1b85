// The I/O thread: epoll, timers, posted tasks. Not here: what the sockets say (connection.cpp).
#include "client/core/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace ciuic::client::core {

Loop::Loop(const Clock& clock)
    : clock_(clock), epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_) std::abort();  // no descriptors at all: nothing can be told either
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_.get();
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
}

Loop::~Loop() { stop(); }

void Loop::start() {
  thread_ = std::thread([this] { run_thread(); });
}

void Loop::stop() {
  if (!thread_.joinable()) return;
  closing_.store(true);
  post([] {});
  thread_.join();
  {
    const std::scoped_lock lock(helper_mutex_);
    helper_stop_ = true;
  }
  helper_wake_.notify_all();
  if (helper_.joinable()) helper_.join();
}

void Loop::post(Task task) {
  bool wake = false;
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
    if (!is_current() && !wake_pending_) wake = wake_pending_ = true;
  }
  if (!wake) return;
  const std::uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Loop::post_at(Clock::TimePoint when, Task task) {
  bool wake = false;
  {
    const std::scoped_lock lock(mutex_);
    timers_.emplace(when, std::move(task));
    if (!is_current() && !wake_pending_) wake = wake_pending_ = true;
  }
  if (!wake) return;
  const std::uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Loop::watch(int fd, std::uint32_t events, IoHandler& handler) {
  if (handlers_.size() <= static_cast<std::size_t>(fd)) handlers_.resize(static_cast<std::size_t>(fd) + 1);
  handlers_[static_cast<std::size_t>(fd)] = &handler;
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Loop::change(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::forget(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  handlers_[static_cast<std::size_t>(fd)] = nullptr;
}

namespace {
/// A coroutine that nobody awaits: it frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() noexcept { std::abort(); }
  };
};
Detached detach(Co<void> work, std::size_t& alive) {
  ++alive;
  co_await work;
  --alive;
}
}  // namespace

void Loop::spawn(Co<void> work) { detach(std::move(work), alive_); }

void Loop::Sleep::await_suspend(std::coroutine_handle<> handle) {
  waiter = std::make_shared<Waiter>();
  waiter->handle = handle;
  loop.sleeping_.insert(waiter);
  if (list) {
    std::erase_if(*list, [](const auto& one) { return one->done; });  // those that timed out
    list->push_back(waiter);
  }
  loop.post_at(until, [&at = loop, one = waiter] {
    if (!one->done) at.resume(one, false);
  });
}

void Loop::Offload::await_suspend(std::coroutine_handle<> handle) {
  {
    const std::scoped_lock lock(loop.helper_mutex_);
    loop.helper_tasks_.emplace_back([this, handle] {
      work();
      loop.post([handle] { handle.resume(); });
    });
    if (!loop.helper_.joinable()) loop.helper_ = std::thread([&at = loop] { at.run_helper(); });
  }
  loop.helper_wake_.notify_one();
}

void Loop::resume(const std::shared_ptr<Waiter>& waiter, bool notified) {
  waiter->done = true;
  waiter->notified = notified;
  sleeping_.erase(waiter);
  waiter->handle.resume();
}

void Signal::notify() {
  auto waiters = std::move(waiters_);
  waiters_.clear();
  for (const auto& waiter : waiters) {
    if (waiter->done) continue;
    loop_.post([&loop = loop_, waiter] {
      if (!waiter->done) loop.resume(waiter, true);
    });
  }
}

int Loop::wait_ms() const {
  if (!tasks_.empty()) return 0;
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first - clock_.now();
  if (left <= Clock::Duration::zero()) return 0;
  // Rounded up, so that a timer is due when epoll returns.
  const auto ms = std::chrono::duration_cast<Milliseconds>(left).count() + 1;
  return static_cast<int>(std::min<std::int64_t>(ms, 60'000));
}

void Loop::run_timers() {
  const auto now = clock_.now();
  while (true) {
    Task task;
    {
      const std::scoped_lock lock(mutex_);
      if (timers_.empty() || timers_.begin()->first > now) return;
      task = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
    }
    task();
  }
}

void Loop::run_tasks() {
  std::deque<Task> tasks;
  {
    const std::scoped_lock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& task : tasks) task();
}

void Loop::run_thread() {
  thread_id_.store(std::this_thread::get_id());
  std::array<epoll_event, 64> events;
  while (true) {
    if (closing() && !closed_seen_) {
      closed_seen_ = true;
      for (const auto& waiter : std::set(sleeping_)) {
        if (!waiter->done) resume(waiter, false);
      }
    }
    int timeout = 0;
    {
      const std::scoped_lock lock(mutex_);
      if (closing() && alive_ == 0 && tasks_.empty()) return;
      timeout = wait_ms();
    }
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == wake_.get()) {
        std::uint64_t ignored = 0;
        while (read(fd, &ignored, sizeof ignored) > 0) {
        }
        const std::scoped_lock lock(mutex_);
        wake_pending_ = false;
        continue;
      }
      auto* const handler = handlers_[static_cast<std::size_t>(fd)];
      if (handler) handler->ready(events[static_cast<std::size_t>(i)].events);
    }
    run_timers();
    run_tasks();
  }
}

void Loop::run_helper() {
  while (true) {
    Task task;
    {
      std::unique_lock lock(helper_mutex_);
      helper_wake_.wait(lock, [this] { return helper_stop_ || !helper_tasks_.empty(); });
      if (helper_tasks_.empty()) return;
      task = std::move(helper_tasks_.front());
      helper_tasks_.pop_front();
    }
    task();
  }
}

}  // namespace ciuic::client::core
