#pragma once
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <type_traits>
#include <utility>

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

}  // namespace ciuic::broker::api
