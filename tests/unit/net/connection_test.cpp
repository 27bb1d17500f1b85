// A connection over loopback, its peer a plain blocking socket: framing, order, limits, budget.
#include "transport/kafka/net/connection.h"

#include <gtest/gtest.h>

#include <boost/asio.hpp>
#include <future>
#include <thread>

#include "transport/kafka/net/listener.h"

namespace ciuic::kafka::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

/// Answers with the request's own bytes; one whose fifth byte is 'w' waits to be let go, 'n' has no answer, 'c' closes.
class Echo final : public Service {
 public:
  explicit Echo(asio::io_context& context) : gate(context, asio::steady_timer::time_point::max()) {}
  asio::awaitable<Answer> handle(std::shared_ptr<Connection>, std::shared_ptr<const RequestBytes> request) override {
    const auto bytes = request->bytes();
    const auto kind = bytes.size() > 4 ? static_cast<char>(bytes[4]) : ' ';
    started.push_back(kind);
    if (kind == 'w') {
      boost::system::error_code error;
      co_await gate.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
    Answer answer;
    answer.close = kind == 'c';
    if (kind != 'n') {
      Frame frame;
      const auto size = static_cast<std::uint32_t>(bytes.size());
      for (const int shift : {24, 16, 8, 0}) frame.head.push_back(static_cast<std::byte>(size >> shift));
      frame.head.insert(frame.head.end(), bytes.begin(), bytes.end());
      answer.frame = std::move(frame);
    }
    co_return answer;
  }
  [[nodiscard]] std::optional<std::size_t> memory_for(std::int16_t api_key, std::size_t bytes) const override {
    if (api_key == 99) return std::nullopt;
    return bytes;
  }
  void closed(Connection&) override { ended.set_value(); }

  asio::steady_timer gate;
  std::string started;
  std::promise<void> ended;
};

class ConnectionTest : public ::testing::Test {
 protected:
  void open(ConnectionLimits with = {}, std::size_t budget_bytes = 1 << 20) {
    limits = with;
    budget = std::make_unique<MemoryBudget>(budget_bytes);
    auto made = Listener::open(context, "127.0.0.1", 0);
    ASSERT_TRUE(made) << made.error();
    listener.emplace(std::move(*made));
    asio::co_spawn(
        context,
        [this] {
          return listener->run([this]() -> asio::io_context& { return context; },
                               [this](tcp::socket socket) {
                                 auto connection =
                                     std::make_shared<Connection>(std::move(socket), 1, echo, *budget, limits);
                                 served = connection;
                                 asio::co_spawn(
                                     context, [connection] { return connection->run(); }, asio::detached);
                               });
        },
        asio::detached);
    thread = std::thread([this] { context.run(); });
    peer.connect({asio::ip::make_address("127.0.0.1"), listener->port()});
    timeval limit{10, 0};
    ::setsockopt(peer.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void TearDown() override {
    context.stop();
    if (thread.joinable()) thread.join();
  }
  /// A frame: its length, an API key, a version, then `body`.
  static std::string frame(std::string body, char api_key = 0) {
    constexpr std::size_t body_bytes_min = 4;  // a request's head has a correlation id at least
    body.resize(std::max(body.size(), body_bytes_min), ' ');
    const auto size = static_cast<std::uint32_t>(body.size() + 4);
    std::string out;
    for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(size >> shift));
    return out + std::string({0, api_key, 0, 0}) + body;
  }
  void send(const std::string& bytes) {
    boost::system::error_code error;
    asio::write(peer, asio::buffer(bytes), error);
  }
  /// The next `bytes` from the broker; fewer where it closed first.
  std::string receive(std::size_t bytes) {
    std::string out;
    while (out.size() < bytes) {
      char piece[4096];
      const auto got = ::recv(peer.native_handle(), piece, std::min(sizeof piece, bytes - out.size()), 0);
      if (got <= 0) break;
      out.append(piece, static_cast<std::size_t>(got));
    }
    return out;
  }
  bool closes() { return receive(1).empty() && echo.ended.get_future().wait_for(10s) == std::future_status::ready; }
  void on_context(std::function<void()> act) { asio::post(context, std::packaged_task<void()>(std::move(act))).wait(); }

  void wait_until_started(const std::string& kinds) {
    std::string seen;
    for (int i = 0; i < 5000 && seen != kinds; ++i) {
      std::this_thread::sleep_for(1ms);
      on_context([&] { seen = echo.started; });
    }
    ASSERT_EQ(seen, kinds);
  }

  asio::io_context context{1};
  Echo echo{context};
  ConnectionLimits limits;
  std::unique_ptr<MemoryBudget> budget;
  std::optional<Listener> listener;
  std::weak_ptr<Connection> served;
  std::thread thread;
  asio::io_context peer_context;
  tcp::socket peer{peer_context};
};

TEST_F(ConnectionTest, AFrameInSingleBytesIsOneRequest) {
  open();
  const auto whole = frame("hello");
  for (const char byte : whole) send(std::string(1, byte));
  EXPECT_EQ(receive(whole.size()), whole);
}

TEST_F(ConnectionTest, AnswersComeInTheOrderOfTheRequestsAlthoughTheFirstIsLast) {
  open();
  const auto first = frame("w first");
  const auto none = frame("n");
  const auto last = frame("b last");
  send(first + none + last);
  wait_until_started("wnb");
  on_context([&] { echo.gate.cancel(); });
  EXPECT_EQ(receive(first.size() + last.size()), first + last);
}

TEST_F(ConnectionTest, ALengthAboveTheLimitOrBelowZeroEndsItWithoutAnyMemory) {
  ConnectionLimits small;
  small.request_bytes_max = 1000;
  open(small);
  send(std::string("\x00\x00\x03\xe9", 4) + "xxxx");
  EXPECT_TRUE(closes());
  EXPECT_EQ(budget->used(), 0U);
}

TEST_F(ConnectionTest, ANegativeLengthEndsIt) {
  open();
  send("\xff\xff\xff\xff");
  EXPECT_TRUE(closes());
}

TEST_F(ConnectionTest, WhatIsTooLargeForItsApiEndsItBeforeItsBodyIsRead) {
  open();
  send(frame("body", 99));
  EXPECT_TRUE(closes());
  EXPECT_EQ(echo.started, "");
}

TEST_F(ConnectionTest, AnAnswerThatClosesIsWrittenFirst) {
  open();
  const auto bye = frame("c bye");
  send(bye);
  EXPECT_EQ(receive(bye.size()), bye);
  EXPECT_TRUE(closes());
}

TEST_F(ConnectionTest, NoMoreThanTheLimitAreStartedAtOnce) {
  ConnectionLimits few;
  few.in_flight_max = 2;
  open(few);
  const auto waits = frame("w");
  send(waits + waits + waits + waits);
  std::this_thread::sleep_for(200ms);
  on_context([&] { EXPECT_EQ(echo.started, "ww"); });
  on_context([&] { echo.gate.cancel(); });
  EXPECT_EQ(receive(2 * waits.size()), waits + waits);
  wait_until_started("wwww");
  on_context([&] { echo.gate.cancel(); });
  EXPECT_EQ(receive(2 * waits.size()), waits + waits);
}

TEST_F(ConnectionTest, MemoryIsGivenBackWithTheAnswerAndWhenThePeerGoesInAFrame) {
  open();
  const auto whole = frame(std::string(5000, 'x'));
  send(whole);
  EXPECT_EQ(receive(whole.size()), whole);
  send(whole.substr(0, 2000));
  peer.close();
  EXPECT_EQ(echo.ended.get_future().wait_for(10s), std::future_status::ready);
  for (int i = 0; i < 1000 && budget->used() > 0; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(budget->used(), 0U);
}

TEST_F(ConnectionTest, APeerThatGoesEndsWhatWaitsForIt) {
  open();
  send(frame("w long poll"));
  wait_until_started("w");
  peer.close();
  EXPECT_EQ(echo.ended.get_future().wait_for(10s), std::future_status::ready);  // nobody let the gate go
  for (int i = 0; i < 1000 && budget->used() > 0; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(budget->used(), 0U);
}

TEST_F(ConnectionTest, ASilentPeerIsCutAfterItsIdleTime) {
  ConnectionLimits idle;
  idle.idle_max = Milliseconds(100);
  open(idle);
  EXPECT_TRUE(closes());
}

TEST_F(ConnectionTest, DrainingAnswersWhatWasReadAndEnds) {
  open();
  const auto waits = frame("w");
  send(waits);
  wait_until_started("w");
  on_context([&] {
    if (const auto connection = served.lock()) connection->drain();
  });
  on_context([&] { echo.gate.cancel(); });
  EXPECT_EQ(receive(waits.size()), waits);
  EXPECT_TRUE(closes());
}

TEST(MemoryBudget, ARequestLargerThanAllIsLetInOnlyAlone) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.take(500));
  EXPECT_FALSE(budget.take(1));
  budget.give(500);
  EXPECT_TRUE(budget.take(60));
  EXPECT_FALSE(budget.take(500));
  EXPECT_FALSE(budget.take(41));
  EXPECT_TRUE(budget.take(40));
  budget.give(100);
  EXPECT_EQ(budget.used(), 0U);
}

}  // namespace
}  // namespace ciuic::kafka::net
