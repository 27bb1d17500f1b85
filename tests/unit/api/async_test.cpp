// Waiting for a callback with a limit: in time, too late, never, and a limit of nothing.
#include "broker/api/async.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <thread>

namespace ciuic::broker::api {
namespace {

namespace asio = boost::asio;

class AwaitForTest : public ::testing::Test {
 protected:
  /// Waits at most `wait` for what `begin` arranges to call; -1: it gave up.
  int await_for(Milliseconds wait, const std::function<void(std::function<void(int)>)>& begin) {
    std::optional<int> got;
    auto body = [&]() -> asio::awaitable<void> {
      const auto value =
          co_await await_callback_for<int>(context.get_executor(), wait, [&](auto done) { begin(done); });
      got = value.value_or(-1);
    };
    asio::co_spawn(context, body, asio::detached);
    context.run();
    context.restart();
    return got.value_or(-2);
  }

  asio::io_context context{1};
};

TEST_F(AwaitForTest, AValueInTimeIsGivenFromAnyThread) {
  EXPECT_EQ(await_for(Milliseconds(10'000), [](auto done) { done(7); }), 7);
  std::thread other;
  EXPECT_EQ(await_for(Milliseconds(10'000), [&](auto done) { other = std::thread([done] { done(8); }); }), 8);
  other.join();
}

TEST_F(AwaitForTest, NothingAfterTheLimitAndALateValueIsDropped) {
  std::function<void(int)> late;
  EXPECT_EQ(await_for(Milliseconds(1), [&](auto done) { late = done; }), -1);
  late(9);
  context.run();
}

TEST_F(AwaitForTest, NoWaitStartsAndGivesNothingEvenWhereTheValueIsThere) {
  for (const int wait : {0, -1}) {
    bool started = false;
    EXPECT_EQ(await_for(Milliseconds(wait),
                        [&](auto done) {
                          started = true;
                          done(7);
                        }),
              -1);
    EXPECT_TRUE(started);
  }
}

}  // namespace
}  // namespace ciuic::broker::api
