#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "broker/log/file_io.h"
#include "broker/log/log_config.h"
#include "broker/log/log_observer.h"
#include "broker/log/loss.h"
#include "broker/log/partition.h"
#include "transport/base/clock.h"
#include "transport/base/executor.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// Not a topic of clients: the controller's own log (broker/metadata), whose folder lies among the topics'.
inline constexpr std::string_view metadata_log_topic = "__cluster_metadata";

struct LogDirectorySettings {
  std::string path;
  LogLimits limits;
  FileIo* checks = nullptr;       ///< Partition::Parts::checks; outlives the directory
  unsigned recovery_threads = 2;  ///< `num.recovery.threads.per.data.dir`
};

/// A partition's directory as found at start.
struct FoundPartition {
  kafka::TopicPartition name;
  std::optional<kafka::TopicId> topic_id;  ///< from partition.metadata; Apache's older directories have none
};
/// What the caller decides about a found partition. Nothing: it is stray, warned of and left alone.
struct PartitionPlan {
  kafka::TopicId topic_id;
  LogConfig config;
  Executor* executor = nullptr;
};

/// One entry of `log.dirs`: its partitions, checkpoints, clean-shutdown marker, and whether it still works.
/// Any thread (a mutex guards the map); `open` and `load` block and belong to the start.
class LogDirectory {
 public:
  /// Makes the directory if missing, reads the marker and checkpoints, removes what deletions left behind. `io`,
  /// `clock` and `observer` outlive it. `broker_epoch` goes into the marker of the next clean stop.
  [[nodiscard]] static ResultOf<std::unique_ptr<LogDirectory>, kafka::Error> open(LogDirectorySettings settings,
                                                                                  std::shared_ptr<Arena> arena,
                                                                                  FileIo& io, const Clock& clock,
                                                                                  LogObserver* observer);
  ~LogDirectory();

  [[nodiscard]] const std::string& path() const { return settings_.path; }
  [[nodiscard]] const std::vector<FoundPartition>& found() const { return found_; }
  /// True if the last stop was clean: segments are trusted, nothing is scanned.
  [[nodiscard]] bool was_clean() const { return was_clean_; }

  /// Opens every found partition that `plan` names, recovering where the stop was not clean. Blocks; uses
  /// `recovery_threads`. A partition that cannot be opened takes the directory offline. One whose files are missing
  /// (loss.h) stays offline alone, and nothing is written in its directory, unless the operator put `accept_loss_file`
  /// there. `expected`: whether a partition that is not found here belongs to this broker; null: none does.
  [[nodiscard]] ResultOf<std::vector<std::shared_ptr<Partition>>, kafka::Error> load(
      const std::function<std::optional<PartitionPlan>(const FoundPartition&)>& plan,
      const std::function<bool(const kafka::PartitionId&)>& expected = {});
  /// A partition whose directory was found nowhere, although checkpoints or journal here prove that it held records: it
  /// stays offline. Null: nothing proves it. After `load`.
  [[nodiscard]] std::shared_ptr<Partition> hold_missing(const kafka::TopicPartition& name, const PartitionPlan& plan);
  /// The last step of the start, when every partition has its place: the checkpoints forget partitions that are not
  /// here, so that none of the same name is taken for them, and accepted losses are noted. Blocks.
  [[nodiscard]] ResultOf<void, kafka::Error> settle();
  /// A new, empty partition, its directory and partition.metadata on disk. Blocks a little (a few system calls).
  /// Refused (KAFKA_STORAGE_ERROR) once `close` began: nobody would close it.
  [[nodiscard]] ResultOf<std::shared_ptr<Partition>, kafka::Error> create(const kafka::TopicPartition& name,
                                                                          const PartitionPlan& plan);
  [[nodiscard]] std::shared_ptr<Partition> find(const kafka::TopicPartition& name) const;
  [[nodiscard]] std::vector<std::shared_ptr<Partition>> partitions() const;
  /// Renames its directory to `…-delete` and deletes it in the background after `delay`; the partition is abandoned on
  /// its executor. `done` runs there once the rename is done: the name is free again.
  void remove(const kafka::TopicPartition& name, Milliseconds delay, LogCallback<void> done);

  /// Writes recovery-point, log-start and high-watermark checkpoints of now (on FileIo). `done` on any thread.
  void write_checkpoints(std::function<void(ResultOf<void, kafka::Error>)> done);
  /// Closes every partition, then writes checkpoints and the clean-shutdown marker (only if all went well). `done` on
  /// any thread.
  void close(std::int64_t broker_epoch, std::function<void(ResultOf<void, kafka::Error>)> done);

  [[nodiscard]] bool offline() const { return offline_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string offline_reason() const;
  /// Called once, on any thread, when the directory goes offline.
  void on_offline(std::function<void(const std::string& reason)> call);

 private:
  LogDirectory(LogDirectorySettings settings, std::shared_ptr<Arena> arena, FileIo& io, const Clock& clock,
               LogObserver* observer);
  void fail(const IoError& error);
  [[nodiscard]] Partition::Parts parts_for(const kafka::TopicPartition& name, const PartitionPlan& plan);
  /// `anew_from`: nothing is left of it, it begins there.
  [[nodiscard]] IoResult<std::shared_ptr<Partition>> open_partition(
      const kafka::TopicPartition& name, const PartitionPlan& plan,
      std::optional<kafka::Offset> anew_from = std::nullopt);
  [[nodiscard]] IoResult<void> scan();
  [[nodiscard]] IoResult<void> move_stray_aside(const kafka::TopicPartition& name, const kafka::TopicId& id);
  [[nodiscard]] CheckpointedOffsets checkpointed(const kafka::TopicPartition& name) const;
  // log_directory_load.cpp
  struct Loading;
  [[nodiscard]] IoResult<void> inspect(Loading& one);
  [[nodiscard]] IoResult<void> open_found(Loading& one);
  [[nodiscard]] IoResult<void> replay_journals(const std::vector<Loading>& all,
                                               const std::function<bool(const kafka::PartitionId&)>& expected);
  [[nodiscard]] std::shared_ptr<Partition> hold(const kafka::TopicPartition& name, const PartitionPlan& plan,
                                                const Loss& loss);
  [[nodiscard]] std::shared_ptr<Journal> journal_of(Executor& executor);
  [[nodiscard]] IoResult<void> write_checkpoint_files();

  /// What partitions and jobs hold instead of a pointer that might outlive the directory.
  struct Failure {
    std::recursive_mutex mutex;
    LogDirectory* directory = nullptr;
  };

  LogDirectorySettings settings_;
  std::shared_ptr<Arena> arena_;
  FileIo& io_;
  const Clock& clock_;
  LogObserver* observer_;
  IoQueue queue_;
  bool was_clean_ = false;
  std::vector<FoundPartition> found_;
  std::vector<std::string> journals_found_;
  // As found at start; later of partitions without their files alone.
  std::map<kafka::TopicPartition, kafka::Offset> recovery_points_;
  std::map<kafka::TopicPartition, kafka::Offset> log_starts_;
  std::map<kafka::TopicPartition, kafka::Offset> high_watermarks_;
  std::map<kafka::PartitionId, kafka::Offset> journaled_;  // ends of partitions whose records were left out
  std::vector<std::string> accepted_;                      // files by which the operator accepted losses
  std::atomic<bool> offline_{false};
  std::shared_ptr<Failure> failure_;
  std::mutex journals_mutex_;
  std::map<Executor*, std::shared_ptr<Journal>> journals_;  // null: it could not be made
  mutable std::mutex mutex_;
  std::mutex checkpoint_mutex_;
  std::string offline_reason_;
  std::function<void(const std::string&)> on_offline_;
  std::map<kafka::TopicPartition, std::shared_ptr<Partition>> partitions_;
  bool closing_ = false;
};

}  // namespace ciuic::broker
