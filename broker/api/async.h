#pragma once
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "transport/base/clock.h"

namespace ciuic::broker::api {

/// Runs `start(callback)` and resumes with what the callback is given. The callback is called once, on any thread.
/// `start` captures by reference: the caller's frame outlives it, and GCC 12 destroys twice what a closure that is a
/// temporary in a co_await owns (GCC bug 99576).
template <class T, class Start>
boost::asio::awaitable<T> await_callback(Start start) {
  static_assert(std::is_trivially_copyable_v<Start>, "capture by reference");
  co_return co_await boost::asio::async_initiate<const boost::asio::use_awaitable_t<>&, void(T)>(
      [start = std::move(start)](auto handler) mutable {
        auto executor = boost::asio::get_associated_executor(handler);
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        start([shared = std::move(shared), executor](T value) mutable {
          boost::asio::post(executor, [shared = std::move(shared), value = std::move(value)]() mutable {
            (*shared)(std::move(value));
          });
        });
      },
      boost::asio::use_awaitable);
}

/// As `await_callback`, but for no longer than `wait`: nothing if the callback was not called by then. `start` runs in
/// any case, and what it began goes on; a late value is dropped. No wait at all: nothing, always. REQUIRES: called on
/// `executor`, which runs one thing at a time.
template <class T, class Start>
boost::asio::awaitable<std::optional<T>> await_callback_for(boost::asio::any_io_executor executor, Milliseconds wait,
                                                            Start start) {
  static_assert(std::is_trivially_copyable_v<Start>, "capture by reference");
  struct Wait {
    Wait(const boost::asio::any_io_executor& at, Milliseconds wait) : timer(at, wait) {}
    boost::asio::steady_timer timer;
    std::optional<T> value{};
  };
  const auto state = std::make_shared<Wait>(executor, wait);
  start([state, executor](T value) {
    boost::asio::post(executor, [state, value = std::move(value)]() mutable {
      state->value.emplace(std::move(value));
      state->timer.cancel();
    });
  });
  if (wait <= Milliseconds::zero()) co_return std::nullopt;
  boost::system::error_code cancelled;
  do {  // a peer that goes cancels what is waited for, and is still answered
    co_await state->timer.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
  } while (cancelled && !state->value);
  co_return std::move(state->value);
}

}  // namespace ciuic::broker::api
