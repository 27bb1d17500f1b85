// Finding: an offset by time (ListOffsets) and the end of a leader epoch. Time searches read index and segment files on
// FileIo; the answers that need no file come at once. Not here: reading data (partition_read.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "broker/log/partition.h"
#include "broker/log/stored_batch.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

constexpr std::int64_t latest_timestamp = -1;
constexpr std::int64_t earliest_timestamp = -2;
constexpr std::int64_t max_timestamp = -3;
constexpr std::int64_t earliest_local_timestamp = -4;
constexpr std::int64_t latest_tiered_timestamp = -5;

}  // namespace

/// A search through copies of what the owner knows; runs on FileIo and touches files and pinned chunks only.
struct Partition::TimeQuery {
  struct Place {
    std::shared_ptr<SegmentFiles> files;
    kafka::Offset base;
    std::uint32_t limit;
    std::optional<std::int64_t> newest;   // largest timestamp, where known
    std::optional<std::uint32_t> from{};  // position to walk from, where the owner's index said it
    std::vector<Bytes> behind{};          // whole batches behind the limit, not in the file yet
    std::vector<ChunkPin> pins{};
  };
  struct Found {
    std::int64_t timestamp;
    kafka::Offset offset;
  };
  std::vector<Place> places{};
  std::optional<std::int64_t> target{};  // nothing: the largest timestamp of all
  kafka::Offset log_start{};
  std::optional<Found> found{};
  std::optional<IoError> error{};

  void run() {
    for (auto& place : places) {
      if (place.newest) continue;
      const auto last = last_time_entry(place.files->files(), place.files->path(time_index_suffix));
      if (!last) {
        error = last.error();
        return;
      }
      place.newest = *last ? (*last)->timestamp : -1;
    }
    if (!target) {
      const auto newest = std::max_element(places.begin(), places.end(),
                                           [](const Place& a, const Place& b) { return *a.newest < *b.newest; });
      if (newest == places.end() || *newest->newest < 0) return;
      target = *newest->newest;
    }
    for (const auto& place : places) {
      if (*place.newest < *target) continue;
      if (const auto done = search(place); !done) {
        error = done.error();
        return;
      }
      if (found) return;
    }
  }

 private:
  /// A segment that was deleted meanwhile holds nothing any more.
  IoResult<void> search(const Place& place) {
    // Without written bytes there may be no file, and none may be made here: it says something (finish_segment).
    if (place.limit > 0)
      if (auto done = search_file(place); !done) return place.files->deleted() ? IoResult<void>{} : done;
    if (!found) search_memory(place);
    return {};
  }

  IoResult<void> search_file(const Place& place) {
    auto at = place.from;
    if (!at) {
      const auto time = floor_in_file(place.files->files(), place.files->path(time_index_suffix), *target - 1);
      if (!time) return time.error();
      const auto entry = floor_in_file(place.files->files(), place.files->path(index_suffix), time->relative_offset);
      if (!entry) return entry.error();
      at = entry->position;
    }
    const auto log = place.files->log();
    if (!log) return log.error();
    std::byte head[StoredBatch::bytes_v2];
    for (auto position = *at; position < place.limit;) {
      const auto got = (*log)->read_at(position, head);
      if (!got) return got.error();
      const auto size = stored_batch_size(Bytes(head).first(*got));
      if (!size || *size > place.limit - position) return {};
      const StoredBatch batch{Bytes(head)};
      if (batch.max_timestamp() >= *target && batch.last_offset() >= log_start) {
        Buffer whole(*size);
        if (const auto read = (*log)->read_at(position, whole); !read) return read.error();
        search_batch(whole);
        if (found) return {};
      }
      position += *size;
    }
    return {};
  }

  void search_memory(const Place& place) {
    for (auto rest : place.behind) {
      while (!rest.empty()) {
        const StoredBatch batch(rest);
        if (batch.max_timestamp() >= *target && batch.last_offset() >= log_start)
          search_batch(rest.first(batch.size()));
        if (found) return;
        rest = rest.subspan(batch.size());
      }
    }
  }

  void search_batch(Bytes bytes) {
    const auto batch = kafka::RecordBatchView::parse(bytes);
    if (!batch) return;
    Buffer scratch;
    auto reader = kafka::RecordReader::open(*batch, scratch, stored_batch_unpacked_max);
    if (!reader) return;
    while (const auto record = reader->next()) {
      if (record->timestamp < *target || record->offset < log_start) continue;
      found = Found{record->timestamp, record->offset};
      return;
    }
  }
};

void Partition::offset_for_time(std::int64_t timestamp, Isolation isolation, LogCallback<OffsetAtTime> callback) {
  const auto reply = [this](LogCallback<OffsetAtTime> to, ResultOf<OffsetAtTime, kafka::Error> answer) {
    parts_.executor->post([to = std::move(to), answer = std::move(answer)] { to(answer); });
  };
  if (offline() || closed_) return reply(std::move(callback), kafka::Error(ErrorCode::kafka_storage_error));
  if (swapping_) {
    after_swap_.push_back([self = shared_from_this(), timestamp, isolation, callback = std::move(callback)] {
      self->offset_for_time(timestamp, isolation, callback);
    });
    return;
  }
  const auto limit = isolation == Isolation::read_committed ? last_stable_offset() : high_watermark_;
  OffsetAtTime answer;
  if (timestamp == latest_timestamp) {
    answer.offset = limit;
    answer.leader_epoch = epochs_.latest();
    return reply(std::move(callback), answer);
  }
  if (timestamp == earliest_timestamp || timestamp == earliest_local_timestamp) {
    answer.offset = log_start_;
    answer.leader_epoch = epochs_.epoch_of(log_start_);
    return reply(std::move(callback), answer);
  }
  if (timestamp == latest_tiered_timestamp) return reply(std::move(callback), answer);
  if (timestamp < 0 && timestamp != max_timestamp)
    return reply(std::move(callback),
                 kafka::Error(ErrorCode::invalid_request, fmt::format("Timestamp {} is not known", timestamp)));

  auto query = std::make_shared<TimeQuery>();
  query->log_start = log_start_;
  if (timestamp != max_timestamp) query->target = timestamp;
  auto at = segments_.upper_bound(log_start_);
  if (at != segments_.begin()) --at;
  for (; at != segments_.end(); ++at) {
    const auto& segment = *at->second;
    TimeQuery::Place place{segment.on_disk, segment.base, segment.written, segment.max_timestamp};
    if (segment.indexes && query->target) {
      const auto time = floor_entry(std::span<const TimeEntry>(segment.indexes->times), *query->target - 1);
      place.from = floor_entry(std::span<const OffsetEntry>(segment.indexes->offsets), time.relative_offset).position;
    } else if (segment.indexes) {
      place.from = 0;
    }
    for (const auto& chunk : segment.chunks) {
      if (chunk->file_end() <= segment.written) continue;
      const auto from = segment.written - std::min(segment.written, chunk->file_position());
      const auto to = chunk->position_of_base(limit);
      if (from >= to) continue;
      place.behind.push_back(chunk->memory().subspan(from, to - from));
      place.pins.push_back(chunk);
    }
    query->places.push_back(std::move(place));
  }
  parts_.io->submit(read_queue_, [self = shared_from_this(), query, limit, callback = std::move(callback)]() mutable {
    query->run();
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), query = std::move(query), limit, callback = std::move(callback)] {
      if (query->error) {
        self->io_failed(*query->error);
        return callback(kafka::Error(ErrorCode::kafka_storage_error, query->error->text));
      }
      for (const auto& place : query->places) {
        const auto segment = self->segments_.find(place.base);
        if (segment != self->segments_.end() && !segment->second->max_timestamp &&
            segment->second->on_disk == place.files)
          segment->second->max_timestamp = place.newest;
      }
      OffsetAtTime found;
      if (query->found && query->found->offset < limit) {
        found.timestamp = query->found->timestamp;
        found.offset = query->found->offset;
        found.leader_epoch = self->epochs_.epoch_of(found.offset);
      }
      callback(found);
    });
  });
}

EpochEnd Partition::end_offset_for_epoch(kafka::LeaderEpoch epoch) const {
  const auto end = epochs_.end_of(epoch, log_end_);
  if (!end) return {};
  return {end->epoch, end->start};
}

}  // namespace ciuic::broker
