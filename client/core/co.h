#pragma once
#include <coroutine>
#include <cstdlib>
#include <optional>
#include <utility>

namespace ciuic::client::core {

/// A coroutine that runs when awaited, on the loop's thread, and gives a T. Never throws: errors are values.
template <class T = void>
class Co;

namespace detail {
struct PromiseBase {
  std::coroutine_handle<> continuation = std::noop_coroutine();
  struct Final {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept {
      return ended.promise().continuation;
    }
    void await_resume() const noexcept {}
  };
  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] Final final_suspend() const noexcept { return {}; }
  /// An exception here is a bug or memory exhausted: there is no state to go on from.
  void unhandled_exception() noexcept { std::abort(); }
};
}  // namespace detail

template <class T>
class [[nodiscard]] Co {
 public:
  struct promise_type : detail::PromiseBase {
    Co get_return_object() { return Co(std::coroutine_handle<promise_type>::from_promise(*this)); }
    template <class U>
    void return_value(U&& value) {
      result.emplace(std::forward<U>(value));
    }
    std::optional<T> result{};
  };
  Co(Co&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Co& operator=(Co&&) = delete;
  ~Co() {
    if (handle_) handle_.destroy();
  }
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
    handle_.promise().continuation = awaiting;
    return handle_;
  }
  T await_resume() { return std::move(*handle_.promise().result); }

 private:
  explicit Co(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

template <>
class [[nodiscard]] Co<void> {
 public:
  struct promise_type : detail::PromiseBase {
    Co get_return_object() { return Co(std::coroutine_handle<promise_type>::from_promise(*this)); }
    void return_void() {}
  };
  Co(Co&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Co& operator=(Co&&) = delete;
  ~Co() {
    if (handle_) handle_.destroy();
  }
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
    handle_.promise().continuation = awaiting;
    return handle_;
  }
  void await_resume() {}

 private:
  explicit Co(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace ciuic::client::core
