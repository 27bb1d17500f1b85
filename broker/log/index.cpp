// Apache's index files: encoding and binary search. Not here: when entries are added (segment.cpp).
#include "broker/log/index.h"

#include <algorithm>

#include "transport/kafka/wire.h"

namespace ciuic::broker {

namespace {

OffsetEntry offset_entry(Bytes bytes) {
  return {kafka::load_be<std::uint32_t>(bytes.data() + 0), kafka::load_be<std::uint32_t>(bytes.data() + 4)};
}
TimeEntry time_entry(Bytes bytes) {
  return {kafka::load_be<std::int64_t>(bytes.data() + 0), kafka::load_be<std::uint32_t>(bytes.data() + 8)};
}

/// The last entry for which `at_most` holds, by reading one entry at a time; entries lie in ascending order.
template <class Entry, class Decode, class AtMost>
IoResult<Entry> floor_by_reading(Files& files, const std::string& path, Decode decode, AtMost at_most, Entry none) {
  const auto exists = files.exists(path);
  if (!exists) return exists.error();
  if (!*exists) return none;
  const auto file = files.open(path, OpenMode::read);
  if (!file) return file.error();
  const auto size = (*file)->size();
  if (!size) return size.error();
  std::uint64_t low = 0;
  std::uint64_t high = *size / Entry::bytes_on_disk;
  auto found = none;
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    std::byte bytes[Entry::bytes_on_disk];
    const auto got = (*file)->read_at(middle * Entry::bytes_on_disk, bytes);
    if (!got) return got.error();
    const auto entry = decode(Bytes(bytes));
    // Zeros behind the last entry (an index that was not trimmed) are no entries; the first may be (0, 0).
    const bool padding = middle > 0 && entry == Entry{};
    if (*got == Entry::bytes_on_disk && !padding && at_most(entry)) {
      found = entry;
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return found;
}

}  // namespace

Buffer encode(std::span<const OffsetEntry> entries) {
  Buffer bytes(entries.size() * OffsetEntry::bytes_on_disk);
  std::size_t at = 0;
  for (const auto& entry : entries) {
    kafka::store_be(bytes.data() + at, entry.relative_offset);
    kafka::store_be(bytes.data() + at + 4, entry.position);
    at += OffsetEntry::bytes_on_disk;
  }
  return bytes;
}

Buffer encode(std::span<const TimeEntry> entries) {
  Buffer bytes(entries.size() * TimeEntry::bytes_on_disk);
  std::size_t at = 0;
  for (const auto& entry : entries) {
    kafka::store_be(bytes.data() + at, entry.timestamp);
    kafka::store_be(bytes.data() + at + 8, entry.relative_offset);
    at += TimeEntry::bytes_on_disk;
  }
  return bytes;
}

namespace {
constexpr std::size_t aborted_bytes = 34;
}

Buffer encode(std::span<const AbortedRange> entries) {
  Buffer bytes(entries.size() * aborted_bytes);
  std::size_t at = 0;
  for (const auto& entry : entries) {
    kafka::store_be(bytes.data() + at, std::int16_t{0});
    kafka::store_be(bytes.data() + at + 2, entry.producer_id.value);
    kafka::store_be(bytes.data() + at + 10, entry.first_offset.value);
    kafka::store_be(bytes.data() + at + 18, entry.last_offset.value);
    kafka::store_be(bytes.data() + at + 26, entry.last_stable_offset.value);
    at += aborted_bytes;
  }
  return bytes;
}

std::vector<OffsetEntry> decode_offset_entries(Bytes bytes) {
  std::vector<OffsetEntry> entries;
  for (std::size_t at = 0; bytes.size() - at >= OffsetEntry::bytes_on_disk; at += OffsetEntry::bytes_on_disk) {
    const auto entry = offset_entry(bytes.subspan(at));
    if (!entries.empty() && entry.relative_offset <= entries.back().relative_offset) break;
    entries.push_back(entry);
  }
  return entries;
}

std::vector<TimeEntry> decode_time_entries(Bytes bytes) {
  std::vector<TimeEntry> entries;
  for (std::size_t at = 0; bytes.size() - at >= TimeEntry::bytes_on_disk; at += TimeEntry::bytes_on_disk) {
    const auto entry = time_entry(bytes.subspan(at));
    if (!entries.empty() && entry.timestamp < entries.back().timestamp) break;
    entries.push_back(entry);
  }
  return entries;
}

std::optional<std::vector<AbortedRange>> decode_aborted(Bytes bytes) {
  if (bytes.size() % aborted_bytes != 0) return std::nullopt;
  std::vector<AbortedRange> entries;
  for (std::size_t at = 0; at < bytes.size(); at += aborted_bytes) {
    if (kafka::load_be<std::int16_t>(bytes.data() + at) != 0) return std::nullopt;
    entries.push_back({kafka::ProducerId(kafka::load_be<std::int64_t>(bytes.data() + at + 2)),
                       kafka::Offset(kafka::load_be<std::int64_t>(bytes.data() + at + 10)),
                       kafka::Offset(kafka::load_be<std::int64_t>(bytes.data() + at + 18)),
                       kafka::Offset(kafka::load_be<std::int64_t>(bytes.data() + at + 26))});
  }
  return entries;
}

OffsetEntry floor_entry(std::span<const OffsetEntry> entries, std::uint32_t relative) {
  const auto after = std::upper_bound(entries.begin(), entries.end(), relative,
                                      [](std::uint32_t at, const OffsetEntry& e) { return at < e.relative_offset; });
  return after == entries.begin() ? OffsetEntry{0, 0} : *std::prev(after);
}

TimeEntry floor_entry(std::span<const TimeEntry> entries, std::int64_t timestamp) {
  const auto after = std::upper_bound(entries.begin(), entries.end(), timestamp,
                                      [](std::int64_t at, const TimeEntry& e) { return at < e.timestamp; });
  return after == entries.begin() ? TimeEntry{-1, 0} : *std::prev(after);
}

IoResult<OffsetEntry> floor_in_file(Files& files, const std::string& path, std::uint32_t relative) {
  return floor_by_reading(
      files, path, offset_entry, [relative](const OffsetEntry& entry) { return entry.relative_offset <= relative; },
      OffsetEntry{0, 0});
}

IoResult<TimeEntry> floor_in_file(Files& files, const std::string& path, std::int64_t timestamp) {
  return floor_by_reading(
      files, path, time_entry, [timestamp](const TimeEntry& entry) { return entry.timestamp <= timestamp; },
      TimeEntry{-1, 0});
}

IoResult<std::optional<TimeEntry>> last_time_entry(Files& files, const std::string& path) {
  const auto last = floor_in_file(files, path, std::numeric_limits<std::int64_t>::max());
  if (!last) return last.error();
  if (last->timestamp < 0) return std::optional<TimeEntry>{};
  return std::optional<TimeEntry>{*last};
}

}  // namespace ciuic::broker
