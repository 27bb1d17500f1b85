// How long a consumer group takes to share its partitions out anew.
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "bench/drivers/meter.h"
#include "bench/drivers/peer.h"
#include "bench/drivers/workloads.h"

namespace ciuic::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto longest = std::chrono::seconds(120);

/// A member on a thread of its own, as in a program of its own.
class Running {
 public:
  Running(const Settings& settings, const std::string& topic)
      : thread_([this, settings, topic] {
          try {
            const auto member = open_member(settings, topic);
            while (!ending_) {
              member->poll(Milliseconds(10));
              assigned_ = member->assigned();
            }
          } catch (const std::exception& error) {
            fmt::print(stderr, "group: a member: {}\n", error.what());
            std::fflush(stderr);
            ::_exit(1);
          }
        }) {}
  ~Running() {
    ending_ = true;
    thread_.join();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  [[nodiscard]] std::size_t assigned() const { return assigned_; }

 private:
  std::atomic<bool> ending_{false};
  std::atomic<std::size_t> assigned_{0};
  std::thread thread_;  // uses the others: it begins after and ends before them
};

using Members = std::vector<std::unique_ptr<Running>>;

/// Every partition is somebody's, and nobody has less than an even share.
bool shared_out(const Members& members, std::size_t partitions) {
  std::size_t sum = 0;
  for (const auto& member : members) {
    const auto has = member->assigned();
    if (has < partitions / members.size()) return false;
    sum += has;
  }
  return sum == partitions;
}

double seconds_until_shared(const Members& members, std::size_t partitions, Clock::time_point start) {
  while (!shared_out(members, partitions)) {
    if (Clock::now() - start > longest)
      throw std::runtime_error(fmt::format("{} members have not shared {} partitions out within {} s", members.size(),
                                           partitions, longest.count()));
    std::this_thread::sleep_for(Milliseconds(1));
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

void run_group(Words& words) {
  const auto topic = words.text("topic");
  const auto partitions = words.number("partitions");
  const auto count = words.number("members");
  const auto watched = static_cast<pid_t>(words.number("watch", 0));
  const auto settings = words.settings();
  words.all_used();
  if (count == 0 || partitions <= count) throw std::runtime_error("members: 1 or more, and fewer than partitions");

  const Meter meter(watched);
  Members members;
  auto start = Clock::now();
  for (std::uint64_t i = 0; i < count; ++i) members.push_back(std::make_unique<Running>(settings, topic));
  const auto all = seconds_until_shared(members, partitions, start);
  start = Clock::now();
  members.push_back(std::make_unique<Running>(settings, topic));
  const auto one_more = seconds_until_shared(members, partitions, start);
  start = Clock::now();
  members.pop_back();
  const auto one_less = seconds_until_shared(members, partitions, start);
  nlohmann::ordered_json out{
      {"all_seconds", all}, {"one_more_seconds", one_more}, {"one_less_seconds", one_less}, {"library", library()}};
  out.update(meter.read());
  fmt::print("{}\n", out.dump());
}

}  // namespace ciuic::bench
