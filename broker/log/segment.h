#pragma once
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "broker/log/chunk.h"
#include "broker/log/files.h"
#include "broker/log/index.h"
#include "broker/log/producer_state.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// `…/00000000000000000042.log`: Apache's names.
[[nodiscard]] std::string segment_file(const std::string& directory, kafka::Offset base, std::string_view suffix);
inline constexpr std::string_view log_suffix = ".log";
inline constexpr std::string_view index_suffix = ".index";
inline constexpr std::string_view time_index_suffix = ".timeindex";
inline constexpr std::string_view txn_index_suffix = ".txnindex";
inline constexpr std::string_view snapshot_suffix = ".snapshot";
inline constexpr std::string_view deleted_suffix = ".deleted";
inline constexpr std::string_view cleaned_suffix = ".cleaned";
inline constexpr std::string_view swap_suffix = ".swap";

/// The base offset that a file name with that suffix says: 42 of `00000000000000000042.log`.
[[nodiscard]] std::optional<kafka::Offset> segment_base_of(std::string_view name, std::string_view suffix);

/// The files of one segment, opened when first needed. Used by FileIo jobs; any thread.
class SegmentFiles : public std::enable_shared_from_this<SegmentFiles> {
 public:
  SegmentFiles(Files& files, std::string directory, kafka::Offset base)
      : files_(files), directory_(std::move(directory)), base_(base) {}

  /// Opens, or makes, the segment's file. Of a segment that was deleted: its file under the new name, ENOENT once it is
  /// removed. The caller's pointer keeps the handle; ours may be closed by `Files::open_logs`.
  [[nodiscard]] IoResult<std::shared_ptr<File>> log();
  [[nodiscard]] bool is_open() const;
  /// True if `log` was called since the last call of this.
  [[nodiscard]] bool was_used() { return used_.exchange(false, std::memory_order_relaxed); }
  [[nodiscard]] std::string path(std::string_view suffix) const { return segment_file(directory_, base_, suffix); }
  [[nodiscard]] Files& files() const { return files_; }
  /// Writes index bytes at `at` (a multiple of the entry size).
  [[nodiscard]] IoResult<void> write_index(std::string_view suffix, std::uint64_t at, Bytes bytes);
  /// Replaces an index file by `bytes` exactly (roll, close, recovery).
  [[nodiscard]] IoResult<void> replace_index(std::string_view suffix, Bytes bytes);
  /// Contents are on the device afterwards. A file that is gone (retention) is no error.
  [[nodiscard]] IoResult<void> sync_log();
  [[nodiscard]] IoResult<void> sync_indexes();
  /// The file goes to the end of its bytes and no further: gives back what was reserved behind them.
  [[nodiscard]] IoResult<void> trim_log();
  /// Closes what is open; the next use opens again.
  void close_files();
  /// Renames every file of the segment to `….deleted`. From then on nothing is written under the old names.
  [[nodiscard]] IoResult<void> mark_deleted();
  [[nodiscard]] bool deleted() const;
  /// Removes the files that `mark_deleted` renamed.
  [[nodiscard]] IoResult<void> remove_deleted();
  /// Progress of hints to the kernel; only the write queue's jobs touch it.
  std::uint64_t hinted_to = 0;
  std::uint64_t reserved_to = 0;

 private:
  Files& files_;
  std::string directory_;
  kafka::Offset base_;
  mutable std::mutex mutex_;
  std::shared_ptr<File> log_;
  bool deleted_ = false;
  std::atomic<bool> used_{false};
};

/// Index entries in memory, while a segment is active and until its files are written after a roll.
struct SegmentIndexes {
  std::vector<OffsetEntry> offsets{};
  std::vector<TimeEntry> times{};
  std::size_t offsets_in_file = 0;
  std::size_t times_in_file = 0;
  std::uint32_t bytes_since_entry = 0;
};

/// One segment as its owner's executor sees it.
struct Segment {
  Segment(Files& files, const std::string& directory, kafka::Offset base_offset)
      : base(base_offset), on_disk(std::make_shared<SegmentFiles>(files, directory, base_offset)) {}

  kafka::Offset base;
  std::shared_ptr<SegmentFiles> on_disk;
  std::uint32_t bytes = 0;    ///< appended
  std::uint32_t written = 0;  ///< in the file
  std::int64_t created_ms = 0;
  std::int64_t first_timestamp = -1;          ///< of the first batch; decides segment.ms
  std::optional<std::int64_t> max_timestamp;  ///< unknown until asked for in a segment that was on disk at start
  kafka::Offset max_timestamp_offset{-1};
  /// No batch here holds this offset or a later one, as far as is known.
  kafka::Offset nothing_from{std::numeric_limits<std::int64_t>::max()};
  std::vector<AbortedRange> aborted;
  std::size_t aborted_in_file = 0;
  std::vector<std::shared_ptr<Chunk>> chunks;  ///< in memory, by file position

  std::optional<SegmentIndexes> indexes;

  /// Notes a batch that was put at `position`: timestamps and, every `interval` bytes, an entry of each index.
  void index_batch(const BatchInfo& batch, std::uint32_t position, std::int32_t interval);
  /// Adds the closing time entry (roll and close), as Apache does.
  void finish_time_index();
  /// What a log that is not written any more leaves on disk: no room behind its end, its index files whole. Blocks; on
  /// the write queue, while the owner leaves the indexes alone. REQUIRES: it has indexes.
  [[nodiscard]] IoResult<void> finish_files() const;
  /// The chunk in memory that holds `offset`, or the first batch after it when that follows without a hole.
  [[nodiscard]] std::shared_ptr<Chunk> chunk_for(kafka::Offset offset) const;
  void insert_chunk(std::shared_ptr<Chunk> chunk);
  void remove_chunk(const Chunk& chunk);
};

}  // namespace ciuic::broker
