// A segment: its files by name, its index entries, its chunks. Not here: when it rolls or goes (Partition).
#include "broker/log/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "broker/log/open_logs.h"
#include "broker/log/text_lines.h"

namespace ciuic::broker {

std::string segment_file(const std::string& directory, kafka::Offset base, std::string_view suffix) {
  return fmt::format("{}/{:020}{}", directory, base.value, suffix);
}

std::optional<kafka::Offset> segment_base_of(std::string_view name, std::string_view suffix) {
  if (name.size() != 20 + suffix.size() || !name.ends_with(suffix)) return std::nullopt;
  const auto digits = name.substr(0, 20);
  const auto value = number<std::int64_t>(digits);
  // "-0" is a number too; and every offset of a segment, 32 bits above its base, must be one.
  constexpr auto base_max = std::numeric_limits<std::int64_t>::max() - std::numeric_limits<std::uint32_t>::max();
  if (!value || digits.front() == '-' || *value > base_max) return std::nullopt;
  return kafka::Offset(*value);
}

namespace {
constexpr std::string_view index_files[] = {index_suffix, time_index_suffix, txn_index_suffix};
}

IoResult<std::shared_ptr<File>> SegmentFiles::log() {
  used_.store(true, std::memory_order_relaxed);
  std::shared_ptr<File> opened;
  {
    const std::scoped_lock lock(mutex_);
    if (log_) return log_;
    // Of a deleted segment: under its new name while it is there, and never made anew. An empty file under the old name
    // would end the log for the next start.
    auto file = deleted_ ? files_.open(path(log_suffix) + std::string(deleted_suffix), OpenMode::read_write)
                         : files_.open(path(log_suffix), OpenMode::create);
    if (!file) return file.error();
    log_ = opened = *file;
  }
  if (auto* all = files_.open_logs()) all->opened(weak_from_this());
  return opened;
}

bool SegmentFiles::is_open() const {
  const std::scoped_lock lock(mutex_);
  return log_ != nullptr;
}

IoResult<void> SegmentFiles::write_index(std::string_view suffix, std::uint64_t at, Bytes bytes) {
  if (bytes.empty() || deleted()) return {};
  auto file = files_.open(path(suffix), OpenMode::create);
  if (!file) return file.error();
  return (*file)->write_at(at, std::span(&bytes, 1));
}

IoResult<void> SegmentFiles::replace_index(std::string_view suffix, Bytes bytes) {
  if (deleted()) return {};
  auto file = files_.open(path(suffix), OpenMode::create);
  if (!file) return file.error();
  if (!bytes.empty())
    if (auto done = (*file)->write_at(0, std::span(&bytes, 1)); !done) return done;
  return (*file)->truncate(bytes.size());
}

IoResult<void> SegmentFiles::sync_log() {
  if (deleted()) return {};
  const auto exists = files_.exists(path(log_suffix));
  if (!exists) return exists.error();
  if (!*exists) return {};
  const auto file = log();
  if (!file) return file.error();
  return (*file)->sync();
}

IoResult<void> SegmentFiles::trim_log() {
  if (reserved_to == 0 || deleted()) return {};
  const auto file = log();
  if (!file) return file.error();
  const auto size = (*file)->size();
  if (!size) return size.error();
  reserved_to = 0;
  return (*file)->truncate(*size);
}

IoResult<void> SegmentFiles::sync_indexes() {
  for (const auto suffix : index_files) {
    const auto file = files_.open(path(suffix), OpenMode::read_write);
    if (!file && file.error().number == ENOENT) continue;
    if (!file) return file.error();
    if (auto done = (*file)->sync(); !done) return done;
  }
  return {};
}

void SegmentFiles::close_files() {
  const std::scoped_lock lock(mutex_);
  log_.reset();
}

bool SegmentFiles::deleted() const {
  const std::scoped_lock lock(mutex_);
  return deleted_;
}

IoResult<void> SegmentFiles::mark_deleted() {
  // Held over the renames: who opens the log waits, and finds it under the new name.
  const std::scoped_lock lock(mutex_);
  log_.reset();
  deleted_ = true;
  const auto mark = [this](std::string_view suffix) -> IoResult<void> {
    const auto from = path(suffix);
    const auto exists = files_.exists(from);
    if (!exists) return exists.error();
    if (!*exists) return {};
    return files_.rename(from, from + std::string(deleted_suffix));
  };
  // The log first: without it a crash in between leaves index files that a start removes.
  if (auto done = mark(log_suffix); !done) return done;
  for (const auto suffix : index_files)
    if (auto done = mark(suffix); !done) return done;
  return mark(snapshot_suffix);
}

IoResult<void> SegmentFiles::remove_deleted() {
  for (const auto suffix : {log_suffix, index_suffix, time_index_suffix, txn_index_suffix, snapshot_suffix})
    if (auto done = files_.remove(path(suffix) + std::string(deleted_suffix)); !done) return done;
  return {};
}

void Segment::index_batch(const BatchInfo& batch, std::uint32_t position, std::int32_t interval) {
  if (bytes == 0 && first_timestamp < 0) first_timestamp = batch.first_timestamp;
  if (!max_timestamp || batch.max_timestamp > *max_timestamp) {
    max_timestamp = batch.max_timestamp;
    max_timestamp_offset = batch.last_offset;
  }
  if (!indexes) return;
  auto& index = *indexes;
  if (index.bytes_since_entry > static_cast<std::uint32_t>(interval)) {
    index.offsets.push_back({static_cast<std::uint32_t>(batch.last_offset - base), position});
    if (*max_timestamp >= 0 && (index.times.empty() || *max_timestamp > index.times.back().timestamp))
      index.times.push_back({*max_timestamp, static_cast<std::uint32_t>(max_timestamp_offset - base)});
    index.bytes_since_entry = 0;
  }
  index.bytes_since_entry += batch.bytes;
}

void Segment::finish_time_index() {
  if (!indexes || !max_timestamp || *max_timestamp < 0) return;
  auto& times = indexes->times;
  if (times.empty() || *max_timestamp > times.back().timestamp)
    times.push_back({*max_timestamp, static_cast<std::uint32_t>(max_timestamp_offset - base)});
}

IoResult<void> Segment::finish_files() const {
  auto done = on_disk->trim_log();
  if (done) done = on_disk->replace_index(index_suffix, encode(std::span<const OffsetEntry>(indexes->offsets)));
  if (done) done = on_disk->replace_index(time_index_suffix, encode(std::span<const TimeEntry>(indexes->times)));
  return done;
}

std::shared_ptr<Chunk> Segment::chunk_for(kafka::Offset offset) const {
  const auto after = std::upper_bound(chunks.begin(), chunks.end(), offset,
                                      [](kafka::Offset at, const auto& chunk) { return at < chunk->covers_from(); });
  if (after == chunks.begin()) return nullptr;
  const auto& chunk = *std::prev(after);
  if (offset < chunk->next_offset()) return chunk;
  if (after != chunks.end() && (*after)->file_position() == chunk->file_end()) return *after;
  return nullptr;
}

void Segment::insert_chunk(std::shared_ptr<Chunk> chunk) {
  const auto after = std::upper_bound(chunks.begin(), chunks.end(), chunk->file_position(),
                                      [](std::uint32_t at, const auto& one) { return at < one->file_position(); });
  chunks.insert(after, std::move(chunk));
}

void Segment::remove_chunk(const Chunk& chunk) {
  std::erase_if(chunks, [&chunk](const auto& one) { return one.get() == &chunk; });
}

}  // namespace ciuic::broker
