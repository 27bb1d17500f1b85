// End to end in an open loop: from the time a record was due to the time its reader has it, both in this process.
#include <fmt/core.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "bench/drivers/latency_histogram.h"
#include "bench/drivers/meter.h"
#include "bench/drivers/payload.h"
#include "bench/drivers/workloads.h"

namespace ciuic::bench {
namespace {

constexpr std::int64_t second = 1'000'000'000;

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * second + time.tv_nsec;
}
void sleep_until(std::int64_t when) {
  const timespec time{when / second, when % second};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

/// In front of each value. `due` 0: asks whether the reader is there, counts for nothing.
struct Stamp {
  std::int64_t due;
  std::uint64_t number;
};

/// What one reader's thread has seen; read by others after it ended, but for the two counts.
struct Received {
  std::atomic<std::uint64_t> probes{0};
  std::atomic<std::uint64_t> records{0};
  LatencyHistogram histogram;
  std::string path, failure;
};

void take(Value value, std::uint64_t warm_records, Received& received) {
  const auto when = now();
  Stamp stamp{};
  if (value.size() < sizeof(stamp)) return;
  std::memcpy(&stamp, value.data(), sizeof(stamp));
  if (stamp.due == 0) {
    ++received.probes;
    return;
  }
  if (stamp.number >= warm_records) received.histogram.record(when - stamp.due);
  ++received.records;
}

}  // namespace

void run_latency(Words& words) {
  const auto topic = words.text("topic");
  const auto rate = words.number("rate");
  const auto warm_records = rate * words.number("warm.seconds", 1);
  const auto records = warm_records + rate * words.number("seconds");
  const auto record_bytes = words.number("record.bytes");
  const auto partitions = words.number("partitions", 1), readers = words.number("readers", 1);
  const auto watched = static_cast<pid_t>(words.number("watch", 0));
  const auto writing = words.settings(), reading = words.settings("read.");
  words.all_used();
  if (rate == 0 || rate > 1'000'000) throw std::runtime_error("rate: 1 to 1,000,000 a second");
  if (partitions == 0 || partitions > 10'000) throw std::runtime_error("partitions: 1 to 10,000");
  if (readers == 0 || readers > 256) throw std::runtime_error("readers: 1 to 256");
  if (record_bytes < sizeof(Stamp)) throw std::runtime_error(fmt::format("record.bytes: {} or more", sizeof(Stamp)));
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // threads started from here on inherit it; the default is late by 50 us

  std::vector<Received> received(readers);
  std::atomic<bool> ending{false};
  std::vector<std::thread> threads;
  for (auto& mine : received)
    threads.emplace_back([&] {
      try {
        const auto one = open_reader(reading, topic, static_cast<int>(partitions), From::end);
        while (!ending) one->poll_values(Milliseconds(200), [&](Value value) { take(value, warm_records, mine); });
        mine.path = one->path();
      } catch (const std::exception& error) {
        mine.failure = error.what();
        mine.probes = 1;  // lets the writer go on to the end
        mine.records = records;
      }
    });
  const auto all_have = [&](std::uint64_t wanted, std::atomic<std::uint64_t> Received::*count) {
    return std::all_of(received.begin(), received.end(), [&](const auto& one) { return one.*count >= wanted; });
  };

  Payload payload("random", record_bytes);
  std::vector<std::byte> value(record_bytes);
  const auto send = [&](Writer& writer, Stamp stamp) {
    const auto body = payload.next();
    std::memcpy(value.data(), body.data(), body.size());
    std::memcpy(value.data(), &stamp, sizeof(stamp));
    writer.send(value);
  };
  const auto end_readers = [&] {
    ending = true;
    for (auto& one : threads)
      if (one.joinable()) one.join();
  };
  try {
    const auto writer = open_writer(writing, topic);
    const auto given_up = now() + 30 * second;
    while (!all_have(1, &Received::probes)) {
      if (now() > given_up) throw std::runtime_error("a reader saw nothing within 30 s");
      send(*writer, {0, 0});
      std::this_thread::sleep_for(Milliseconds(20));
    }
    writer->flush();
    Meter meter(watched);
    const auto start = now() + 10'000'000;
    std::int64_t measured_from = start, latest = 0;
    for (std::uint64_t i = 0; i < records; ++i) {
      const auto due = start + static_cast<std::int64_t>(i * static_cast<std::uint64_t>(second) / rate);
      sleep_until(due);
      if (i == warm_records) {
        meter.restart();
        measured_from = due;
      }
      send(*writer, {due, i});
      latest = std::max(latest, now() - due);
    }
    const auto sent_by = now();
    writer->flush();
    for (const auto end = now() + 10 * second; !all_have(records, &Received::records) && now() < end;)
      std::this_thread::sleep_for(Milliseconds(1));
    const auto usage = meter.read();
    const auto wall = static_cast<double>(now() - measured_from) / second;
    end_readers();
    LatencyHistogram seen;
    std::uint64_t missing = 0;
    for (const auto& one : received) {
      if (!one.failure.empty()) throw std::runtime_error("a reader: " + one.failure);
      seen.add(one.histogram);
      missing += records - one.records;
    }
    const auto us = [&](double percent) { return static_cast<double>(seen.at_percentile(percent)) / 1000; };
    nlohmann::ordered_json out{{"records", records - warm_records},
                               {"bytes", (records - warm_records) * record_bytes},
                               {"missing", missing},
                               {"seconds", wall},
                               {"rate_sent", static_cast<double>(records - warm_records) * second /
                                                 static_cast<double>(sent_by - measured_from)},
                               {"sender_late_max_us", static_cast<double>(latest) / 1000},
                               {"p50_us", us(50)},
                               {"p90_us", us(90)},
                               {"p99_us", us(99)},
                               {"p999_us", us(99.9)},
                               {"p9999_us", us(99.99)},
                               {"max_us", static_cast<double>(seen.max()) / 1000},
                               {"histogram", seen.encoded()},
                               {"path", received.front().path},
                               {"library", library()}};
    out.update(usage);
    fmt::print("{}\n", out.dump());
  } catch (...) {
    end_readers();
    throw;
  }
}

}  // namespace ciuic::bench
