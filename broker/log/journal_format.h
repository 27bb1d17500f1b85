// How a journal's file lies on disk. For journal.cpp and journal_replay.cpp alone; read by the machine that wrote it,
// in its byte order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "broker/log/journal.h"
#include "transport/base/bytes.h"
#include "transport/base/crc32c.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker::journal {

inline constexpr std::uint64_t page = 4096;
inline constexpr std::uint64_t ring_begin = page;  ///< of the file; before it the FileHead

struct FileHead {
  static constexpr std::uint64_t right_magic = 0x31'4C'4E'52'4A'49'55'43ULL;  // "CUIJRNL1" as bytes
  std::uint64_t magic = right_magic;
  std::uint64_t ring_bytes = 0;
  std::uint64_t tail = 0;    ///< everything below is in segment files
  std::uint64_t secret = 0;  ///< random; in every record, so that no producer's bytes can pass for one
};

/// Before each record; the next one begins behind its bytes, rounded up to `alignment`.
struct RecordHead {
  std::uint64_t at = 0;  ///< its own position: what an earlier turn of the ring left here says another
  std::uint32_t bytes = 0;
  std::uint32_t turn = 0;  ///< 1: nothing more until the ring's end
  kafka::TopicId topic{};
  std::int64_t segment_base = 0;
  std::int32_t partition = 0;
  std::uint32_t position = 0;  ///< in the segment's file
  std::uint32_t secret = 0;    ///< the ring's lower half
  std::uint32_t crc = 0;
};
static_assert(sizeof(RecordHead) == 56 && std::has_unique_object_representations_v<RecordHead>);
inline constexpr std::uint64_t alignment = 8;

[[nodiscard]] inline std::uint64_t record_bytes(std::uint64_t bytes) {
  return (sizeof(RecordHead) + bytes + alignment - 1) / alignment * alignment;
}
[[nodiscard]] inline std::uint64_t next_turn(std::uint64_t position, std::uint64_t ring_bytes) {
  return (position / ring_bytes + 1) * ring_bytes;
}
/// Of the head and of what a batch's own checksum leaves out. (The bytes of the batches are checked as those of any
/// segment that a crash left.)
[[nodiscard]] inline std::uint32_t crc_of(const RecordHead& head, Bytes bytes, std::uint64_t secret) {
  const auto first = bytes.first(bytes.size() < kafka::batch_header_bytes ? bytes.size() : kafka::batch_header_bytes);
  const auto covered = std::as_bytes(std::span(&head, 1)).first(offsetof(RecordHead, crc));
  return crc32c(first, crc32c(covered, crc32c(std::as_bytes(std::span(&secret, 1)))));
}

}  // namespace ciuic::broker::journal
