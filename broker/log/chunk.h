#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "broker/log/arena.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// The life of a chunk as a table (style.md, habit 11). `open`: the active one, growing. `sealed`: its bytes are final.
/// `draining`: exposure was told to let go; no new grants. `revoked`: nobody may read it remotely any more; local pins
/// may. `free`: its range went back to the partition's memory.
enum class ChunkState : std::uint8_t { open, sealed, draining, revoked, free };
enum class ChunkEvent : std::uint8_t { full, want_back, leases_over, unpinned };

struct ChunkTransition {
  ChunkState from;
  ChunkEvent event;
  ChunkState to;
};
inline constexpr ChunkTransition chunk_table[] = {
    {ChunkState::open, ChunkEvent::full, ChunkState::sealed},
    {ChunkState::sealed, ChunkEvent::want_back, ChunkState::draining},
    {ChunkState::draining, ChunkEvent::leases_over, ChunkState::revoked},
    {ChunkState::revoked, ChunkEvent::unpinned, ChunkState::free},
};
/// The state after `event`, or nothing where the table has no such row.
[[nodiscard]] std::optional<ChunkState> next(ChunkState state, ChunkEvent event);

/// A range of a partition's memory that holds whole record batches of one segment, exactly as they lie in its file.
/// The one unit of allocation, registration, grant, lease, revocation and eviction.
///
/// The owner's executor changes it; other threads may read bytes below a length they were told (a read's spans, a
/// committed position): those never change. A `shared_ptr` to it is the pin that keeps the bytes.
class Chunk {
 public:
  Chunk(std::shared_ptr<PartitionMemory> memory, ChunkRange range, std::uint64_t sequence, kafka::Offset segment_base,
        std::uint32_t file_position, kafka::Offset base_offset);
  ~Chunk();
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  /// Unique in the partition's life in this process; a chunk opened later has a larger one.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] Bytes memory() const { return range_.bytes; }
  [[nodiscard]] std::uint64_t memfd_offset() const { return range_.memfd_offset; }
  [[nodiscard]] const PartitionMemory& owner_memory() const { return *memory_; }
  [[nodiscard]] kafka::Offset segment_base() const { return segment_base_; }
  /// Where its first byte lies in the segment's file.
  [[nodiscard]] std::uint32_t file_position() const { return file_position_; }
  [[nodiscard]] std::uint32_t file_end() const { return file_position_ + length_; }
  /// No batch of the log with an offset in [covers_from, base_offset) lies outside this chunk (compaction leaves gaps).
  [[nodiscard]] kafka::Offset covers_from() const { return covers_from_; }
  [[nodiscard]] kafka::Offset base_offset() const { return base_offset_; }
  /// One past the last record's offset.
  [[nodiscard]] kafka::Offset next_offset() const { return next_offset_; }
  /// Bytes in it, written to the file or not.
  [[nodiscard]] std::uint32_t length() const { return length_; }
  [[nodiscard]] std::uint32_t room() const { return static_cast<std::uint32_t>(range_.bytes.size()) - length_; }
  [[nodiscard]] Bytes bytes() const { return memory().first(length_); }
  /// Any thread.
  [[nodiscard]] ChunkState state() const { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] bool contains(kafka::Offset offset) const { return covers_from_ <= offset && offset < next_offset_; }

  /// Moves the state; a transition the table lacks is a bug and aborts.
  void on(ChunkEvent event);
  /// Copies a batch, its header as it shall lie here and what follows it, behind what is there; returns the copy, which
  /// the caller may still change before it calls `grown`. REQUIRES: open, `header.size() + rest.size() <= room()`.
  [[nodiscard]] MutableBytes append(Bytes header, Bytes rest);
  /// One batch of `bytes` bytes was put at the tail.
  void grown(std::uint32_t bytes, kafka::Offset batch_base, kafka::Offset next_offset);
  void cover_from(kafka::Offset offset) {
    if (offset < covers_from_) covers_from_ = offset;
  }

  /// Position in the chunk of the batch that holds `offset`, or of the first one after it; length() if there is none.
  [[nodiscard]] std::uint32_t position_of(kafka::Offset offset) const;
  /// Position of the first batch whose base offset is `limit` or more (where a read bounded by `limit` stops).
  [[nodiscard]] std::uint32_t position_of_base(kafka::Offset limit) const;
  /// End of the whole batches that lie in [from, limit) and take at most `bytes`; `from` and `limit` are such ends.
  [[nodiscard]] std::uint32_t whole_batches(std::uint32_t from, std::uint32_t limit, std::uint32_t bytes) const;

  /// Marks it used now (for the choice of the coldest). Any thread.
  void touch(std::uint64_t tick) { last_used_.store(tick, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t last_used() const { return last_used_.load(std::memory_order_relaxed); }

 private:
  struct Mark {
    kafka::Offset base;
    std::uint32_t position;
  };
  [[nodiscard]] std::uint32_t mark_before(kafka::Offset offset) const;

  std::shared_ptr<PartitionMemory> memory_;
  ChunkRange range_;
  std::uint64_t sequence_;
  kafka::Offset segment_base_;
  kafka::Offset base_offset_;
  kafka::Offset covers_from_;
  kafka::Offset next_offset_;
  std::uint32_t file_position_;
  std::uint32_t length_ = 0;
  std::uint32_t paged_ = 0;  // up to here memory has pages
  std::atomic<ChunkState> state_{ChunkState::open};
  std::vector<Mark> marks_;  // one about every 4 KiB
  std::atomic<std::uint64_t> last_used_{0};
};

using ChunkPin = std::shared_ptr<const Chunk>;

}  // namespace ciuic::broker
