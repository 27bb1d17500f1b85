// Reads one topic over TCP Fetch and one-sidedly, and says what each cost. Compares both streams batch by batch.
//   onesided_vs_tcp BOOTSTRAP BROKER_PID TOPIC fill BYTES RECORD_BYTES CODEC
//   onesided_vs_tcp BOOTSTRAP BROKER_PID TOPIC read TRANSPORT      one line of JSON for each of two passes
//   onesided_vs_tcp BOOTSTRAP BROKER_PID TOPIC compare             one line of JSON
// Settings of the reading client go in front: onesided_vs_tcp KEY=VALUE … BOOTSTRAP …
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "ciuic/client.h"

namespace {

using namespace ciuic::client;

/// Seconds that all threads of a process have run, to the nanosecond: /proc/PID/stat counts whole ticks, which is more
/// than one-sided reads cost a broker. REQUIRES: no thread of it ends meanwhile.
double cpu_seconds(const std::string& pid) {
  double nanoseconds = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + pid + "/task")) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0;
    if (file >> ran) nanoseconds += ran;
  }
  return nanoseconds / 1e9;
}

std::vector<TopicPartition> partitions_of(Consumer& consumer, const std::string& topic) {
  const std::vector<std::string> names{topic};
  std::vector<TopicPartition> out;
  for (const auto& info : consumer.topics(names).value()) {
    for (const auto& one : info.partitions) out.push_back({info.topic, one.partition});
  }
  return out;
}

/// Of the reading client, from the command line.
Config& more_settings() {
  static Config settings;
  return settings;
}

Config reader_settings(const std::string& bootstrap, const std::string& transport) {
  Config settings{{"bootstrap.servers", bootstrap},
                  {"transport", transport},
                  // Else the second pass begins behind a Fetch that waits at the end of the first.
                  {"fetch.max.wait.ms", "1"},
                  {"fetch.max.bytes", "52428800"},
                  {"max.partition.fetch.bytes", "8388608"}};
  settings.insert(settings.end(), more_settings().begin(), more_settings().end());
  return settings;
}

/// A consumer at the beginning of every partition, and where each ends now.
struct Stream {
  Stream(const std::string& bootstrap, const std::string& topic, const std::string& transport)
      : consumer(Consumer::open(reader_settings(bootstrap, transport)).value()) {
    const auto partitions = partitions_of(consumer, topic);
    std::vector<TopicPartitionOffset> from;
    for (const auto& at : partitions) from.push_back({at.topic, at.partition, offset_beginning, {}});
    for (const auto& end : consumer.end_offsets(partitions).value()) {
      if (end.offset > 0) ends[end.partition] = end.offset;
    }
    left = ends;
    consumer.assign(from).value();
  }
  void rewind(const std::string& topic) {
    for (const auto& [partition, end] : ends) consumer.seek({topic, partition}, offset_beginning).value();
    left = ends;
  }
  /// Batches, until every partition's end has been read: then nothing.
  std::span<const RecordBatch> next() {
    while (!left.empty()) {
      const auto batches = consumer.poll(Milliseconds(1000)).value();
      if (batches.empty()) continue;
      const auto& last = batches.back();
      if (const auto end = left.find(last.partition()); end != left.end() && last.last_offset() + 1 >= end->second)
        left.erase(end);
      return batches;
    }
    return {};
  }
  Consumer consumer;
  std::map<std::int32_t, std::int64_t> ends;
  std::map<std::int32_t, std::int64_t> left;
};

void fill(const std::string& bootstrap, const std::string& topic, std::uint64_t bytes, std::size_t record_bytes,
          const std::string& codec) {
  auto producer = Producer::open({{"bootstrap.servers", bootstrap},
                                  {"compression.type", codec},
                                  {"batch.size", "262144"},
                                  {"linger.ms", "20"},
                                  {"max.request.size", "4194304"}})
                      .value();
  std::mt19937_64 dice(1);
  std::vector<char> value(record_bytes);
  for (std::uint64_t sent = 0; sent < bytes; sent += record_bytes) {
    for (std::size_t i = 0; i + 8 <= value.size(); i += 8) {
      const auto word = dice();
      std::memcpy(value.data() + i, &word, 8);
    }
    RecordToSend record;
    record.topic = topic;
    record.value = as_bytes(std::string_view(value.data(), value.size()));
    producer.send(record).value();
  }
  producer.flush().value();
  producer.close().value();
}

void read_pass(Stream& stream, const std::string& pid, const std::string& topic, const std::string& transport,
               const char* pass, bool last) {
  const auto cpu_before = cpu_seconds(pid);
  const auto own_before = cpu_seconds("self");
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t bytes = 0, batches = 0, records = 0;
  bool in_force = true;
  while (true) {
    const auto got = stream.next();
    if (got.empty()) break;
    for (const auto& batch : got) {
      bytes += batch.bytes().size();
      records += static_cast<std::uint64_t>(batch.record_count());
      ++batches;
    }
    in_force = in_force && got.front().in_force();
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  const auto own = cpu_seconds("self") - own_before;
  const auto path = stream.consumer.path({topic, 0});
  // The broker's last work for us (a release, the end of the session) is its cost too.
  if (last) stream.consumer.close().value();
  ::usleep(50'000);
  fmt::print(
      "{{\"pass\":\"{}\",\"transport\":\"{}\",\"path\":\"{}\",\"provider\":\"{}\",\"bytes\":{},\"batches\":{},"
      "\"records\":{},\"seconds\":{:.6f},\"broker_cpu_seconds\":{:.6f},\"reader_cpu_seconds\":{:.4f},\"in_force\":{}}}"
      "\n",
      pass, transport, name(path.path), path.provider, bytes, batches, records, wall.count(),
      cpu_seconds(pid) - cpu_before, own, in_force);
}

/// Twice, as a trainer reads its epochs. The first pass also connects, takes grants and maps memory it never saw.
void read(const std::string& bootstrap, const std::string& pid, const std::string& topic,
          const std::string& transport) {
  Stream stream(bootstrap, topic, transport);
  read_pass(stream, pid, topic, transport, "first", false);
  stream.rewind(topic);
  read_pass(stream, pid, topic, transport, "again", true);
}

/// Both streams at once, one batch of a partition beside the other's.
void compare(const std::string& bootstrap, const std::string& topic) {
  Stream tcp(bootstrap, topic, "tcp"), one_sided(bootstrap, topic, "rdma");
  std::map<std::int32_t, std::vector<RecordBatch>> waiting;
  std::uint64_t same = 0, different = 0;
  bool tcp_open = true, one_sided_open = true;
  const auto meet = [&](const RecordBatch& batch, std::map<std::int32_t, std::vector<RecordBatch>>& others) {
    auto& list = others[batch.partition()];
    const auto other = std::find_if(list.begin(), list.end(),
                                    [&](const RecordBatch& one) { return one.base_offset() == batch.base_offset(); });
    if (other == list.end()) return false;
    const bool equal = other->bytes().size() == batch.bytes().size() &&
                       std::memcmp(other->bytes().data(), batch.bytes().data(), batch.bytes().size()) == 0 &&
                       other->in_force() && batch.in_force();
    ++(equal ? same : different);
    list.erase(other);
    return true;
  };
  std::map<std::int32_t, std::vector<RecordBatch>> from_tcp, from_one_sided;
  while (tcp_open || one_sided_open) {
    if (tcp_open) {
      const auto got = tcp.next();
      tcp_open = !got.empty();
      for (const auto& batch : got) {
        if (!meet(batch, from_one_sided)) from_tcp[batch.partition()].push_back(batch);
      }
    }
    if (one_sided_open) {
      const auto got = one_sided.next();
      one_sided_open = !got.empty();
      for (const auto& batch : got) {
        if (!meet(batch, from_tcp)) from_one_sided[batch.partition()].push_back(batch);
      }
    }
  }
  std::size_t alone = 0;
  for (const auto& [partition, list] : from_tcp) alone += list.size();
  for (const auto& [partition, list] : from_one_sided) alone += list.size();
  fmt::print("{{\"same\":{},\"different\":{},\"alone\":{}}}\n", same, different, alone);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  while (!words.empty() && words.front().find('=') != std::string::npos) {
    const auto at = words.front().find('=');
    more_settings().emplace_back(words.front().substr(0, at), words.front().substr(at + 1));
    words.erase(words.begin());
  }
  try {
    if (words.size() == 7 && words[3] == "fill") {
      fill(words[0], words[2], std::stoull(words[4]), std::stoul(words[5]), words[6]);
    } else if (words.size() == 5 && words[3] == "read") {
      read(words[0], words[1], words[2], words[4]);
    } else if (words.size() == 4 && words[3] == "compare") {
      compare(words[0], words[2]);
    } else {
      fmt::print(stderr, "run bench/onesided_vs_tcp, which knows the arguments\n");
      return 2;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "onesided_vs_tcp: {}\n", error.what());
    return 1;
  }
  return 0;
}
