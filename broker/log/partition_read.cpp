// Reading: spans of chunks below the committed position; what is not in memory is brought in by a FileIo job. Also how
// chunks come and go. Not here: finding by time (partition_find.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "broker/log/partition.h"
#include "broker/log/stored_batch.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

/// The segment whose batches may hold `offset`; none above the log end or below the first segment.
std::shared_ptr<Segment> Partition::segment_of(kafka::Offset offset) const {
  auto after = segments_.upper_bound(offset);
  if (after == segments_.begin()) return nullptr;
  auto at = std::prev(after);
  // A segment may hold nothing from there on, or nothing at all (compaction).
  while (std::max(offset, at->first) >= at->second->nothing_from && after != segments_.end()) at = after++;
  return at->second;
}

std::shared_ptr<Chunk> Partition::resident(kafka::Offset offset) const {
  if (offset >= log_end_) return nullptr;
  auto segment = segment_of(offset);
  while (segment) {
    if (auto chunk = segment->chunk_for(std::max(offset, segment->base))) return chunk;
    // Behind the last batch of a segment (compaction leaves such holes) the log goes on in the next one.
    const bool behind = !segment->chunks.empty() && segment->chunks.back()->next_offset() <= offset &&
                        segment->chunks.back()->file_end() == segment->bytes;
    const auto next = segments_.upper_bound(segment->base);
    if (!behind || next == segments_.end()) return nullptr;
    segment = segment_of(next->first);
  }
  return nullptr;
}

ResultOf<ReadResult, kafka::Error> Partition::read(const ReadRequest& request) {
  if (offline() || closed_)
    return kafka::Error(ErrorCode::kafka_storage_error, "The partition is offline; the broker's log says why");
  if (request.offset < log_start_ || request.offset > log_end_)
    return kafka::Error(
        ErrorCode::offset_out_of_range,
        fmt::format("Offset {} is outside of [{}, {}]", request.offset.value, log_start_.value, log_end_.value));
  ReadResult result;
  result.high_watermark = high_watermark_;
  result.last_stable_offset = last_stable_offset();
  result.log_start_offset = log_start_;
  const auto limit = request.isolation == Isolation::read_committed ? result.last_stable_offset : high_watermark_;
  auto offset = request.offset;
  auto upper = request.offset;
  std::shared_ptr<Chunk> last;
  while (offset < limit) {
    const auto chunk = resident(offset);
    if (!chunk) {
      result.miss = offset;
      break;
    }
    const auto from = chunk->position_of(offset);
    const auto to = chunk->position_of_base(limit);
    if (from >= to) break;
    const auto left =
        request.max_bytes > result.bytes ? request.max_bytes - static_cast<std::uint32_t>(result.bytes) : 0U;
    auto end = chunk->whole_batches(from, to, left);
    if (end == from && result.spans.empty() && request.at_least_one_batch)
      end = from + StoredBatch(chunk->memory().subspan(from)).size();
    if (end == from) break;
    chunk->touch(parts_.arena->tick());
    result.spans.push_back(chunk->memory().subspan(from, end - from));
    result.bytes += end - from;
    result.pins.push_back(chunk);
    last = chunk;
    upper = end == chunk->length() ? chunk->next_offset() : StoredBatch(chunk->memory().subspan(end)).base_offset();
    if (end < to || result.bytes >= request.max_bytes) break;
    offset = upper;
  }
  if (request.isolation == Isolation::read_committed && upper > request.offset)
    result.aborted = aborted_between(request.offset, upper);
  if (last && !result.miss) read_ahead(*last);
  return result;
}

/// A reader of old data will want what follows: it is loaded while this answer is on its way, if memory is easy.
void Partition::read_ahead(const Chunk& last) {
  const auto next = last.next_offset();
  if (last.state() == ChunkState::open || loading_ || !loads_.empty() || next >= written_end_ || resident(next)) return;
  bring_in(next, parts_.limits.read_ahead_bytes, MemoryFor::exposure, {});
}

std::vector<std::shared_ptr<Chunk>> Partition::chunks_from(kafka::Offset offset, std::size_t limit) const {
  std::vector<std::shared_ptr<Chunk>> chunks;
  while (chunks.size() < limit && offset < log_end_) {
    auto chunk = resident(offset);
    if (!chunk || chunk->length() == 0) break;
    offset = chunk->next_offset();
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

std::vector<AbortedTransaction> Partition::aborted_between(kafka::Offset from, kafka::Offset to) const {
  std::vector<AbortedTransaction> found;
  auto at = segments_.upper_bound(from);
  if (at != segments_.begin()) --at;
  for (; at != segments_.end(); ++at) {
    for (const auto& range : at->second->aborted) {
      if (range.last_offset >= from && range.first_offset < to)
        found.push_back({range.producer_id, range.first_offset});
      // Everything below this entry's last stable offset was decided with it: later entries begin behind it.
      if (range.last_stable_offset >= to) {
        std::sort(found.begin(), found.end(),
                  [](const auto& a, const auto& b) { return a.first_offset < b.first_offset; });
        return found;
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first_offset < b.first_offset; });
  return found;
}

// --- Bringing in ---

/// What a load needs and finds; the job runs on FileIo and touches files, memory and nothing of the owner's.
struct Partition::LoadJob {
  std::shared_ptr<Segment> segment;  // the owner's, for its answer
  std::shared_ptr<SegmentFiles> files;
  std::shared_ptr<PartitionMemory> memory;
  kafka::Offset segment_base{};
  kafka::Offset offset{};
  std::optional<std::uint32_t> position{};  // of a batch at or before the offset
  std::uint32_t limit = 0;                  // written bytes of the file
  std::vector<std::uint32_t> resident{};    // where chunks in memory begin
  std::uint32_t bytes = 0;
  MemoryFor purpose = MemoryFor::fetch;
  std::uint64_t sequence = 0;

  std::shared_ptr<Chunk> chunk{};              // brought in
  std::optional<std::uint32_t> is_resident{};  // it is there already, at this position
  bool nothing_here = false;                   // no batch of this segment holds the offset or a later one
  bool no_memory = false;
  std::optional<IoError> io_error{};
  std::optional<kafka::Error> bad_data{};

  void run() {
    const auto log = files->log();
    if (!log) {
      io_error = log.error();
      return;
    }
    if (!position) {
      const auto entry =
          floor_in_file(files->files(), files->path(index_suffix), static_cast<std::uint32_t>(offset - segment_base));
      if (!entry) {
        io_error = entry.error();
        return;
      }
      // An index entry behind the log's end is of no use (a crash between the two): walk from the start.
      position = entry->position < limit ? entry->position : 0;
    }
    if (find_first(**log)) load(**log);
  }

 private:
  /// Walks headers until the batch that holds the offset; false if the job is over.
  bool find_first(File& log) {
    Buffer window;
    std::uint32_t window_at = 0;
    auto at = *position;
    while (at < limit) {
      const auto in_window = at >= window_at && at - window_at < window.size() ? window.size() - (at - window_at) : 0;
      if (in_window < StoredBatch::bytes_v2 && in_window < limit - at) {
        window.resize(std::min<std::uint32_t>(16384, limit - at));
        window_at = at;
        const auto got = log.read_at(at, window);
        if (!got) {
          io_error = got.error();
          return false;
        }
        window.resize(*got);
      }
      const auto here = Bytes(window).subspan(std::min<std::size_t>(at - window_at, window.size()));
      const auto size = stored_batch_size(here);
      if (!size || *size > limit - at) {
        bad_data = kafka::Error(ErrorCode::corrupt_message,
                                fmt::format("No record batch at position {} of {}", at, files->path(log_suffix)));
        return false;
      }
      if (StoredBatch(here).last_offset() >= offset) {
        position = at;
        bytes = std::max(bytes, *size);
        return true;
      }
      at += *size;
    }
    nothing_here = true;
    return false;
  }

  void load(File& log) {
    const auto next = std::lower_bound(resident.begin(), resident.end(), *position);
    if (next != resident.end() && *next == *position) {
      is_resident = *position;
      return;
    }
    const auto stop = next == resident.end() ? limit : std::min(limit, *next);
    const auto range = memory->allocate(std::min(bytes, stop - *position), purpose);
    if (!range) {
      no_memory = true;
      return;
    }
    // The whole class is filled: the range is taken anyway.
    const auto want = std::min<std::size_t>(range->bytes.size(), stop - *position);
    const auto got = log.read_at(*position, range->bytes.first(want));
    if (!got) {
      memory->release(*range);
      io_error = got.error();
      return;
    }
    chunk = std::make_shared<Chunk>(memory, *range, sequence, segment_base, *position, offset);
    auto rest = Bytes(range->bytes).first(*got);
    while (!rest.empty()) {
      const auto size = stored_batch_size(rest);
      if (!size || *size > rest.size()) break;
      const StoredBatch batch(rest);
      chunk->grown(*size, batch.base_offset(), batch.last_offset() + 1);
      rest = rest.subspan(*size);
    }
    if (chunk->length() == 0) {
      bad_data = kafka::Error(ErrorCode::corrupt_message, "A record batch ends behind the end of its file");
      chunk.reset();
    }
  }
};

void Partition::answer_load(LoadRequest request, ResultOf<std::shared_ptr<Chunk>, kafka::Error> answer) {
  if (!request.callback) return;
  parts_.executor->post([callback = std::move(request.callback), answer = std::move(answer)] { callback(answer); });
}

void Partition::bring_in(kafka::Offset offset, std::uint32_t bytes, MemoryFor purpose,
                         LogCallback<std::shared_ptr<Chunk>> callback) {
  loads_.push_back({offset, bytes, purpose, std::move(callback)});
  start_load();
}

/// One load at a time: a second for the same bytes finds them in memory.
void Partition::start_load() {
  while (!loading_ && !swapping_ && !loads_.empty()) {
    auto& request = loads_.front();
    const auto answer = [this](ResultOf<std::shared_ptr<Chunk>, kafka::Error> with) {
      auto done = std::move(loads_.front());
      loads_.pop_front();
      answer_load(std::move(done), std::move(with));
    };
    if (offline() || closed_) {
      answer(kafka::Error(ErrorCode::kafka_storage_error, "The partition is offline; the broker's log says why"));
      continue;
    }
    if (request.offset < log_start_ || request.offset >= written_end_) {
      answer(kafka::Error(ErrorCode::offset_out_of_range));
      continue;
    }
    if (auto chunk = resident(request.offset)) {
      answer(std::move(chunk));
      continue;
    }
    const auto segment = segment_of(request.offset);
    if (!segment) {
      answer(kafka::Error(ErrorCode::offset_out_of_range));
      continue;
    }
    auto job = std::make_shared<LoadJob>();
    job->segment = segment;
    job->files = segment->on_disk;
    job->memory = memory_;
    job->segment_base = segment->base;
    job->offset = std::max(request.offset, segment->base);
    job->limit = segment->written;
    const auto largest = parts_.arena->config().chunk_bytes_max;
    job->bytes = std::min(request.bytes, largest);
    job->purpose = request.purpose;
    job->sequence = next_chunk_sequence_++;
    for (const auto& chunk : segment->chunks) {
      job->resident.push_back(chunk->file_position());
      // Where a chunk in memory ends exactly at the offset, the file goes on at its end.
      if (chunk->length() > 0 && chunk->next_offset() == job->offset) job->position = chunk->file_end();
    }
    if (segment->indexes && !job->position)
      job->position = floor_entry(std::span<const OffsetEntry>(segment->indexes->offsets),
                                  static_cast<std::uint32_t>(job->offset - segment->base))
                          .position;
    loading_ = true;
    parts_.io->submit(read_queue_, [self = shared_from_this(), job]() mutable {
      job->run();
      auto& executor = *self->parts_.executor;
      executor.post([self = std::move(self), job = std::move(job)] { self->loaded(*job); });
    });
  }
}

void Partition::loaded(LoadJob& job) {
  loading_ = false;
  const auto still = segments_.find(job.segment->base);
  const bool stands = still != segments_.end() && still->second == job.segment;
  // What a segment that was deleted or replaced meanwhile says, errors too, is of no account: the request is asked
  // anew.
  if (stands && job.io_error) {
    io_failed(*job.io_error);
    return;
  }
  if (loads_.empty()) return;  // failed meanwhile
  auto& request = loads_.front();
  const auto fail = [this](kafka::Error why) {
    auto done = std::move(loads_.front());
    loads_.pop_front();
    answer_load(std::move(done), std::move(why));
  };
  if (stands && job.bad_data) {
    log::bounded(log::Level::error, "log", "segment cannot be read topic={} partition={}: {}", parts_.name.topic,
                 parts_.name.partition.value, job.bad_data->text);
    fail(*job.bad_data);
  } else if (job.no_memory) {
    fail({ErrorCode::throttling_quota_exceeded, "No memory for old data now; ask again"});
  } else if (stands && job.nothing_here) {
    job.segment->nothing_from = std::min(job.segment->nothing_from, job.offset);
    if (job.segment == active_) fail({ErrorCode::offset_out_of_range, "No batch holds this offset"});
  } else if (stands && job.is_resident) {
    for (const auto& chunk : job.segment->chunks)
      if (chunk->file_position() == *job.is_resident) chunk->cover_from(job.offset);
  } else if (stands && job.chunk && job.chunk->file_end() <= job.segment->written) {
    job.chunk->cover_from(std::min(job.offset, std::max(request.offset, job.segment->base)));
    job.chunk->touch(parts_.arena->tick());
    job.chunk->on(ChunkEvent::full);
    admit(job.segment, job.chunk);
  }
  // The request is answered from memory now, or asked anew where the log changed meanwhile.
  start_load();
}

// --- Chunks come and go ---

void Partition::admit(const std::shared_ptr<Segment>& segment, const std::shared_ptr<Chunk>& chunk) {
  segment->insert_chunk(chunk);
  parts_.arena->watch(chunk, [weak = weak_from_this(), executor = parts_.executor](const std::shared_ptr<Chunk>& cold) {
    executor->post([weak, cold] {
      if (const auto self = weak.lock()) self->evict(cold);
    });
  });
  if (parts_.observer) parts_.observer->chunk_opened(*this, chunk);
}

void Partition::evict(const std::shared_ptr<Chunk>& chunk) {
  const auto at = segments_.find(chunk->segment_base());
  if (at == segments_.end() || closed_) return;
  const auto segment = at->second;
  if (std::find(segment->chunks.begin(), segment->chunks.end(), chunk) == segment->chunks.end()) return;
  if (chunk->file_end() > segment->written) return file_now();
  if (chunk == open_chunk_) seal_open_chunk();  // of a partition that went quiet
  if (chunk->state() == ChunkState::sealed) want_back(segment, chunk);
}

void Partition::want_back(const std::shared_ptr<Segment>& segment, const std::shared_ptr<Chunk>& chunk) {
  chunk->on(ChunkEvent::want_back);
  auto over = [self = shared_from_this(), segment, chunk] {
    chunk->on(ChunkEvent::leases_over);
    segment->remove_chunk(*chunk);
    if (segment->chunks.empty() && segment != self->active_) segment->on_disk->close_files();
  };
  if (!parts_.observer) return over();
  parts_.observer->chunk_wanted_back(*this, chunk, [executor = parts_.executor, over = std::move(over)]() mutable {
    executor->post(std::move(over));
  });
}

void Partition::retire_chunks(const std::shared_ptr<Segment>& segment) {
  const auto chunks = segment->chunks;
  for (const auto& chunk : chunks)
    if (chunk->state() == ChunkState::sealed) want_back(segment, chunk);
}

}  // namespace ciuic::broker
