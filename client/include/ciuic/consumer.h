#pragma once
#include <functional>
#include <memory>

#include "ciuic/batch.h"
#include "ciuic/result.h"
#include "ciuic/types.h"

namespace ciuic::client {

/// How a partition's bytes come. What was chosen, and why not something better.
enum class Path : std::int8_t { undecided = 0, tcp_fetch = 1, one_sided = 2 };
[[nodiscard]] const char* name(Path path);  ///< "undecided", "tcp", "one-sided"

struct PathInfo {
  Path path = Path::undecided;
  std::string provider{};  ///< of a one-sided path: "shm", "verbs", …
  std::string
      reason{};  ///< "transport=tcp", "broker has no one-sided APIs", "shm: refused (…)"; empty: nothing better exists
  /// Into the program's memory (`land_in`): "direct: …", or "copied: …" with the reason; empty: not asked for.
  std::string landing{};
};

enum class Memory : std::int8_t { host = 0, cuda = 1 };

/// Memory of the program's for batches to land in.
struct LandingBuffer {
  Memory memory = Memory::host;
  void* at = nullptr;  ///< cuda: memory of one device (cudaMalloc, a tensor's `data_ptr`)
  std::size_t bytes = 0;
};

struct Lag {
  TopicPartition at{};
  std::int64_t position = -1;      ///< next offset that `poll` gives
  std::int64_t readable_end = -1;  ///< high watermark, or last stable offset (isolation.level); -1: not known yet
  std::int64_t records = -1;       ///< readable_end - position; -1: not known yet
};

/// Called inside `poll`, `close` and `unsubscribe`, on the caller's thread; it may call the consumer (commit, seek).
struct RebalanceListener {
  std::function<void(std::span<const TopicPartition>)> assigned{};
  std::function<void(std::span<const TopicPartition>)> revoked{};
  /// Partitions went away without a chance to commit (the member was fenced or timed out).
  std::function<void(std::span<const TopicPartition>)> lost{};
};

using CommitCallback = std::function<void(const Result<void>&)>;

/// Reads topics. Stop 8 of docs/tour.md. One thread at a time, but for `wakeup`, `metrics`, `lags` and views. A thread
/// of its own keeps connections, heartbeats and leases; data read one-sidedly never passes through it.
///
///     auto consumer = Consumer::open({{"bootstrap.servers", "localhost:9092"}, {"group.id", "trainer"}}).value();
///     consumer.subscribe({"data"}).value();
///     for (;;) for (const auto& batch : consumer.poll(1s).value()) use(batch.bytes());
class Consumer {
 public:
  /// Checks the settings; talks to nobody yet. Errors: invalid_config (key, value, what is allowed).
  [[nodiscard]] static Result<Consumer> open(const Config& config);
  Consumer(Consumer&&) noexcept;
  Consumer& operator=(Consumer&&) noexcept;
  /// Closes. In a forked child it does nothing.
  ~Consumer();

  /// Leaves the group after a last commit (enable.auto.commit), releases grants. Views stay usable as `RecordBatch`
  /// says, but leases are renewed no more. Idempotent.
  Result<void> close(Milliseconds timeout = Milliseconds(5000));

  /// Puts the batches of every later poll into `buffer`, one behind the other in pieces, each there as long as copies
  /// of its RecordBatch are. READs land there directly where the card reaches that memory (GPU: by its dma-buf, or
  /// nvidia_peermem), and are checked there; else batches are checked in host memory, or in the broker's on the same
  /// host, and copied: `path` says which and why, and content and order are the same. A `poll` that finds the buffer
  /// full of batches that are still held waits, and answers queue_full at its end; one batch larger than the buffer is
  /// queue_full at once, and not retriable. With CUDA memory the driver is loaded now, and the device's primary context
  /// is used.
  /// REQUIRES: nothing was assigned or subscribed yet; the memory outlives the consumer and all its batches.
  /// Errors: invalid_state, invalid_argument (under 4096 bytes, not memory of one device), unsupported (no driver).
  Result<void> land_in(const LandingBuffer& buffer);

  // What to read: either by hand or by group.
  /// Replaces the assignment. Offsets may be numbers, `offset_beginning`, `offset_end` or `offset_stored`.
  Result<void> assign(std::span<const TopicPartitionOffset> partitions);
  /// Joins group.id; partitions come inside `poll`. Names that begin with '^' are regular expressions (ECMAScript).
  Result<void> subscribe(std::vector<std::string> topics, RebalanceListener listener = {});
  Result<void> unsubscribe();
  [[nodiscard]] std::vector<TopicPartition> assignment() const;

  /// Checked batches of one partition in order, or nothing after `timeout`. Control batches and, with
  /// isolation.level=read_committed, aborted ones are not among them. The span is valid until the next call of `poll`,
  /// `assign`, `unsubscribe` or `close`; a copied RecordBatch lives as long as you keep it.
  /// Errors: broker (authorization, unknown topic, …), data_loss, corrupt, no_one_sided_path, interrupted, fatal. After
  /// an error the next poll goes on where it can.
  [[nodiscard]] Result<std::span<const RecordBatch>> poll(Milliseconds timeout);
  /// Makes a `poll` under way, or the next one, return `interrupted`. Any thread.
  void wakeup();

  // Where to read. REQUIRES: the partition is assigned.
  /// A number, `offset_beginning` or `offset_end`. Takes effect with the next poll; what was read ahead is dropped.
  Result<void> seek(const TopicPartition& at, std::int64_t offset);
  /// To the first record whose timestamp is at or after `timestamp_ms`; to the end where there is none.
  Result<void> seek_to_time(const TopicPartition& at, std::int64_t timestamp_ms,
                            Milliseconds timeout = Milliseconds(30000));
  /// The next offset that poll will give. Resolves `offset_beginning` and the like by asking the broker.
  [[nodiscard]] Result<std::int64_t> position(const TopicPartition& at, Milliseconds timeout = Milliseconds(30000));
  Result<void> pause(std::span<const TopicPartition> partitions);
  Result<void> resume(std::span<const TopicPartition> partitions);

  // Commits; need group.id. Without `offsets`: the positions after what the last poll returned.
  Result<void> commit_sync(std::span<const TopicPartitionOffset> offsets = {},
                           Milliseconds timeout = Milliseconds(30000));
  /// `done` runs inside a later poll, commit_sync or close.
  Result<void> commit_async(std::span<const TopicPartitionOffset> offsets = {}, CommitCallback done = {});
  /// -1: none was committed.
  [[nodiscard]] Result<std::vector<TopicPartitionOffset>> committed(std::span<const TopicPartition> partitions,
                                                                    Milliseconds timeout = Milliseconds(30000));

  // Questions.
  /// Empty `topics`: all of them.
  [[nodiscard]] Result<std::vector<TopicInfo>> topics(std::span<const std::string> topics = {},
                                                      Milliseconds timeout = Milliseconds(30000));
  [[nodiscard]] Result<std::vector<TopicPartitionOffset>> beginning_offsets(std::span<const TopicPartition> partitions,
                                                                            Milliseconds timeout = Milliseconds(30000));
  /// The last stable offset under read_committed, else the high watermark.
  [[nodiscard]] Result<std::vector<TopicPartitionOffset>> end_offsets(std::span<const TopicPartition> partitions,
                                                                      Milliseconds timeout = Milliseconds(30000));
  /// `offset` of each entry is a time in ms; answered are offsets, -1 where no record is at or after it.
  [[nodiscard]] Result<std::vector<TopicPartitionOffset>> offsets_for_times(std::span<const TopicPartitionOffset> times,
                                                                            Milliseconds timeout = Milliseconds(30000));
  [[nodiscard]] std::vector<Lag> lags() const;
  [[nodiscard]] PathInfo path(const TopicPartition& at) const;
  [[nodiscard]] std::vector<Metric> metrics() const;
  [[nodiscard]] std::string member_id() const;

 private:
  class Impl;
  explicit Consumer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ciuic::client
