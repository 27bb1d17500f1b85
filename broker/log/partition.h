// Stop 4 of docs/tour.md: the log of one partition. Next: broker/exposure/exposure.h
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "broker/log/arena.h"
#include "broker/log/batch_validator.h"
#include "broker/log/chunk.h"
#include "broker/log/file_io.h"
#include "broker/log/journal.h"
#include "broker/log/leader_epochs.h"
#include "broker/log/log_config.h"
#include "broker/log/log_observer.h"
#include "broker/log/producer_state.h"
#include "broker/log/recovery.h"
#include "broker/log/segment.h"
#include "transport/base/clock.h"
#include "transport/base/executor.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

class LogDirectory;
struct CleanPlan;
struct CleanResult;

using kafka::Isolation;

/// Why nothing was appended, as a Produce response says it.
struct AppendError {
  AppendError() = default;
  AppendError(kafka::Error why, kafka::Offset log_start) : error(std::move(why)), log_start_offset(log_start) {}
  kafka::Error error{};
  std::vector<RecordError> records{};
  kafka::Offset log_start_offset{};
};
struct AppendResult {
  kafka::Offset base_offset;
  kafka::Offset last_offset;
  std::int64_t log_append_time_ms = -1;  ///< the broker's time under LogAppendTime, else -1
  kafka::Offset log_start_offset;
  bool duplicate = false;  ///< an idempotent producer's retry: nothing was written, offsets are the original's
};
using AppendCallback = std::function<void(ResultOf<AppendResult, AppendError>)>;

struct AppendOptions {
  AppendOrigin origin = AppendOrigin::client;
  kafka::LeaderEpoch leader_epoch;
};

struct ReadRequest {
  kafka::Offset offset;
  std::uint32_t max_bytes = 1U << 20;
  Isolation isolation = Isolation::read_uncommitted;
  bool at_least_one_batch = true;  ///< the first batch is given whole even if it is larger than max_bytes
};
struct AbortedTransaction {
  kafka::ProducerId producer_id;
  kafka::Offset first_offset;
  auto operator<=>(const AbortedTransaction&) const = default;
};
struct ReadResult {
  std::vector<Bytes> spans;  ///< whole batches, in order; they stay while `pins` do, on any thread
  std::vector<ChunkPin> pins;
  std::uint64_t bytes = 0;  ///< sum of spans
  /// The bytes at this offset are on disk only: `bring_in(*miss, …)`, then read again. Spans may hold what came before.
  std::optional<kafka::Offset> miss;
  kafka::Offset high_watermark;
  kafka::Offset last_stable_offset;
  kafka::Offset log_start_offset;
  std::vector<AbortedTransaction> aborted;  ///< read_committed: overlapping the spans, by first offset
};

struct OffsetAtTime {
  std::int64_t timestamp = -1;
  kafka::Offset offset{-1};
  kafka::LeaderEpoch leader_epoch{-1};
};
struct EpochEnd {
  kafka::LeaderEpoch leader_epoch{-1};
  kafka::Offset end_offset{-1};
};

template <class T>
using LogCallback = std::function<void(ResultOf<T, kafka::Error>)>;

/// The log of one topic partition: append, read, find, retain, recover. Owned by one executor: every call not marked
/// otherwise is made on it, every callback runs on it, never inside the call. Blocking work goes through FileIo.
///
/// A record is readable when its bytes are in the kernel (Kafka's acknowledgement), never before: in the segment's
/// file, or in the journal, from which they go to the file a little later. The high watermark moves then, the observer
/// hears it, then the append's callback runs. What is not in the file yet stays in memory, so that nobody misses it.
/// After an I/O error the directory is offline: every call answers KAFKA_STORAGE_ERROR, nothing more is acknowledged.
class Partition : public std::enable_shared_from_this<Partition> {
 public:
  struct Parts {
    kafka::TopicPartition name;
    kafka::TopicId topic_id;
    std::string path;  ///< of the partition's own directory
    LogConfig config;
    LogLimits limits;
    std::shared_ptr<Arena> arena;
    std::shared_ptr<Journal> journal{};  ///< the executor's; null: every append is acknowledged by its file
    FileIo* checks = nullptr;            ///< where large batches are unpacked and checked; null: in the call
    FileIo* io = nullptr;                ///< outlives the partition, as do clock, executor and observer
    const Clock* clock = nullptr;
    Executor* executor = nullptr;
    LogObserver* observer = nullptr;                  ///< null: nobody listens
    std::function<void(const IoError&)> on_io_error;  ///< any thread; the directory goes offline
    /// Makes `checkpoint_recovery_point` durable before a truncation reuses offsets. Blocks, on FileIo.
    std::function<IoResult<void>()> write_checkpoints;
  };

  ~Partition();
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  // --- Who and where. Any thread. ---
  [[nodiscard]] const kafka::TopicPartition& name() const { return parts_.name; }
  [[nodiscard]] const kafka::TopicId& topic_id() const { return parts_.topic_id; }
  [[nodiscard]] Executor& executor() const { return *parts_.executor; }
  [[nodiscard]] bool offline() const { return offline_.load(std::memory_order_acquire); }
  /// Published copies, at most one step behind the owner. Any thread.
  [[nodiscard]] kafka::Offset published_high_watermark() const { return kafka::Offset(published_hw_.load()); }
  [[nodiscard]] kafka::Offset published_log_start() const { return kafka::Offset(published_start_.load()); }
  [[nodiscard]] kafka::Offset recovery_point() const { return kafka::Offset(published_recovery_.load()); }
  /// What the checkpoint file may say: never the very end of the active segment, for it may roll there, and then a
  /// start after a crash must look at its index files.
  [[nodiscard]] kafka::Offset checkpoint_recovery_point() const { return kafka::Offset(published_checkpoint_.load()); }
  [[nodiscard]] std::uint64_t published_bytes() const { return published_bytes_.load(); }

  // --- Positions. Owner. ---
  [[nodiscard]] kafka::Offset log_start_offset() const { return log_start_; }
  [[nodiscard]] kafka::Offset high_watermark() const { return high_watermark_; }
  [[nodiscard]] kafka::Offset last_stable_offset() const;
  [[nodiscard]] kafka::Offset log_end_offset() const { return log_end_; }
  /// End of what is in the kernel, in files or journal (acknowledgeable); the high watermark of a partition without
  /// followers.
  [[nodiscard]] kafka::Offset written_end_offset() const { return written_end_; }
  [[nodiscard]] kafka::LeaderEpoch latest_leader_epoch() const { return epochs_.latest(); }
  [[nodiscard]] std::uint64_t bytes_on_disk() const { return log_bytes_; }
  /// Bytes appended that are not in the file yet: a server slows its readers by it, well before appends are refused.
  [[nodiscard]] std::uint64_t unwritten_bytes() const { return unwritten_bytes_; }
  [[nodiscard]] std::size_t segment_count() const { return segments_.size(); }
  [[nodiscard]] const LogConfig& config() const { return config_; }
  [[nodiscard]] const ProducerState& producers() const { return producers_; }
  [[nodiscard]] Committed committed() const;
  /// From now on; a changed flush.ms counts from this moment.
  void set_config(const LogConfig& config);
  /// From now on batches carry this epoch at the log end (a new leadership). On disk before the next batch.
  void become_leader(kafka::LeaderEpoch epoch);

  // --- Append ---
  /// Appends exactly one record batch (magic 2) as leader. A client's `records` are borrowed until the callback has run
  /// or is destroyed, a coordinator's during the call. A large batch is checked off this executor; those behind it wait
  /// for it, so appends take effect in the order of the calls.
  /// Errors: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
  /// UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
  /// TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR, and NOT_ENOUGH_REPLICAS as back-pressure (retriable) while
  /// more than `unwritten_bytes_max` wait for the disk. Callbacks of appends that succeed run in their order.
  void append(Bytes records, const AppendOptions& options, AppendCallback callback);

  // --- Read ---
  /// Answers from memory; never blocks. OFFSET_OUT_OF_RANGE below the log start or above the log end; from the high
  /// watermark (read_committed: the last stable offset) on it is empty.
  [[nodiscard]] ResultOf<ReadResult, kafka::Error> read(const ReadRequest& request);
  /// The chunk that holds `offset`, if it is in memory.
  [[nodiscard]] std::shared_ptr<Chunk> resident(kafka::Offset offset) const;
  /// Brings the bytes from `offset` on into memory, about `bytes` of them (at least a batch), then calls back with the
  /// chunk. Errors: OFFSET_OUT_OF_RANGE; THROTTLING_QUOTA_EXCEEDED: no memory for `purpose` now, ask later;
  /// KAFKA_STORAGE_ERROR.
  void bring_in(kafka::Offset offset, std::uint32_t bytes, MemoryFor purpose,
                LogCallback<std::shared_ptr<Chunk>> callback);
  /// Chunks in memory from `offset` on, in log order, without a hole, until `limit` of them or the first miss.
  [[nodiscard]] std::vector<std::shared_ptr<Chunk>> chunks_from(kafka::Offset offset, std::size_t limit) const;
  /// Aborted transactions that overlap [from, to).
  [[nodiscard]] std::vector<AbortedTransaction> aborted_between(kafka::Offset from, kafka::Offset to) const;
  /// For handing a descriptor of the partition's memory to another process (see PartitionMemory). Any thread.
  [[nodiscard]] const std::shared_ptr<PartitionMemory>& memory() const { return memory_; }

  // --- Find ---
  /// ListOffsets: a time, or -1 latest (high watermark, or last stable offset), -2 earliest, -3 of the maximum
  /// timestamp, -4 earliest local, -5 latest tiered (-1, as without tiering). Nothing found: offset -1, timestamp -1.
  void offset_for_time(std::int64_t timestamp, Isolation isolation, LogCallback<OffsetAtTime> callback);
  /// OffsetForLeaderEpoch. Nothing known: epoch -1, offset -1.
  [[nodiscard]] EpochEnd end_offset_for_epoch(kafka::LeaderEpoch epoch) const;

  // --- Change ---
  /// DeleteRecords: the log starts at `before` (-1: the high watermark). Answers the new log start.
  /// OFFSET_OUT_OF_RANGE above the high watermark.
  void delete_records(kafka::Offset before, LogCallback<kafka::Offset> callback);
  /// Throws away everything from `offset` on (a batch that holds it goes whole). Waits for writes under way.
  void truncate(kafka::Offset offset, LogCallback<kafka::Offset> callback);
  /// One round of upkeep: retention, expired producers. Cheap when idle. (flush.ms has a timer of its own.)
  void maintain();
  /// Compacts once if cleanup.policy says compact and enough is dirty. Calls back with the bytes it freed.
  void clean(LogCallback<std::uint64_t> callback);
  /// Everything written is on the device, and the recovery point moves to the log end of now.
  void flush(LogCallback<kafka::Offset> callback);
  /// Writes what waits, flushes, writes indexes and the producer snapshot, gives the chunks back. Then calls back; no
  /// other call may follow. The last step of a clean stop.
  void close(LogCallback<kafka::Offset> callback);
  /// Fails what waits and gives the chunks back without writing (deletion of the partition, offline directory).
  void abandon(kafka::ErrorCode reason);

 private:
  friend class LogDirectory;
  explicit Partition(Parts parts);

  struct DirtyRange {
    std::shared_ptr<Segment> segment;
    std::shared_ptr<Chunk> chunk;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
  };
  struct Waiter {
    kafka::Offset end;  ///< runs when everything below is written
    AppendResult result;
    AppendCallback callback;
  };
  struct LoadRequest {
    kafka::Offset offset;
    std::uint32_t bytes;
    MemoryFor purpose;
    LogCallback<std::shared_ptr<Chunk>> callback;
  };
  struct WriteJob;
  struct LoadJob;
  struct TimeQuery;

  void join_journal();
  // partition_append.cpp
  /// A batch that waits for its check, or for those before it.
  struct Arrival {
    Bytes records;
    Buffer own;  // a coordinator's records
    AppendOptions options;
    AppendCallback callback;
  };
  struct Check;
  [[nodiscard]] std::optional<kafka::Error> closed_to_appends() const;
  [[nodiscard]] std::size_t unpacked_bytes_max() const;
  [[nodiscard]] bool large(Bytes records) const;
  [[nodiscard]] bool append_here(Bytes records, const AppendOptions& options, AppendCallback& callback);
  void check_first();
  void checked(Check& check);
  void finish_append(ResultOf<ValidBatch, BatchRefusal> valid, const AppendOptions& options, std::int64_t now_ms,
                     AppendCallback callback);
  void refuse(AppendCallback callback, kafka::Error why, std::vector<RecordError> records = {});
  void answer_duplicate(const ProducerState::Batch& original, AppendCallback callback);
  [[nodiscard]] bool should_roll(const BatchInfo& batch) const;
  [[nodiscard]] bool make_room(std::uint32_t bytes);
  void put(const ValidBatch& batch, kafka::LeaderEpoch epoch, std::int64_t now_ms);
  void roll(kafka::Offset base);
  void seal_open_chunk();
  void name_epoch(kafka::LeaderEpoch epoch, kafka::Offset start);
  void wait_for(kafka::Offset end, AppendResult result, AppendCallback callback);
  // partition_write.cpp
  void start_write();
  void write_soon();
  [[nodiscard]] bool write_journal();
  void file_now();
  void when_filed(std::function<void()> then);
  void acknowledge(kafka::Offset end, const DirtyRange& last);
  [[nodiscard]] bool flush_messages_reached() const;
  /// For jobs of the write queue: behind a failure nothing is done, or a replay could not tell what is missing.
  template <class Work>
  IoResult<void> unless_failed(Work&& work) {
    if (write_queue_result_) write_queue_result_ = work();
    return write_queue_result_;
  }
  void job_settled();
  void when_idle(std::function<void()> then);
  void submit_write();
  void written(WriteJob& job);
  void finish_segment(const std::shared_ptr<Segment>& segment, const Segment& next);
  void sync_until(kafka::Offset end, LogCallback<kafka::Offset> callback);
  void flush_in_time();
  void flush_is_due(std::uint64_t timer);
  void committed_changed();
  void publish();
  void io_failed(const IoError& error);
  void write_epochs();
  void fail_waiting(const kafka::Error& why);
  // partition_read.cpp
  [[nodiscard]] std::shared_ptr<Segment> segment_of(kafka::Offset offset) const;
  void read_ahead(const Chunk& last);
  void answer_load(LoadRequest request, ResultOf<std::shared_ptr<Chunk>, kafka::Error> answer);
  void start_load();
  void loaded(LoadJob& job);
  void admit(const std::shared_ptr<Segment>& segment, const std::shared_ptr<Chunk>& chunk);
  void want_back(const std::shared_ptr<Segment>& segment, const std::shared_ptr<Chunk>& chunk);
  void evict(const std::shared_ptr<Chunk>& chunk);
  // partition_clean.cpp
  [[nodiscard]] std::shared_ptr<CleanPlan> plan_clean() const;
  void cleaned(const std::shared_ptr<CleanPlan>& plan, std::shared_ptr<IoResult<CleanResult>> result,
               LogCallback<std::uint64_t> callback);
  void swapped(const CleanPlan& plan, CleanResult& result, const IoResult<void>& done,
               LogCallback<std::uint64_t> callback);
  // partition_upkeep.cpp
  void delete_segments(const std::vector<std::shared_ptr<Segment>>& gone);
  /// What may go at this moment: segments below the log start alone, or also those that retention.ms and .bytes give
  /// up.
  enum class Reclaim { deleted_records, all };
  void reclaim(Reclaim what);
  void retire_chunks(const std::shared_ptr<Segment>& segment);
  void move_log_start(kafka::Offset start);
  void learn_timestamps();
  void finish_close(LogCallback<kafka::Offset> callback);
  void reopen(kafka::Offset truncate_to, LogCallback<kafka::Offset> callback);
  void install(OpenedLog opened);
  void finish_truncate(kafka::Offset offset, LogCallback<kafka::Offset> callback);
  void remove_later(std::shared_ptr<SegmentFiles> files);

  Parts parts_;
  LogConfig config_;
  std::shared_ptr<PartitionMemory> memory_;
  IoQueue write_queue_;
  IoResult<void> write_queue_result_;  // of its jobs, which alone look at it
  IoQueue read_queue_;
  IoQueue sync_queue_;
  IoQueue clean_queue_;
  IoQueue check_queue_ = 0;
  std::deque<Arrival> arriving_;  // the first one is being checked
  std::map<kafka::Offset, std::shared_ptr<Segment>> segments_;
  std::shared_ptr<Segment> active_;
  std::shared_ptr<Chunk> open_chunk_;
  std::uint64_t next_chunk_sequence_ = 1;
  std::uint32_t chunk_bytes_next_ = 0;
  Clock::TimePoint chunk_opened_at_{};
  LeaderEpochs epochs_;
  ProducerState producers_;
  kafka::Offset log_start_;
  kafka::Offset high_watermark_;
  kafka::Offset written_end_;
  kafka::Offset submitted_end_;  // end of what is in files or on its way there
  kafka::Offset filed_end_;      // end of what is in segment files; the journal has what lies between
  kafka::Offset log_end_;
  kafka::Offset flushed_end_;      // the recovery point
  kafka::Offset indexes_durable_;  // index files of segments below this base are on the device
  std::int64_t segment_jitter_ms_ = 0;
  std::shared_ptr<Journal::Share> journal_share_;
  std::deque<DirtyRange> dirty_;  // for the next write to files
  std::uint64_t dirty_bytes_ = 0;
  std::uint64_t journaled_bytes_ = 0;  // the first of them, that the journal has
  std::uint64_t unwritten_bytes_ = 0;
  std::uint64_t log_bytes_ = 0;
  int writes_in_flight_ = 0;
  bool write_is_due_ = false;
  bool file_is_due_ = false;  // behind the write under way, to files in any case
  std::uint64_t messages_since_flush_ = 0;
  std::uint64_t flush_timer_ = 0;     // of flush.ms; one of an earlier number does nothing
  bool flush_timer_pending_ = false;  // it runs, or the flush that it began is under way
  std::deque<Waiter> waiters_;
  std::deque<LoadRequest> loads_;
  bool loading_ = false;
  bool learning_timestamps_ = false;
  bool cleaning_ = false;
  bool swapping_ = false;  // cleaned segments take their places: no file of the log may be opened
  kafka::Offset cleaned_to_;
  std::vector<std::function<void()>> after_swap_;
  bool closed_ = false;
  bool truncating_ = false;
  std::uint64_t times_opened_ = 0;  // from its files: at the start, and by each truncation
  int epochs_writing_ = 0;
  bool epoch_unnamed_ = false;  // the latest epoch is not on disk: no batch carries it yet
  bool epochs_unsynced_ = false;
  bool metadata_unsynced_ = false;
  kafka::Offset last_snapshot_{-1};
  std::uint64_t committed_sequence_ = 0;
  std::uint32_t committed_length_ = 0;
  std::vector<std::function<void()>> when_idle_;  // run when nothing waits to be written and no write is under way
  std::deque<std::pair<kafka::Offset, std::function<void()>>> when_filed_;  // by end
  Buffer scratch_;
  Buffer repacked_;
  std::atomic<bool> offline_{false};
  bool lost_ = false;  // its files were missing at the start: it was never opened
  std::atomic<std::int64_t> published_hw_{0};
  std::atomic<std::int64_t> published_start_{0};
  std::atomic<std::int64_t> published_recovery_{0};
  std::atomic<std::int64_t> published_checkpoint_{0};
  std::atomic<std::uint64_t> published_bytes_{0};
};

}  // namespace ciuic::broker
