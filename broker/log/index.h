#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "broker/log/files.h"
#include "broker/log/producer_state.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// Entries of Apache's three index files; numbers are big-endian on disk, offsets relative to the segment's base.
struct OffsetEntry {
  static constexpr std::size_t bytes_on_disk = 8;
  std::uint32_t relative_offset;  ///< of a batch's last record
  std::uint32_t position;         ///< of the same batch's first byte
  auto operator<=>(const OffsetEntry&) const = default;
};
struct TimeEntry {
  static constexpr std::size_t bytes_on_disk = 12;
  std::int64_t timestamp;         ///< the largest up to here
  std::uint32_t relative_offset;  ///< last offset of the batch that has it
  auto operator<=>(const TimeEntry&) const = default;
};

[[nodiscard]] Buffer encode(std::span<const OffsetEntry> entries);
[[nodiscard]] Buffer encode(std::span<const TimeEntry> entries);
[[nodiscard]] Buffer encode(std::span<const AbortedRange> entries);
[[nodiscard]] std::vector<OffsetEntry> decode_offset_entries(Bytes bytes);
[[nodiscard]] std::vector<TimeEntry> decode_time_entries(Bytes bytes);
/// Nothing if an entry's version is unknown or the length is no multiple.
[[nodiscard]] std::optional<std::vector<AbortedRange>> decode_aborted(Bytes bytes);

/// The last entry whose relative offset is at most `relative`; position 0 if there is none.
[[nodiscard]] OffsetEntry floor_entry(std::span<const OffsetEntry> entries, std::uint32_t relative);
/// The last entry whose timestamp is at most `timestamp`; relative offset 0 if there is none (Apache's lookup).
[[nodiscard]] TimeEntry floor_entry(std::span<const TimeEntry> entries, std::int64_t timestamp);

/// The same by binary search in the file; blocks. A missing or odd-sized file counts as empty where whole entries end.
[[nodiscard]] IoResult<OffsetEntry> floor_in_file(Files& files, const std::string& path, std::uint32_t relative);
[[nodiscard]] IoResult<TimeEntry> floor_in_file(Files& files, const std::string& path, std::int64_t timestamp);
[[nodiscard]] IoResult<std::optional<TimeEntry>> last_time_entry(Files& files, const std::string& path);

}  // namespace ciuic::broker
