// A chunk: whole batches of one segment in memory. Not here: when one opens or goes (Partition), its place (arena.cpp).
#include "broker/log/chunk.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "broker/log/stored_batch.h"
#include "transport/base/log.h"

namespace ciuic::broker {

namespace {
constexpr std::uint32_t mark_interval_bytes = 4096;
constexpr std::uint32_t page_bytes = 4096;

std::uint32_t to_pages(std::uint32_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }
}  // namespace

std::optional<ChunkState> next(ChunkState state, ChunkEvent event) {
  for (const auto& row : chunk_table)
    if (row.from == state && row.event == event) return row.to;
  return std::nullopt;
}

Chunk::Chunk(std::shared_ptr<PartitionMemory> memory, ChunkRange range, std::uint64_t sequence,
             kafka::Offset segment_base, std::uint32_t file_position, kafka::Offset base_offset)
    : memory_(std::move(memory)),
      range_(range),
      sequence_(sequence),
      segment_base_(segment_base),
      base_offset_(base_offset),
      covers_from_(base_offset),
      next_offset_(base_offset),
      file_position_(file_position),
      paged_(range.paged) {}

Chunk::~Chunk() {
  // A chunk that was never revoked dies with its partition: then there is nobody to revoke it from.
  if (state() == ChunkState::revoked) on(ChunkEvent::unpinned);
  range_.paged = std::max(paged_, to_pages(length_));
  memory_->release(range_);
}

void Chunk::on(ChunkEvent event) {
  const auto to = next(state(), event);
  if (!to) {
    log::error("log", "chunk {}: event {} in state {} is not in the table", sequence_, static_cast<int>(event),
               static_cast<int>(state()));
    log::flush();
    std::abort();
  }
  state_.store(*to, std::memory_order_release);
}

MutableBytes Chunk::append(Bytes header, Bytes rest) {
  const auto to = range_.bytes.subspan(length_, header.size() + rest.size());
  const auto end = length_ + static_cast<std::uint32_t>(to.size());
  if (end > paged_) {
    const std::array pieces{header, rest};
    const bool filled = memory_->fill(range_, length_, pieces);
    paged_ = to_pages(end);
    if (filled) return to;
  }
  std::memcpy(to.data(), header.data(), header.size());
  if (!rest.empty()) std::memcpy(to.data() + header.size(), rest.data(), rest.size());
  return to;
}

void Chunk::grown(std::uint32_t bytes, kafka::Offset batch_base, kafka::Offset next_offset) {
  if (length_ == 0) {
    base_offset_ = batch_base;
    cover_from(batch_base);
  }
  if (marks_.empty() || length_ - marks_.back().position >= mark_interval_bytes)
    marks_.push_back({batch_base, length_});
  length_ += bytes;
  next_offset_ = next_offset;
}

std::uint32_t Chunk::mark_before(kafka::Offset offset) const {
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), offset,
                                      [](kafka::Offset at, const Mark& mark) { return at < mark.base; });
  return after == marks_.begin() ? 0 : std::prev(after)->position;
}

std::uint32_t Chunk::position_of(kafka::Offset offset) const {
  auto at = mark_before(offset);
  while (at < length_) {
    const StoredBatch header(memory().subspan(at, length_ - at));
    if (header.last_offset() >= offset) return at;
    at += header.size();
  }
  return length_;
}

std::uint32_t Chunk::position_of_base(kafka::Offset limit) const {
  if (next_offset_ <= limit) return length_;
  auto at = mark_before(limit);
  while (at < length_) {
    const StoredBatch header(memory().subspan(at, length_ - at));
    if (header.base_offset() >= limit) return at;
    at += header.size();
  }
  return length_;
}

std::uint32_t Chunk::whole_batches(std::uint32_t from, std::uint32_t limit, std::uint32_t bytes) const {
  if (bytes >= limit - from) return limit;
  const auto stop = from + bytes;
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), stop,
                                      [](std::uint32_t at, const Mark& mark) { return at < mark.position; });
  auto at = after == marks_.begin() ? from : std::max(from, std::prev(after)->position);
  while (at < limit) {
    const auto size = StoredBatch(memory().subspan(at, length_ - at)).size();
    if (size > stop - at) break;
    at += size;
  }
  return at;
}

}  // namespace ciuic::broker
