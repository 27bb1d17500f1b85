// Reading segment files from one end to the other at start. Not here: what is done about what is found (recovery.cpp).
#include "broker/log/segment_scan.h"

#include <algorithm>

#include "broker/log/stored_batch.h"

namespace ciuic::broker {

namespace {
constexpr std::size_t window_bytes = 1U << 20;
}

IoResult<Bytes> BatchWalk::bytes_at(std::uint64_t at, std::size_t count) {
  if (at >= window_at_ && at - window_at_ < window_.size() && count <= window_.size() - (at - window_at_))
    return Bytes(window_).subspan(at - window_at_, count);
  // Small files are read whole, large ones a window at a time.
  const auto left = end_ - at;
  window_.resize(std::max<std::size_t>(count, std::min<std::uint64_t>(left, window_bytes)));
  window_at_ = at;
  const auto got = file_.read_at(at, window_);
  if (!got) return got.error();
  window_.resize(*got);
  return Bytes(window_).first(std::min(count, window_.size()));
}

IoResult<std::optional<Bytes>> BatchWalk::next(Need need) {
  last_size_ = 0;
  if (at_ >= end_) return std::optional<Bytes>{};
  const auto left = end_ - at_;
  const auto head = bytes_at(at_, std::min<std::uint64_t>(left, StoredBatch::bytes_v2));
  if (!head) return head.error();
  const auto size = stored_batch_size(*head);
  if (!size || *size > left) return std::optional<Bytes>{};
  auto batch = *head;
  if (need == Need::whole || *size <= batch.size()) {
    const auto whole = bytes_at(at_, *size);
    if (!whole) return whole.error();
    if (whole->size() < *size) return std::optional<Bytes>{};
    batch = *whole;
  }
  last_size_ = *size;
  at_ += *size;
  return std::optional<Bytes>{batch};
}

IoResult<ScanResult> scan_segment(Segment& segment, std::int32_t index_interval,
                                  const std::function<void(const BatchInfo&)>& each) {
  const auto log = segment.on_disk->log();
  if (!log) return log.error();
  const auto size = (*log)->size();
  if (!size) return size.error();
  segment.indexes.emplace();
  segment.bytes = 0;
  segment.max_timestamp = -1;
  segment.first_timestamp = -1;
  segment.max_timestamp_offset = kafka::Offset(-1);
  ScanResult result;
  result.next_offset = segment.base;
  result.file_bytes = *size;
  BatchWalk walk(**log, 0, *size);
  while (true) {
    const auto batch = walk.next(BatchWalk::Need::whole);
    if (!batch) return batch.error();
    if (!*batch) break;
    const auto info = batch_info(**batch);
    const bool in_order = info.base_offset >= result.next_offset && info.last_offset >= info.base_offset &&
                          info.last_offset - segment.base <= std::numeric_limits<std::int32_t>::max();
    if (!in_order || !checksum_agrees(**batch)) {
      walk.step_back();
      break;
    }
    segment.index_batch(info, static_cast<std::uint32_t>(walk.position()), index_interval);
    segment.bytes += info.bytes;
    result.next_offset = info.last_offset + 1;
    each(info);
  }
  result.good_bytes = walk.next_position();
  segment.written = segment.bytes;
  return result;
}

IoResult<ScanResult> open_active(Segment& segment) {
  segment.indexes.emplace();
  segment.max_timestamp = -1;
  ScanResult result;
  result.next_offset = segment.base;
  const auto log = segment.on_disk->log();
  if (!log) return log.error();
  const auto size = (*log)->size();
  if (!size) return size.error();
  result.file_bytes = *size;
  segment.bytes = segment.written = static_cast<std::uint32_t>(*size);
  if (*size == 0) return result;
  auto& files = segment.on_disk->files();
  auto& indexes = *segment.indexes;
  for (const auto suffix : {index_suffix, time_index_suffix}) {
    const auto path = segment.on_disk->path(suffix);
    const auto exists = files.exists(path);
    if (!exists) return exists.error();
    if (!*exists) continue;
    const auto bytes = read_file(files, path);
    if (!bytes) return bytes.error();
    if (suffix == index_suffix)
      indexes.offsets = decode_offset_entries(*bytes);
    else
      indexes.times = decode_time_entries(*bytes);
  }
  indexes.offsets_in_file = indexes.offsets.size();
  indexes.times_in_file = indexes.times.size();
  std::uint64_t from = 0;
  if (!indexes.offsets.empty()) {
    from = indexes.offsets.back().position;
    if (from >= *size) return result;
  }
  if (!indexes.times.empty()) {
    segment.max_timestamp = indexes.times.back().timestamp;
    segment.max_timestamp_offset = segment.base + indexes.times.back().relative_offset;
  }
  std::byte head[StoredBatch::bytes_v2]{};
  const auto got = (*log)->read_at(0, head);
  if (!got) return got.error();
  const auto first = stored_batch_size(Bytes(head).first(*got));
  if (first && (*got == sizeof head || *first <= *got))
    segment.first_timestamp = batch_info(Bytes(head)).first_timestamp;
  BatchWalk walk(**log, from, *size);
  while (true) {
    const auto batch = walk.next(BatchWalk::Need::header);
    if (!batch) return batch.error();
    if (!*batch) break;
    const StoredBatch header(**batch);
    if (header.base_offset() < segment.base) break;
    if (header.max_timestamp() > *segment.max_timestamp) {
      segment.max_timestamp = header.max_timestamp();
      segment.max_timestamp_offset = header.last_offset();
    }
    result.next_offset = header.last_offset() + 1;
    result.good_bytes = walk.next_position();
  }
  indexes.bytes_since_entry = static_cast<std::uint32_t>(*size - from);
  return result;
}

}  // namespace ciuic::broker
