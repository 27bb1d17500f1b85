// Reads one topic over TCP Fetch and one-sidedly, side by side, and compares both streams batch by batch.
//   bench_same_streams topic=t set.bootstrap.servers=127.0.0.1:9092 …      one line of JSON; ends with 1 where they
//   differ
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "bench/drivers/words.h"
#include "ciuic/client.h"

namespace {

using namespace ciuic::client;

/// A consumer at the beginning of every partition, and where each ends now.
class Stream {
 public:
  Stream(Config settings, const std::string& topic, const char* transport) : consumer_(open(settings, transport)) {
    const std::vector<std::string> names{topic};
    std::vector<TopicPartition> partitions;
    std::vector<TopicPartitionOffset> from;
    for (const auto& info : consumer_.topics(names).value()) {
      for (const auto& one : info.partitions) {
        partitions.push_back({info.topic, one.partition});
        from.push_back({info.topic, one.partition, offset_beginning, {}});
      }
    }
    for (const auto& end : consumer_.end_offsets(partitions).value()) {
      if (end.offset > 0) left_[end.partition] = end.offset;
    }
    consumer_.assign(from).value();
  }
  /// Batches, until every partition's end has been read: then nothing.
  std::span<const RecordBatch> next() {
    while (!left_.empty()) {
      const auto batches = consumer_.poll(Milliseconds(1000)).value();
      if (batches.empty()) continue;
      const auto& last = batches.back();
      if (const auto end = left_.find(last.partition()); end != left_.end() && last.last_offset() + 1 >= end->second)
        left_.erase(end);
      return batches;
    }
    return {};
  }

 private:
  static Consumer open(Config& settings, const char* transport) {
    settings.emplace_back("transport", transport);
    return Consumer::open(settings).value();
  }
  Consumer consumer_;
  std::map<std::int32_t, std::int64_t> left_;
};

/// Batches of one stream that the other has not come to, by partition.
using Waiting = std::map<std::int32_t, std::vector<RecordBatch>>;

struct Compared {
  std::uint64_t same = 0, different = 0;
  std::size_t alone = 0;
};

bool equal(const RecordBatch& one, const RecordBatch& other) {
  return one.bytes().size() == other.bytes().size() &&
         std::memcmp(one.bytes().data(), other.bytes().data(), other.bytes().size()) == 0 && one.in_force() &&
         other.in_force();
}

/// Takes the stream's next batches to those of the other's that wait; false: it has ended.
bool advance(Stream& stream, Waiting& mine, Waiting& others, Compared& out) {
  const auto got = stream.next();
  for (const auto& batch : got) {
    auto& list = others[batch.partition()];
    const auto other = std::find_if(list.begin(), list.end(),
                                    [&](const RecordBatch& one) { return one.base_offset() == batch.base_offset(); });
    if (other == list.end()) {
      mine[batch.partition()].push_back(batch);
      continue;
    }
    ++(equal(*other, batch) ? out.same : out.different);
    list.erase(other);
  }
  return !got.empty();
}

Compared compare(const Config& settings, const std::string& topic) {
  Stream tcp(settings, topic, "tcp"), one_sided(settings, topic, "rdma");
  Waiting from_tcp, from_one_sided;
  Compared out;
  bool tcp_open = true, one_sided_open = true;
  while (tcp_open || one_sided_open) {
    tcp_open = tcp_open && advance(tcp, from_tcp, from_one_sided, out);
    one_sided_open = one_sided_open && advance(one_sided, from_one_sided, from_tcp, out);
  }
  for (const auto* side : {&from_tcp, &from_one_sided}) {
    for (const auto& [partition, list] : *side) out.alone += list.size();
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    ciuic::bench::Words words(argc, argv, 1);
    const auto topic = words.text("topic");
    const auto settings = words.settings();
    words.all_used();
    const auto found = compare(settings, topic);
    fmt::print("{{\"same\":{},\"different\":{},\"alone\":{}}}\n", found.same, found.different, found.alone);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_same_streams: {}\n", error.what());
    return 1;
  }
}
