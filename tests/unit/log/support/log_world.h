#pragma once
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "broker/log/log_directory.h"
#include "tests/unit/log/support/manual_executor.h"
#include "tests/unit/log/support/simulated_files.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker::testing {

/// Seed of a random test: CIUIC_SEED replays, else `fallback`.
[[nodiscard]] std::uint64_t seed_from_env(std::uint64_t fallback);

/// How a test's batch looks; values are "v<offset of the record in the batch>" padded to `value_bytes`.
struct BatchOf {
  int records = 1;
  std::int64_t timestamp = 1'700'000'000'000;  ///< of the first record; each next one millisecond later
  std::size_t value_bytes = 10;
  std::string key = "key";
  bool null_key = false;
  bool null_value = false;
  kafka::Codec codec = kafka::Codec::none;
  kafka::ProducerId producer_id{-1};
  kafka::ProducerEpoch producer_epoch{-1};
  std::int32_t base_sequence = -1;
  bool transactional = false;
};
[[nodiscard]] Buffer make_batch(const BatchOf& batch);
[[nodiscard]] Buffer make_marker(kafka::ProducerId id, kafka::ProducerEpoch epoch, bool commit,
                                 std::int32_t coordinator_epoch, std::int64_t timestamp = 1'700'000'000'000);

/// One log directory on one thread: manual clock and executor, simulated files and FileIo, every step by the test.
class LogWorld {
 public:
  explicit LogWorld(std::uint64_t seed = 1, ArenaConfig arena = small_arena(), LogObserver* observer = nullptr);
  ~LogWorld();

  static ArenaConfig small_arena();

  /// Opens the directory and loads what is in it.
  void start();
  std::shared_ptr<Partition> create(const std::string& topic, std::int32_t partition = 0, LogConfig config = {});
  std::shared_ptr<Partition> find(const std::string& topic, std::int32_t partition = 0);
  /// Runs jobs and tasks until nothing is left to do, in an order by the seed.
  void settle();
  /// One job or task; false if all is quiet.
  bool step();
  void advance(Milliseconds by);
  /// Clean stop and start.
  void restart();
  /// The process dies: jobs that did not run never do. `machine_too`: unsynced bytes are lost by the seed.
  void crash(bool machine_too = false);

  /// Appends and settles.
  ResultOf<AppendResult, AppendError> append(Partition& partition, Bytes batch, AppendOptions options = {});
  /// Reads with bringing in until there is an answer.
  ResultOf<ReadResult, kafka::Error> read(Partition& partition, ReadRequest request);
  /// Offsets of all records a reader sees from `from` on.
  std::vector<std::int64_t> offsets(Partition& partition, kafka::Offset from,
                                    Isolation isolation = Isolation::read_uncommitted);
  ResultOf<OffsetAtTime, kafka::Error> find_time(Partition& partition, std::int64_t timestamp);

  std::mt19937_64 random;
  ManualClock clock;
  ManualExecutor executor{clock};
  SimulatedFiles disk;
  SimulatedIo io{disk};
  ArenaConfig arena_config;
  std::shared_ptr<Arena> arena;
  LogObserver* observer;
  LogConfig config;                                       ///< of partitions found at start
  std::map<kafka::TopicPartition, kafka::TopicId> known;  ///< what the metadata would name: all that `create` made
  std::unique_ptr<LogDirectory> directory;
  std::vector<std::string> offline_reasons;
  FileIo* checks = nullptr;  ///< &io: large batches are checked there; null: in the call
  LogLimits limits;          ///< no journal unless the test says so: then what is acknowledged is in the segment files
};

}  // namespace ciuic::broker::testing
