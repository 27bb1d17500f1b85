#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/base/bytes.h"
#include "transport/kafka/types.h"
#include "transport/rdma/fault.h"

/// The slot: 64 bytes a partition in which the broker publishes where the log stands, and which readers fetch with one
/// READ (docs/protocol.md). Little-endian; one cache line; one writer.
///
///     0 u64 version       even: stable; odd: being written; only grows
///     8 i32 leader epoch
///    12 u16 flags         see SlotFlags
///    14 u16 layout        counts layout changes (rolled, truncated, deleted, replaced, closed); wraps
///    16 i64 log start offset
///    24 i64 high watermark
///    32 i64 last stable offset
///    40 u64 chunk sequence    of the chunk that holds the last committed byte; 0: none in memory
///    48 u32 chunk length      committed bytes of that chunk
///    52 u32 aborted count     grows when transactions were aborted below the last stable offset; wraps
///    56 u32 CRC32C of bytes 0 … 55
///    60 u32 version again     its lower half
namespace ciuic::onesided {

inline constexpr std::size_t slot_bytes = 64;
/// Slots lie in blocks of this many partitions: partition p is slot p % 1024 of block p / 1024 of its topic.
inline constexpr std::int32_t slots_per_block = 1024;

namespace slot_flag {
inline constexpr std::uint16_t sealed = 1;  ///< closed or deleted: nothing will follow under this slot
inline constexpr std::uint16_t fenced = 2;  ///< this broker no longer leads: ask Metadata
}  // namespace slot_flag

/// What a slot says.
struct Slot {
  std::uint64_t version = 0;
  kafka::LeaderEpoch leader_epoch{-1};
  std::uint16_t flags = 0;
  std::uint16_t layout = 0;
  kafka::Offset log_start_offset{0};
  kafka::Offset high_watermark{0};
  kafka::Offset last_stable_offset{0};
  std::uint64_t chunk_sequence = 0;
  std::uint32_t chunk_length = 0;
  std::uint32_t aborted_count = 0;
  bool operator==(const Slot&) const = default;
};

/// The one writer of one slot. REQUIRES: 64 bytes at a multiple of 64, zero or written by a SlotWriter before.
class SlotWriter {
 public:
  explicit SlotWriter(MutableBytes slot);
  /// Publishes `now`, whose version is set here. A reader sees the old slot, a torn one (and knows), or this.
  void write(Slot now);
  /// Version of the last write; 0: none.
  [[nodiscard]] std::uint64_t version() const { return version_; }

 private:
  std::byte* at_;
  std::uint64_t version_ = 0;
};

/// Reads a slot that is being written by another thread, process or machine (mapped memory). torn_slot: read again.
[[nodiscard]] rdma::Result<Slot> read_slot(Bytes mapped);
/// Reads a slot from a READ's landing. The same checks, over bytes that do not change.
[[nodiscard]] rdma::Result<Slot> parse_slot(Bytes landed);

}  // namespace ciuic::onesided
