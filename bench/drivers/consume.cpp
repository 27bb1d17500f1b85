// Reads a topic again and again, alone or with others at once.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <thread>

#include "bench/drivers/meter.h"
#include "bench/drivers/peer.h"
#include "bench/drivers/workloads.h"

namespace ciuic::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto no_data_longest = std::chrono::seconds(30);

Delivery delivery_of(const std::string& word) {
  if (word == "views") return Delivery::views;
  if (word == "copied") return Delivery::copied;
  if (word == "records") return Delivery::records;
  throw std::runtime_error("delivery=" + word + ": views, copied or records");
}

struct Job {
  std::string topic;
  std::uint64_t records;
  int partitions;
  Delivery delivery;
  std::chrono::duration<double> seconds;  ///< 0: every pass reads the topic once
};

/// One pass of one reader that stands at the beginning.
Polled read_pass(Reader& reader, const Job& job, bool timed) {
  Polled total;
  std::uint64_t left = job.records;
  const auto start = Clock::now();
  auto last_data = start;
  while (true) {
    const auto now = Clock::now();
    if (timed && now - start >= job.seconds) return total;
    if (now - last_data > no_data_longest)
      throw std::runtime_error(fmt::format("nothing came for {} s; {} of {} records were read", no_data_longest.count(),
                                           job.records - left, job.records));
    const auto got = reader.poll(Milliseconds(timed ? 100 : 1000), job.delivery);
    if (got.records == 0) continue;
    last_data = now;
    total.records += got.records;
    total.bytes += got.bytes;
    left -= std::min(left, got.records);
    if (left > 0) continue;
    if (!timed) return total;
    reader.rewind();
    left = job.records;
  }
}

/// A reader's failure ends the program: the others wait for it at the barrier.
template <class Work>
void or_end(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    fmt::print(stderr, "consume: {}\n", error.what());
    std::fflush(stderr);
    ::_exit(1);
  }
}

}  // namespace

void run_consume(Words& words) {
  Job job{words.text("topic"), words.number("records"), static_cast<int>(words.number("partitions", 1)),
          delivery_of(words.text("delivery", "views")),
          std::chrono::duration<double>(static_cast<double>(words.number("seconds", 0)))};
  const auto record_bytes = words.number("record.bytes");
  const auto passes = words.number("passes", 2);
  const auto count = words.number("readers", 1);
  const auto watched = static_cast<pid_t>(words.number("watch", 0));
  const auto settings = words.settings();
  words.all_used();
  if (count == 0 || passes == 0) throw std::runtime_error("readers and passes: 1 or more");

  std::vector<std::unique_ptr<Reader>> readers(count);
  std::vector<Polled> shares(count);
  std::barrier meet(static_cast<std::ptrdiff_t>(count + 1));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      or_end([&] {
        for (std::uint64_t pass = 1; pass <= passes; ++pass) {
          meet.arrive_and_wait();
          // The first pass has connecting and the first sight of the memory in it.
          if (pass == 1) readers[i] = open_reader(settings, job.topic, job.partitions, From::beginning);
          if (pass > 1) readers[i]->rewind();
          shares[i] = read_pass(*readers[i], job, pass > 1 && job.seconds.count() > 0);
          meet.arrive_and_wait();
        }
      });
    });
  }
  Meter meter(watched);
  for (std::uint64_t pass = 1; pass <= passes; ++pass) {
    meter.restart();
    const auto start = Clock::now();
    meet.arrive_and_wait();
    meet.arrive_and_wait();
    const std::chrono::duration<double> wall = Clock::now() - start;
    nlohmann::ordered_json out{
        {"pass", pass}, {"seconds", wall.count()}, {"path", readers.front()->path()}, {"library", library()}};
    meter.note_memory();
    // The broker's last work for the readers (releases, the end of sessions) is its cost too.
    if (pass == passes) or_end([&] { readers.clear(); });
    std::this_thread::sleep_for(Milliseconds(20));
    std::uint64_t records = 0, delivered = 0;
    auto each = nlohmann::ordered_json::array();
    for (const auto& share : shares) {
      records += share.records;
      delivered += share.bytes;
      each.push_back(share.records);
    }
    out.update({{"records", records},
                {"bytes", records * record_bytes},
                {"delivered_bytes", delivered},
                {"reader_records", each}});
    out.update(meter.read());
    fmt::print("{}\n", out.dump());
    std::fflush(stdout);
  }
  for (auto& thread : threads) thread.join();
}

void run_idle(Words& words) {
  const auto topic = words.text("topic");
  const auto partitions = static_cast<int>(words.number("partitions", 1));
  const auto count = words.number("readers");
  const std::chrono::seconds seconds(words.number("seconds"));
  const auto watched = static_cast<pid_t>(words.number("watch", 0));
  const auto settings = words.settings();
  words.all_used();

  std::vector<std::thread> threads;
  std::barrier meet(static_cast<std::ptrdiff_t>(count + 1));
  std::string path;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      or_end([&] {
        const auto reader = open_reader(settings, topic, partitions, From::end);
        std::ignore = reader->poll(Milliseconds(2000), Delivery::views);  // connected, grants taken, at the end
        meet.arrive_and_wait();
        const auto end = Clock::now() + seconds;
        while (Clock::now() < end) std::ignore = reader->poll(Milliseconds(1000), Delivery::views);
        if (i == 0) path = reader->path();
        meet.arrive_and_wait();
      });
    });
  }
  meet.arrive_and_wait();
  const Meter meter(watched);
  const auto start = Clock::now();
  meet.arrive_and_wait();
  const std::chrono::duration<double> wall = Clock::now() - start;
  nlohmann::ordered_json out{{"readers", count}, {"seconds", wall.count()}, {"path", path}, {"library", library()}};
  out.update(meter.read());
  fmt::print("{}\n", out.dump());
  for (auto& thread : threads) thread.join();
}

}  // namespace ciuic::bench
