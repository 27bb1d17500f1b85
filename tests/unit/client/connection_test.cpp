#include "client/core/connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "client/core/cluster.h"
#include "tests/unit/client/producer_script.h"
#include "transport/kafka/messages/produce.h"

namespace ciuic::client::core {
namespace {
using namespace std::chrono_literals;
using test::ScriptedBroker;

struct Ended {
  Trouble trouble{};
  Clock::Duration after{};
};

Co<void> ask(Loop& loop, std::shared_ptr<Connection> connection, Clock::Duration timeout, Ended& out, int& left) {
  const auto began = loop.clock().now();
  kafka::ProduceRequest request;
  request.acks = -1;
  const auto answer = co_await connection->call<kafka::ProduceResponse>(std::move(request), timeout);
  if (!answer) out.trouble = answer.error().trouble;
  out.after = loop.clock().now() - began;
  --left;
}

Co<std::vector<Ended>> ask_all(Loop& loop, Address address, const CommonSettings& settings,
                               std::vector<Milliseconds> timeouts) {
  auto opened = co_await Connection::open(loop, std::move(address), settings);
  std::vector<Ended> out(timeouts.size());
  EXPECT_TRUE(opened) << opened.error().text;
  if (!opened) co_return out;
  int left = static_cast<int>(timeouts.size());
  for (std::size_t i = 0; i < timeouts.size(); ++i) {
    loop.spawn(ask(loop, *opened, timeouts[i], out[i], left));
    (void)co_await loop.sleep(30ms);
  }
  while (left > 0) (void)co_await loop.sleep(10ms);
  co_return out;
}

/// The earliest deadline ends the connection, and with it all that waits there, in whichever order they were asked.
TEST(Connection, TheEarliestDeadlineCountsInWhicheverOrderRequestsWereMade) {
  ScriptedBroker broker(1, [](const auto&) { return test::Verdict{}; });
  broker.stay_silent();
  const auto text = broker.address();
  const Address address{"127.0.0.1", static_cast<std::uint16_t>(std::atoi(text.c_str() + text.find(':') + 1))};
  CommonSettings settings;
  settings.request_timeout_ms = settings.connect_timeout_ms = 10'000;
  settings.answer_bytes_max = 1 << 20;
  Loop loop(system_clock());
  loop.start();
  std::vector<Milliseconds> timeouts{10'000ms, 400ms, 5'000ms};
  std::sort(timeouts.begin(), timeouts.end());
  do {
    const auto ended = loop.run<std::vector<Ended>>([&] { return ask_all(loop, address, settings, timeouts); });
    for (const auto& one : ended) {
      EXPECT_EQ(one.trouble, Trouble::timed_out);
      EXPECT_GE(one.after, 300ms);
      EXPECT_LT(one.after, 3s);
    }
  } while (std::next_permutation(timeouts.begin(), timeouts.end()));
  loop.stop();
}

}  // namespace
}  // namespace ciuic::client::core
