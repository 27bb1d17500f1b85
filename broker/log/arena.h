#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/result.h"
#include "transport/base/unique_fd.h"

namespace ciuic::broker {

class Chunk;
class PartitionMemory;

/// What a chunk is wanted for decides how far the budget may be stretched for it (see `Arena::may_take`).
enum class MemoryFor { exposure, fetch, append };

struct ArenaConfig {
  std::uint64_t budget_bytes = 4ULL << 30;    ///< `log.memory.bytes`
  std::uint32_t chunk_bytes_min = 64U << 10;  ///< first chunk of a quiet partition
  std::uint32_t chunk_bytes_max = 64U << 20;  ///< a busy partition's chunks; a larger batch gets one of its own size
  std::uint64_t extent_bytes = 1ULL << 30;    ///< address space reserved at a time for a partition (sparse)
};

/// The memory budget of all logs, and who must give back when it is spent. One for the process. Any thread.
///
/// Budget counts whole chunks (their size class), in use or kept for reuse. When chunks in use pass 7/8 of it,
/// `relieve` asks the coldest ones' owners to evict (see `Chunk`, `LogObserver`). What they give back stays with a
/// partition that takes about as much from one such round to the next: a page that exists costs a seventh of a new one.
/// Kept ranges are punched when they and the chunks pass the budget.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  [[nodiscard]] static std::shared_ptr<Arena> make(ArenaConfig config);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] const ArenaConfig& config() const { return config_; }
  [[nodiscard]] std::uint64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t kept_free_bytes() const { return kept_free_.load(std::memory_order_relaxed); }
  /// Of chunks alone.
  [[nodiscard]] std::uint64_t in_use_bytes() const;
  [[nodiscard]] std::uint64_t evictions() const { return evictions_.load(std::memory_order_relaxed); }

  /// The smallest size class that holds `bytes`: a power of two from chunk_bytes_min up to the extent's size.
  [[nodiscard]] std::optional<std::uint32_t> class_for(std::uint64_t bytes) const;
  /// True when `bytes` more fit beside the chunks: exposure up to 7/8 of the budget, fetch up to 9/8, append always
  /// (what was appended must be somewhere; unwritten bytes are bounded elsewhere).
  [[nodiscard]] bool may_take(std::uint64_t bytes, MemoryFor purpose) const;

  /// Memory of one partition. Nothing is allocated or mapped before its first `allocate`. Lives while chunks do.
  [[nodiscard]] std::shared_ptr<PartitionMemory> make_memory();

  /// Asks owners of the coldest chunks to evict until chunks can fall to 3/4 of the budget, or to where `coming` more
  /// bytes stay below 7/8 of it, and punches kept ranges until all with `coming` is within the budget: first those of
  /// partitions that took nothing of late. Cheap when there is no pressure. Called by allocations.
  void relieve(std::uint64_t coming = 0);

  /// A chunk that may be evicted when it is the coldest. `evict` may be called on any thread and only posts.
  void watch(const std::shared_ptr<Chunk>& chunk, std::function<void(const std::shared_ptr<Chunk>&)> evict);
  /// Read tick for `Chunk::touch`: grows with every allocation, so it orders uses without a clock.
  [[nodiscard]] std::uint64_t tick() const { return tick_.load(std::memory_order_relaxed); }

 private:
  friend class PartitionMemory;
  explicit Arena(ArenaConfig config);
  void evict_coldest(std::uint64_t target);
  void punch_kept(std::uint64_t target);
  struct Watched {
    std::weak_ptr<Chunk> chunk;
    std::function<void(const std::shared_ptr<Chunk>&)> evict;
  };

  ArenaConfig config_;
  bool huge_pages_;  // the kernel gives huge pages to shared memory that asks for them
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> kept_free_{0};
  std::atomic<std::uint64_t> evictions_{0};
  std::atomic<std::uint64_t> tick_{1};
  std::atomic<std::uint64_t> round_{1};  // of evictions
  std::atomic<bool> relieving_{false};
  std::mutex mutex_;
  std::vector<std::weak_ptr<PartitionMemory>> memories_;
  std::vector<Watched> watched_;
};

/// A chunk's place: bytes in this process, and where they lie in the partition's memfd.
struct ChunkRange {
  MutableBytes bytes;
  std::uint64_t memfd_offset = 0;
  /// So many leading bytes have pages. What lies behind is better filled by `PartitionMemory::fill` than through the
  /// mapping.
  std::uint32_t paged = 0;
};

/// One memfd, mapped once an extent (sparse, MAP_NORESERVE) at addresses that never change. Ranges are reused inside
/// this partition first; bytes never pass to another partition: pages given back are punched, and come back zeroed.
/// Any thread.
class PartitionMemory : public std::enable_shared_from_this<PartitionMemory> {
 public:
  ~PartitionMemory();
  PartitionMemory(const PartitionMemory&) = delete;
  PartitionMemory& operator=(const PartitionMemory&) = delete;

  /// A range of at least `bytes` (its size class), or nothing: the budget does not allow it (after asking for relief),
  /// or the kernel refused memory (logged).
  [[nodiscard]] std::optional<ChunkRange> allocate(std::uint64_t bytes, MemoryFor purpose);
  /// Takes a range back: kept for reuse while the budget is easy or this partition will soon want it, else punched.
  /// Only when nobody can read it any more.
  void release(const ChunkRange& range);

  /// Copies `pieces` one after the other to `at` in `range`, by a write to the memfd: a page that does not exist yet
  /// costs half of what a fault and its zeroing through the mapping do. False: the kernel refused; copy through the
  /// mapping. REQUIRES: `range` was allocated here, the pieces fit, nobody else changes these bytes.
  [[nodiscard]] bool fill(const ChunkRange& range, std::uint32_t at, const std::array<Bytes, 2>& pieces) const;

  /// A descriptor of the memfd that can neither be mapped writable nor reopened for writing (O_RDONLY, mode 0400), for
  /// another process. Empty before the first allocation or when the kernel refuses. The caller owns it.
  [[nodiscard]] UniqueFd read_only_descriptor() const;
  /// Bytes of the memfd so far (it only grows; sparse).
  [[nodiscard]] std::uint64_t memfd_bytes() const;
  /// Names the memfd: unique in the process, for exposure's bookkeeping.
  [[nodiscard]] std::uint64_t id() const { return id_; }

 private:
  friend class Arena;
  static constexpr std::size_t class_count = 15;  // 64 KiB << 14 = 1 GiB
  struct Free {
    ChunkRange range;
    bool has_pages;
  };

  PartitionMemory(std::shared_ptr<Arena> arena, std::uint64_t id) : arena_(std::move(arena)), id_(id) {}
  std::optional<ChunkRange> carve(std::uint32_t bytes);
  bool add_extent();
  bool punch(const ChunkRange& range);
  void punch_free();
  void follow_round();
  [[nodiscard]] bool took_of_late();
  std::vector<Free>& free_of(std::uint64_t bytes);

  std::shared_ptr<Arena> arena_;
  std::uint64_t id_;
  mutable std::mutex mutex_;
  UniqueFd memfd_;
  std::vector<MutableBytes> extents_;
  std::uint64_t carved_ = 0;  // in the last extent
  std::array<std::vector<Free>, class_count> free_;
  std::uint64_t kept_ = 0;        // bytes in free_ that have pages
  std::uint64_t round_ = 0;       // of evictions, as last seen
  std::uint64_t taken_ = 0;       // bytes allocated in it
  std::uint64_t taken_last_ = 0;  // and in the one before
};

}  // namespace ciuic::broker
