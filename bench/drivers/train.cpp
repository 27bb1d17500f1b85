// A data-parallel training job as its loader sees it: every rank needs its part of a global batch, then all compute.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <thread>

#include "bench/drivers/meter.h"
#include "bench/drivers/peer.h"
#include "bench/drivers/workloads.h"

namespace ciuic::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto no_data_longest = std::chrono::seconds(30);

/// Takes `wanted` records more; `in_hand` are those that came along before.
void take(Reader& reader, std::uint64_t wanted, std::uint64_t& in_hand) {
  const auto start = Clock::now();
  while (in_hand < wanted) {
    in_hand += reader.poll(Milliseconds(1000), Delivery::records).records;
    if (in_hand < wanted && Clock::now() - start > no_data_longest)
      throw std::runtime_error(fmt::format("no record came for {} s", no_data_longest.count()));
  }
  in_hand -= wanted;
}

/// REQUIRES: `sorted` is not empty.
double at_percentile(const std::vector<double>& sorted, double percent) {
  const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

void run_train(Words& words) {
  const auto topic = words.text("topic");
  const auto ranks = words.number("ranks");
  const auto batch = words.number("batch.records");
  const auto record_bytes = words.number("record.bytes");
  const std::chrono::milliseconds compute(words.number("step.ms"));
  const auto steps = words.number("steps"), warm = words.number("warm.steps", 3);
  const auto watched = static_cast<pid_t>(words.number("watch", 0));
  const auto settings = words.settings();
  words.all_used();
  if (ranks == 0 || batch == 0 || steps == 0) throw std::runtime_error("ranks, batch.records and steps: 1 or more");

  // A step ends for all when the slowest rank has its records, as with an all-reduce.
  std::barrier all(static_cast<std::ptrdiff_t>(ranks + 1));
  std::vector<std::thread> threads;
  std::string path;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto reader = open_reader(settings, fmt::format("{}-{}", topic, rank), 1, From::beginning);
        std::uint64_t in_hand = 0;
        for (std::uint64_t step = 0; step < warm + steps; ++step) {
          all.arrive_and_wait();
          take(*reader, batch, in_hand);
          all.arrive_and_wait();
          std::this_thread::sleep_for(compute);  // the accelerator's turn: the CPU has nothing to do
        }
        if (rank == 0) path = reader->path();
        all.arrive_and_wait();
      } catch (const std::exception& error) {
        fmt::print(stderr, "train: rank {}: {}\n", rank, error.what());
        std::fflush(stderr);
        ::_exit(1);
      }
    });
  }
  Meter meter(watched);
  auto start = Clock::now();
  std::vector<double> stalls;
  for (std::uint64_t step = 0; step < warm + steps; ++step) {
    all.arrive_and_wait();
    if (step == warm) {
      meter.restart();
      start = Clock::now();
    }
    const auto began = Clock::now();
    all.arrive_and_wait();
    if (step >= warm) stalls.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  all.arrive_and_wait();
  const std::chrono::duration<double> wall = Clock::now() - start;
  const auto usage = meter.read();
  for (auto& thread : threads) thread.join();
  std::sort(stalls.begin(), stalls.end());
  double stalled = 0;
  for (const auto one : stalls) stalled += one / 1000;
  nlohmann::ordered_json out{{"steps", steps},
                             {"records", steps * ranks * batch},
                             {"bytes", steps * ranks * batch * record_bytes},
                             {"seconds", wall.count()},
                             {"stalled_seconds", stalled},
                             {"stall_p50_ms", at_percentile(stalls, 50)},
                             {"stall_p99_ms", at_percentile(stalls, 99)},
                             {"path", path},
                             {"library", library()}};
  out.update(usage);
  fmt::print("{}\n", out.dump());
}

}  // namespace ciuic::bench
