// Which logs are open, and their upkeep. Not here: what a log does (broker/log).
#include "broker/partitions.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>

#include "transport/base/log.h"

namespace ciuic::broker {

namespace {

/// Longer intervals would not fit the clock's nanoseconds.
constexpr auto longest_wait = std::chrono::hours(24);

/// Counts down; runs `all_done` with the first error when the last part is done. Any thread.
class Countdown {
 public:
  Countdown(std::size_t parts, std::function<void(kafka::Error)> all_done)
      : left_(parts), all_done_(std::move(all_done)) {}
  void done(const kafka::Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (error.code != kafka::ErrorCode::none && first_.code == kafka::ErrorCode::none) first_ = error;
    }
    if (left_.fetch_sub(1) == 1) all_done_(first_);
  }

 private:
  std::atomic<std::size_t> left_;
  std::mutex mutex_;
  kafka::Error first_;
  std::function<void(kafka::Error)> all_done_;
};

}  // namespace

Partitions::Partitions(Parts parts) : parts_(std::move(parts)), queue_(parts_.io->make_queue()) {}

BrokerLayers Partitions::layers(const MetadataImage& image) const {
  return {image.broker_config(std::to_string(parts_.config->node_id)), image.broker_config(""), *parts_.file};
}

// What is in the metadata log was checked before it was written; a row that changed since falls back to the default.
LogConfig Partitions::defaults(const MetadataImage& image) const {
  auto config = make_log_defaults(layers(image));
  return config ? *config : parts_.config->log;
}

PartitionPlan Partitions::plan(const TopicImage& topic, std::int32_t partition, const MetadataImage& image,
                               const LogConfig& defaults) const {
  auto config = make_topic_config(defaults, image.topic_config(topic.name));
  const auto shard = std::hash<kafka::PartitionId>{}({topic.id, kafka::PartitionIndex(partition)});
  return {topic.id, config ? *config : defaults, &(*parts_.shards)[shard]};
}

ResultOf<void, std::string> Partitions::open(const MetadataImage& image) {
  PartitionTable table;
  const auto log_defaults = defaults(image);
  for (const auto& path : parts_.config->log_dirs) {
    LogDirectorySettings settings;
    settings.path = path;
    settings.limits.producer_id_expiration_ms = parts_.config->producer_id_expiration_ms;
    settings.limits.decompressed_batch_bytes_max =
        static_cast<std::size_t>(parts_.config->decompressed_batch_bytes_max);
    settings.limits.journal_bytes = static_cast<std::uint64_t>(parts_.config->journal_bytes);
    settings.limits.read_ahead_bytes = static_cast<std::uint32_t>(parts_.config->read_ahead_bytes);
    settings.checks = parts_.checks;
    settings.recovery_threads = static_cast<unsigned>(parts_.config->recovery_threads);
    auto directory = LogDirectory::open(settings, parts_.arena, *parts_.io, *parts_.clock, parts_.events);
    if (!directory) return fmt::format("log.dirs={}: {}", path, directory.error().text);
    (*directory)->on_offline([path](const std::string& reason) {
      log::error("broker",
                 "log directory is offline path={} reason=\"{}\"; free space or replace the disk, then restart", path,
                 reason);
    });
    directories_.push_back(std::move(*directory));
  }
  for (const auto& directory : directories_) {
    const auto loaded = directory->load(
        [&](const FoundPartition& found) -> std::optional<PartitionPlan> {
          const auto* topic = image.topic(found.name.topic);
          if (topic == nullptr || topic->partition(found.name.partition) == nullptr) return std::nullopt;
          if (found.topic_id && *found.topic_id != topic->id) return std::nullopt;
          return plan(*topic, found.name.partition.value, image, log_defaults);
        },
        [&](const kafka::PartitionId& id) {
          const auto* topic = image.topic(id.topic);
          return topic != nullptr && topic->partition(id.partition) != nullptr;
        });
    if (!loaded) return fmt::format("log.dirs={}: {}", directory->path(), loaded.error().text);
    for (const auto& partition : *loaded) {
      auto& logs = table[partition->topic_id()];
      const auto index = static_cast<std::size_t>(partition->name().partition.value);
      if (logs.size() <= index) logs.resize(index + 1);
      logs[index] = partition;
    }
  }
  for (const auto& [name, topic] : image.topics()) {
    auto& logs = table[topic->id];
    if (logs.size() < topic->partitions.size()) logs.resize(topic->partitions.size());
    for (std::size_t i = 0; i < logs.size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const kafka::TopicPartition partition{name, kafka::PartitionIndex(index)};
      const auto how = plan(*topic, index, image, log_defaults);
      for (const auto& directory : directories_)
        if (!logs[i]) logs[i] = directory->hold_missing(partition, how);
      if (logs[i]) continue;
      // The records of its creation were durable, its directory was not: nothing was acknowledged in it yet.
      auto made = create(partition, how);
      if (!made) return fmt::format("{}-{}: {}", name, i, made.error().text);
      logs[i] = *made;
    }
  }
  for (const auto& directory : directories_)
    if (const auto settled = directory->settle(); !settled)
      return fmt::format("log.dirs={}: {}", directory->path(), settled.error().text);
  for (auto& [id, logs] : table) {
    for (auto& partition : logs) {
      const auto* topic = image.topic(id);
      const auto* state = topic == nullptr ? nullptr : topic->partition(partition->name().partition);
      if (state != nullptr) partition->become_leader(state->leader_epoch);
    }
  }
  table_.set(std::make_shared<const PartitionTable>(std::move(table)));
  return {};
}

std::shared_ptr<Partition> Partitions::find(const kafka::TopicId& topic, kafka::PartitionIndex partition) const {
  const auto table = table_.get();
  const auto found = table->find(topic);
  if (found == table->end() || partition.value < 0 || static_cast<std::size_t>(partition.value) >= found->second.size())
    return nullptr;
  return found->second[static_cast<std::size_t>(partition.value)];
}

std::vector<std::shared_ptr<Partition>> Partitions::all() const {
  std::vector<std::shared_ptr<Partition>> every;
  const auto table = table_.get();
  for (const auto& [id, logs] : *table) every.insert(every.end(), logs.begin(), logs.end());
  return every;
}

ResultOf<std::shared_ptr<Partition>, kafka::Error> Partitions::create(const kafka::TopicPartition& name,
                                                                      const PartitionPlan& how) {
  while (auto* const directory = directory_for_new()) {
    auto made = directory->create(name, how);
    if (made || !directory->offline()) return made;  // else it failed, and another may do
  }
  return can_create();
}

LogDirectory* Partitions::directory_for_new() {
  LogDirectory* best = nullptr;
  std::size_t fewest = 0;
  for (const auto& directory : directories_) {
    if (directory->offline()) continue;
    const auto count = directories_.size() == 1 ? 0 : directory->partitions().size();
    if (best == nullptr || count < fewest) {
      best = directory.get();
      fewest = count;
    }
  }
  return best;
}

kafka::Error Partitions::can_create() const {
  const auto online = [](const auto& directory) { return !directory->offline(); };
  if (std::any_of(directories_.begin(), directories_.end(), online)) return {};
  return {kafka::ErrorCode::kafka_storage_error,
          "no log directory is online; repair the disk, or free space, then restart the broker"};
}

void Partitions::apply(MetadataPointer previous, MetadataPointer next, std::function<void(kafka::Error)> ready) {
  // On the I/O threads: creating directories blocks. One queue, so changes are applied in their order.
  parts_.io->submit(queue_, [this, previous = std::move(previous), next = std::move(next),
                             ready = std::move(ready)]() mutable {
    auto table = *table_.get();
    std::vector<std::shared_ptr<Partition>> removed;
    kafka::Error error;
    const auto log_defaults = defaults(*next);
    const auto now = layers(*next);
    const auto then = layers(*previous);
    const bool all_change = now.node != then.node || now.cluster != then.cluster;
    for (const auto& [name, topic] : next->topics()) {
      const auto* before = previous->topic(topic->id);
      if (before != nullptr && before->partitions.size() == topic->partitions.size()) continue;
      auto& logs = table[topic->id];
      for (auto i = logs.size(); i < topic->partitions.size() && error.code == kafka::ErrorCode::none; ++i) {
        const auto index = static_cast<std::int32_t>(i);
        const auto where = plan(*topic, index, *next, log_defaults);
        auto made = create({name, kafka::PartitionIndex(index)}, where);
        if (!made) {
          error = made.error();
          log::error("broker", "partition not created, the next start creates it topic={} partition={} reason=\"{}\"",
                     name, index, error.text);
          break;
        }
        where.executor->post(
            [partition = *made, epoch = topic->partitions[i].leader_epoch] { partition->become_leader(epoch); });
        logs.push_back(*made);
      }
    }
    for (const auto& [name, topic] : previous->topics()) {
      if (next->topic(topic->id) != nullptr) continue;
      const auto found = table.find(topic->id);
      if (found == table.end()) continue;
      removed.insert(removed.end(), found->second.begin(), found->second.end());
      table.erase(found);
    }
    for (const auto& [id, logs] : table) {
      const auto* topic = next->topic(id);
      if (topic == nullptr) continue;
      if (!all_change && next->topic_config(topic->name) == previous->topic_config(topic->name)) continue;
      for (const auto& partition : logs) {
        partition->executor().post(
            [partition, config = plan(*topic, partition->name().partition.value, *next, log_defaults).config] {
              partition->set_config(config);
            });
      }
    }
    table_.set(std::make_shared<const PartitionTable>(std::move(table)));
    if (removed.empty()) return ready(error);
    // A topic of the same name must not be taken for what the checkpoints still say of this one.
    auto forgotten = [this, ready = std::move(ready)](const kafka::Error& first) {
      auto written =
          std::make_shared<Countdown>(directories_.size(), [ready, first](const kafka::Error&) { ready(first); });
      for (const auto& directory : directories_) {
        directory->write_checkpoints(
            [written](const ResultOf<void, kafka::Error>&) { written->done({}); });  // a failure says so itself
      }
    };
    auto countdown = std::make_shared<Countdown>(removed.size(), std::move(forgotten));
    for (const auto& partition : removed) {
      for (const auto& directory : directories_) {
        if (directory->find(partition->name()) != partition) continue;
        directory->remove(partition->name(), Milliseconds(parts_.config->log.file_delete_delay_ms),
                          [countdown, partition](ResultOf<void, kafka::Error> gone) {
                            countdown->done(gone ? kafka::Error() : gone.error());
                          });
      }
    }
  });
}

void Partitions::start_upkeep() {
  upkeep();
  checkpoints();
  if (parts_.config->cleaner_enable) {
    for (std::size_t shard = 0; shard < parts_.shards->size(); ++shard) clean_next(shard);
  }
}

void Partitions::upkeep() {
  // Each shard walks its own partitions. Idle ones cost a few comparisons each.
  for (std::size_t i = 0; i < parts_.shards->size(); ++i) {
    auto& shard = (*parts_.shards)[i];
    shard.post([this, &shard] {
      for (const auto& partition : all()) {
        if (&partition->executor() == &shard) partition->maintain();
      }
    });
  }
  const auto interval = std::min<Milliseconds>(Milliseconds(parts_.config->retention_check_interval_ms), longest_wait);
  (*parts_.shards)[0].post_at(parts_.clock->now() + interval, [this, alive = alive_] {
    if (alive->load()) upkeep();
  });
}

void Partitions::checkpoints() {
  (*parts_.shards)[0].post_at(
      parts_.clock->now() + Milliseconds(std::max<std::int64_t>(parts_.config->checkpoint_interval_ms, 1000)),
      [this, alive = alive_] {
        if (!alive->load()) return;
        for (const auto& directory : directories_) {
          directory->write_checkpoints(
              [](ResultOf<void, kafka::Error>) {});  // a failure takes the directory offline, and says so
        }
        checkpoints();
      });
}

void Partitions::clean_next(std::size_t index) {
  auto& shard = (*parts_.shards)[index];
  shard.post_at(parts_.clock->now() + Milliseconds(std::max<std::int64_t>(parts_.config->cleaner_backoff_ms, 100)),
                [this, index, &shard, alive = alive_] {
                  if (!alive->load()) return;
                  for (const auto& partition : all()) {
                    if (&partition->executor() == &shard && partition->config().cleanup_compact) {
                      partition->clean([](const ResultOf<std::uint64_t, kafka::Error>&) {});
                    }
                  }
                  clean_next(index);
                });
}

void Partitions::close(std::int64_t broker_epoch, std::function<void(bool)> done) {
  alive_->store(false);
  auto countdown = std::make_shared<Countdown>(
      directories_.size(),
      [done = std::move(done)](const kafka::Error& error) { done(error.code == kafka::ErrorCode::none); });
  for (const auto& directory : directories_) {
    directory->close(broker_epoch, [countdown](ResultOf<void, kafka::Error> closed) {
      countdown->done(closed ? kafka::Error() : closed.error());
    });
  }
}

}  // namespace ciuic::broker
