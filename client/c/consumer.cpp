// The consumer across the C ABI.
#include <map>
#include <nlohmann/json.hpp>

#include "client/c/handles.h"

using namespace ciuic;  // NOLINT: a file of one-line bridges

struct ciuic_consumer {
  client::Consumer consumer;
  std::vector<ciuic_batch> batches{};  // what the last poll gave
  std::vector<ciuic_batch*> pointers{};
};

namespace {

/// Answers that came for partitions, into the caller's array.
std::int32_t fill(const client::Result<std::vector<client::TopicPartitionOffset>>& found,
                  ciuic_topic_partition* partitions, std::size_t count, ciuic_error* error) {
  if (!found) return c::report(found.error(), error);
  std::map<std::pair<std::string, std::int32_t>, std::int64_t> by_partition;
  for (const auto& one : *found) by_partition[{one.topic, one.partition}] = one.offset;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = by_partition.find({partitions[i].topic, partitions[i].partition});
    partitions[i].offset = at == by_partition.end() ? -1 : at->second;
  }
  return 0;
}

client::Milliseconds ms(std::int64_t count) {
  return client::Milliseconds(std::clamp<std::int64_t>(count, 0, 86'400'000));
}

}  // namespace

extern "C" {

int32_t ciuic_consumer_open(const ciuic_config_entry* config, size_t count, ciuic_consumer** consumer,
                            ciuic_error* error) {
  *consumer = nullptr;
  return c::guarded(error, [&] {
    auto opened = client::Consumer::open(c::config_of(config, count));
    if (!opened) return c::report(opened.error(), error);
    *consumer = new ciuic_consumer{*std::move(opened)};
    return 0;
  });
}

void ciuic_consumer_close(ciuic_consumer* consumer) {
  if (consumer == nullptr) return;
  (void)c::guarded(nullptr, [&] {
    consumer->batches.clear();
    delete consumer;
    return 0;
  });
}

int32_t ciuic_consumer_land_in(ciuic_consumer* consumer, int32_t memory, void* at, size_t bytes, ciuic_error* error) {
  return c::guarded(error, [&] {
    if (memory != CIUIC_MEMORY_HOST && memory != CIUIC_MEMORY_CUDA)
      return c::report(client::Trouble::invalid_argument, "memory: it is none of ciuic_memory", error);
    return c::outcome(consumer->consumer.land_in({static_cast<client::Memory>(memory), at, bytes}), error);
  });
}

int32_t ciuic_consumer_assign(ciuic_consumer* consumer, const ciuic_topic_partition* partitions, size_t count,
                              ciuic_error* error) {
  return c::guarded(error,
                    [&] { return c::outcome(consumer->consumer.assign(c::offsets_of(partitions, count)), error); });
}

int32_t ciuic_consumer_subscribe(ciuic_consumer* consumer, const char* const* topics, size_t count,
                                 ciuic_rebalance_callback callback, void* opaque, ciuic_error* error) {
  return c::guarded(error, [&] {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) names.emplace_back(topics[i] == nullptr ? "" : topics[i]);
    client::RebalanceListener listener;
    if (callback != nullptr) {
      const auto teller = [callback, opaque](std::int32_t event) {
        return [callback, opaque, event](std::span<const client::TopicPartition> partitions) {
          const auto list = c::to_c(partitions);
          callback(opaque, event, list.data(), list.size());
        };
      };
      listener.assigned = teller(0);
      listener.revoked = teller(1);
      listener.lost = teller(2);
    }
    return c::outcome(consumer->consumer.subscribe(std::move(names), std::move(listener)), error);
  });
}

int32_t ciuic_consumer_unsubscribe(ciuic_consumer* consumer, ciuic_error* error) {
  return c::guarded(error, [&] { return c::outcome(consumer->consumer.unsubscribe(), error); });
}

int32_t ciuic_consumer_assignment(ciuic_consumer* consumer,
                                  void (*visit)(void* opaque, const ciuic_topic_partition* partition), void* opaque,
                                  ciuic_error* error) {
  return c::guarded(error, [&] {
    if (auto usable = consumer->consumer.pause({}); !usable) return c::report(usable.error(), error);
    for (const auto& lag : consumer->consumer.lags()) {
      const ciuic_topic_partition one{lag.at.topic.c_str(), lag.at.partition, lag.position};
      visit(opaque, &one);
    }
    return 0;
  });
}

int32_t ciuic_poll(ciuic_consumer* consumer, int64_t timeout_ms, ciuic_batch* const** batches, size_t* count,
                   ciuic_error* error) {
  *count = 0;
  *batches = nullptr;
  return c::guarded(error, [&] {
    consumer->pointers.clear();
    consumer->batches.clear();
    const auto got = consumer->consumer.poll(ms(timeout_ms));
    if (!got) return c::report(got.error(), error);
    consumer->batches.reserve(got->size());
    for (const auto& batch : *got) consumer->batches.push_back({batch});
    for (auto& batch : consumer->batches) consumer->pointers.push_back(&batch);
    *batches = consumer->pointers.data();
    *count = consumer->pointers.size();
    return 0;
  });
}

void ciuic_consumer_wakeup(ciuic_consumer* consumer) { consumer->consumer.wakeup(); }

int32_t ciuic_consumer_seek(ciuic_consumer* consumer, const char* topic, int32_t partition, int64_t offset,
                            ciuic_error* error) {
  return c::guarded(error, [&] { return c::outcome(consumer->consumer.seek({topic, partition}, offset), error); });
}
int32_t ciuic_consumer_seek_to_time(ciuic_consumer* consumer, const char* topic, int32_t partition,
                                    int64_t timestamp_ms, int64_t timeout_ms, ciuic_error* error) {
  return c::guarded(error, [&] {
    return c::outcome(consumer->consumer.seek_to_time({topic, partition}, timestamp_ms, ms(timeout_ms)), error);
  });
}
int32_t ciuic_consumer_position(ciuic_consumer* consumer, const char* topic, int32_t partition, int64_t timeout_ms,
                                int64_t* position, ciuic_error* error) {
  return c::guarded(error, [&] {
    const auto found = consumer->consumer.position({topic, partition}, ms(timeout_ms));
    if (found) *position = *found;
    return c::outcome(found, error);
  });
}
int32_t ciuic_consumer_pause(ciuic_consumer* consumer, const ciuic_topic_partition* partitions, size_t count,
                             ciuic_error* error) {
  return c::guarded(error,
                    [&] { return c::outcome(consumer->consumer.pause(c::partitions_of(partitions, count)), error); });
}
int32_t ciuic_consumer_resume(ciuic_consumer* consumer, const ciuic_topic_partition* partitions, size_t count,
                              ciuic_error* error) {
  return c::guarded(error,
                    [&] { return c::outcome(consumer->consumer.resume(c::partitions_of(partitions, count)), error); });
}

int32_t ciuic_consumer_commit(ciuic_consumer* consumer, const ciuic_topic_partition* partitions, size_t count,
                              int64_t timeout_ms, ciuic_error* error) {
  return c::guarded(error, [&] {
    const auto offsets = c::offsets_of(partitions, count);
    if (timeout_ms > 0) return c::outcome(consumer->consumer.commit_sync(offsets, ms(timeout_ms)), error);
    return c::outcome(consumer->consumer.commit_async(offsets), error);
  });
}
int32_t ciuic_consumer_committed(ciuic_consumer* consumer, ciuic_topic_partition* partitions, size_t count,
                                 int64_t timeout_ms, ciuic_error* error) {
  return c::guarded(error, [&] {
    return fill(consumer->consumer.committed(c::partitions_of(partitions, count), ms(timeout_ms)), partitions, count,
                error);
  });
}
int32_t ciuic_consumer_beginning_offsets(ciuic_consumer* consumer, ciuic_topic_partition* partitions, size_t count,
                                         int64_t timeout_ms, ciuic_error* error) {
  return c::guarded(error, [&] {
    return fill(consumer->consumer.beginning_offsets(c::partitions_of(partitions, count), ms(timeout_ms)), partitions,
                count, error);
  });
}
int32_t ciuic_consumer_end_offsets(ciuic_consumer* consumer, ciuic_topic_partition* partitions, size_t count,
                                   int64_t timeout_ms, ciuic_error* error) {
  return c::guarded(error, [&] {
    return fill(consumer->consumer.end_offsets(c::partitions_of(partitions, count), ms(timeout_ms)), partitions, count,
                error);
  });
}
int32_t ciuic_consumer_offsets_for_times(ciuic_consumer* consumer, ciuic_topic_partition* partitions, size_t count,
                                         int64_t timeout_ms, ciuic_error* error) {
  return c::guarded(error, [&] {
    return fill(consumer->consumer.offsets_for_times(c::offsets_of(partitions, count), ms(timeout_ms)), partitions,
                count, error);
  });
}
int32_t ciuic_consumer_partition_count(ciuic_consumer* consumer, const char* topic, int64_t timeout_ms,
                                       int32_t* partitions, ciuic_error* error) {
  return c::guarded(error, [&] {
    const std::vector<std::string> names{topic};
    const auto found = consumer->consumer.topics(names, ms(timeout_ms));
    if (!found) return c::report(found.error(), error);
    if (found->empty()) return c::report(client::Trouble::broker, "the cluster does not know this topic", error);
    *partitions = static_cast<std::int32_t>(found->front().partitions.size());
    return 0;
  });
}
int32_t ciuic_consumer_lag(ciuic_consumer* consumer, const char* topic, int32_t partition, int64_t* records,
                           ciuic_error* error) {
  return c::guarded(error, [&] {
    if (auto usable = consumer->consumer.pause({}); !usable) return c::report(usable.error(), error);
    for (const auto& lag : consumer->consumer.lags()) {
      if (lag.at.topic != topic || lag.at.partition != partition) continue;
      *records = lag.records;
      return 0;
    }
    return c::report(client::Trouble::invalid_state, "the partition is not assigned to this consumer", error);
  });
}

char* ciuic_consumer_path_json(ciuic_consumer* consumer, const char* topic, int32_t partition) {
  char* out = nullptr;
  (void)c::guarded(nullptr, [&] {
    if (!consumer->consumer.pause({})) return 0;
    const auto path = consumer->consumer.path({topic, partition});
    out = c::text_of("{\"path\":" + c::json_string(client::name(path.path)) +
                     ",\"provider\":" + c::json_string(path.provider) + ",\"reason\":" + c::json_string(path.reason) +
                     ",\"landing\":" + c::json_string(path.landing) + "}");
    return 0;
  });
  return out;
}
char* ciuic_consumer_metrics_json(ciuic_consumer* consumer) {
  char* out = nullptr;
  (void)c::guarded(nullptr, [&] {
    if (!consumer->consumer.pause({})) return 0;
    out = c::text_of(c::json_of(consumer->consumer.metrics()));
    return 0;
  });
  return out;
}
char* ciuic_consumer_topics_json(ciuic_consumer* consumer, int64_t timeout_ms, ciuic_error* error) {
  char* out = nullptr;
  (void)c::guarded(error, [&] {
    const auto topics = consumer->consumer.topics({}, ms(timeout_ms));
    if (!topics) return c::report(topics.error(), error);
    auto list = nlohmann::json::array();
    for (const auto& topic : *topics) {
      auto partitions = nlohmann::json::array();
      for (const auto& one : topic.partitions)
        partitions.push_back({{"partition", one.partition},
                              {"leader", one.leader},
                              {"leader_epoch", one.leader_epoch},
                              {"replicas", one.replicas},
                              {"in_sync", one.in_sync}});
      list.push_back({{"topic", topic.topic}, {"topic_id", topic.topic_id}, {"partitions", std::move(partitions)}});
    }
    out = c::text_of(list.dump());
    return 0;
  });
  return out;
}
}
