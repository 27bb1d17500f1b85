#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "broker/log/log_directory.h"
#include "broker/log_events.h"
#include "broker/metadata/metadata_image.h"
#include "broker/metadata/published.h"
#include "broker/shard.h"

namespace ciuic::broker {

/// The open logs by topic id. Immutable.
using PartitionTable = std::unordered_map<kafka::TopicId, std::vector<std::shared_ptr<Partition>>>;

/// The log directories and the partitions in them, kept in agreement with the metadata image.
class Partitions {
 public:
  struct Parts {
    const BrokerConfig* config = nullptr;
    const Overrides* file = nullptr;  // what server.properties and the command line say
    Shards* shards = nullptr;
    FileIo* io = nullptr;
    FileIo* checks = nullptr;  // of large batches
    const Clock* clock = nullptr;
    LogEvents* events = nullptr;
    std::shared_ptr<Arena> arena;
  };
  explicit Partitions(Parts parts);

  /// Opens the directories and every partition that the image names, creating those that are missing. One that held
  /// records and is missing, or misses files, stays offline alone. Blocks; at start.
  /// Errors: words that name the directory.
  [[nodiscard]] ResultOf<void, std::string> open(const MetadataImage& image);
  /// The log of a partition that this broker leads; null if there is none here. Any thread, no lock between changes.
  [[nodiscard]] std::shared_ptr<Partition> find(const kafka::TopicId& topic, kafka::PartitionIndex partition) const;

  /// Creates, removes and reconfigures logs so that they agree with `next`. `ready` once, on any thread.
  void apply(MetadataPointer previous, MetadataPointer next, std::function<void(kafka::Error)> ready);
  /// None, or why no partition can be created now: KAFKA_STORAGE_ERROR where no log directory is online. Any thread.
  [[nodiscard]] kafka::Error can_create() const;
  /// Starts the timers: upkeep, checkpoints, cleaning.
  void start_upkeep();
  /// Closes everything cleanly. `done` once, on any thread.
  void close(std::int64_t broker_epoch, std::function<void(bool clean)> done);
  [[nodiscard]] std::vector<std::shared_ptr<Partition>> all() const;
  [[nodiscard]] const std::vector<std::unique_ptr<LogDirectory>>& directories() const { return directories_; }
  [[nodiscard]] const Arena& arena() const { return *parts_.arena; }

 private:
  [[nodiscard]] BrokerLayers layers(const MetadataImage& image) const;
  [[nodiscard]] LogConfig defaults(const MetadataImage& image) const;
  [[nodiscard]] PartitionPlan plan(const TopicImage& topic, std::int32_t partition, const MetadataImage& image,
                                   const LogConfig& defaults) const;
  [[nodiscard]] ResultOf<std::shared_ptr<Partition>, kafka::Error> create(const kafka::TopicPartition& name,
                                                                          const PartitionPlan& how);
  [[nodiscard]] LogDirectory* directory_for_new();
  void upkeep();
  void checkpoints();
  void clean_next(std::size_t shard);

  Parts parts_;
  std::vector<std::unique_ptr<LogDirectory>> directories_;
  Published<PartitionTable> table_{std::make_shared<const PartitionTable>()};
  IoQueue queue_;
  std::shared_ptr<std::atomic<bool>> alive_ = std::make_shared<std::atomic<bool>>(true);
};

}  // namespace ciuic::broker
