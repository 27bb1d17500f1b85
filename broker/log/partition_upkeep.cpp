// Upkeep: retention, DeleteRecords, truncation, timers, closing. Not here: compaction (cleaner.cpp), opening
// (recovery.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "broker/log/partition.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

Partition::Partition(Parts parts)
    : parts_(std::move(parts)),
      config_(parts_.config),
      memory_(parts_.arena->make_memory()),
      write_queue_(parts_.io->make_queue()),
      read_queue_(parts_.io->make_queue()),
      sync_queue_(parts_.io->make_queue()),
      clean_queue_(parts_.io->make_queue()),
      check_queue_(parts_.checks != nullptr ? parts_.checks->make_queue() : 0) {}

Partition::~Partition() = default;

/// Behind the constructor, when a weak pointer to it can be had.
void Partition::join_journal() {
  if (!parts_.journal) return;
  journal_share_ = parts_.journal->join([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->start_write();  // what the ring can still take need not wait for the file
    self->file_now();
  });
}

void Partition::move_log_start(kafka::Offset start) {
  if (start <= log_start_) return;
  log_start_ = start;
  if (epochs_.truncate_from_start(start)) write_epochs();
  producers_.log_start_moved(start);
  committed_changed();
}

/// Takes segments out of the log: their chunks are wanted back, their files renamed now and removed after a while.
void Partition::delete_segments(const std::vector<std::shared_ptr<Segment>>& gone) {
  if (gone.empty()) return;
  for (const auto& segment : gone) {
    segments_.erase(segment->base);
    log_bytes_ -= segment->bytes;
  }
  if (parts_.observer) parts_.observer->layout_changed(*this, LayoutChange::segments_deleted);
  for (const auto& segment : gone) {
    retire_chunks(segment);
    remove_later(segment->on_disk);
  }
  publish();
}

void Partition::remove_later(std::shared_ptr<SegmentFiles> files) {
  // In order with the writes: nothing of the segment is still on its way to the file.
  ++writes_in_flight_;
  parts_.io->submit(write_queue_, [self = shared_from_this(), files = std::move(files)]() mutable {
    const auto done = self->unless_failed([&] { return files->mark_deleted(); });
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), files = std::move(files), done] {
      if (!done) self->io_failed(done.error());
      const auto when = self->parts_.clock->now() + Milliseconds(self->config_.file_delete_delay_ms);
      self->parts_.executor->post_at(when, [io = self->parts_.io, queue = self->sync_queue_, files] {
        io->submit(queue, [files] {
          if (const auto removed = files->remove_deleted(); !removed)
            log::warn("log", "a deleted segment's file stays behind: {}", removed.error().text);
        });
      });
      self->job_settled();
    });
  });
}

void Partition::reclaim(Reclaim what) {
  if (swapping_) return;  // the next round of upkeep does it
  // A compacted topic keeps its keys for ever; what DeleteRecords cut off goes in any case.
  const auto now_ms = parts_.clock->wall_ms();
  const bool retention = what == Reclaim::all && config_.cleanup_delete;
  auto bytes = log_bytes_;
  std::vector<std::shared_ptr<Segment>> gone;
  bool whole_log = false;
  for (auto at = segments_.begin(); at != segments_.end(); ++at) {
    const auto& segment = at->second;
    const auto next = std::next(at);
    const auto end = next == segments_.end() ? log_end_ : next->first;
    if (end > high_watermark_ || (next == segments_.end() && segment->bytes == 0)) break;
    const bool below_start = next != segments_.end() && end <= log_start_;
    const bool too_old =
        retention && config_.retention_ms >= 0 && segment->max_timestamp &&
        now_ms - (*segment->max_timestamp >= 0 ? *segment->max_timestamp : segment->created_ms) > config_.retention_ms;
    const bool too_much = retention && config_.retention_bytes >= 0 && next != segments_.end() &&
                          bytes > static_cast<std::uint64_t>(config_.retention_bytes) &&
                          bytes - static_cast<std::uint64_t>(config_.retention_bytes) >= segment->bytes;
    if (!below_start && !too_old && !too_much) break;
    bytes -= segment->bytes;
    gone.push_back(segment);
    whole_log = next == segments_.end();
  }
  if (gone.empty()) return;
  // The active segment may go too once it is too old: the log then goes on in an empty one.
  if (whole_log) roll(log_end_);
  const auto start = segments_.upper_bound(gone.back()->base)->first;
  log::info("log", "deleting {} segments topic={} partition={} log_start_offset={}", gone.size(), parts_.name.topic,
            parts_.name.partition.value, std::max(start, log_start_).value);
  delete_segments(gone);
  move_log_start(start);
}

void Partition::learn_timestamps() {
  if (learning_timestamps_ || !config_.cleanup_delete || config_.retention_ms < 0) return;
  auto unknown =
      std::make_shared<std::vector<std::pair<std::shared_ptr<Segment>, IoResult<std::optional<TimeEntry>>>>>();
  // The oldest decide: retention stops at the first segment that stays.
  for (const auto& [base, segment] : segments_) {
    if (segment->max_timestamp) break;
    unknown->emplace_back(segment, std::optional<TimeEntry>{});
    if (unknown->size() == 16) break;
  }
  if (unknown->empty()) return;
  learning_timestamps_ = true;
  parts_.io->submit(read_queue_, [self = shared_from_this(), unknown]() mutable {
    for (auto& [segment, last] : *unknown)
      last = last_time_entry(self->parts_.io->files(), segment->on_disk->path(time_index_suffix));
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), unknown = std::move(unknown)] {
      self->learning_timestamps_ = false;
      for (const auto& [segment, last] : *unknown) {
        if (!last) return self->io_failed(last.error());
        if (!segment->max_timestamp) segment->max_timestamp = *last ? (*last)->timestamp : -1;
      }
      self->maintain();
    });
  });
}

void Partition::maintain() {
  if (offline() || closed_ || truncating_ || swapping_) return;
  producers_.expire(parts_.clock->wall_ms(), parts_.limits.producer_id_expiration_ms);
  learn_timestamps();
  reclaim(Reclaim::all);
}

void Partition::delete_records(kafka::Offset before, LogCallback<kafka::Offset> callback) {
  const auto reply = [this, &callback](ResultOf<kafka::Offset, kafka::Error> answer) {
    parts_.executor->post([callback = std::move(callback), answer = std::move(answer)] { callback(answer); });
  };
  if (offline() || closed_) return reply(kafka::Error(ErrorCode::kafka_storage_error));
  if (truncating_) return reply(kafka::Error(ErrorCode::not_leader_or_follower, "The log is being truncated"));
  if (before == kafka::Offset(-1)) before = high_watermark_;
  if (before > high_watermark_ || before < kafka::Offset(0))
    return reply(kafka::Error(
        ErrorCode::offset_out_of_range,
        fmt::format("Cannot move the log start to {}: the high watermark is {}", before.value, high_watermark_.value)));
  if (before > log_start_) {
    move_log_start(before);
    reclaim(Reclaim::deleted_records);
  }
  reply(log_start_);
}

void Partition::truncate(kafka::Offset offset, LogCallback<kafka::Offset> callback) {
  if (swapping_) {
    after_swap_.push_back([weak = weak_from_this(), offset, callback = std::move(callback)] {
      if (const auto self = weak.lock()) self->truncate(offset, callback);
    });
    return;
  }
  if (offline() || closed_ || truncating_ || offset >= log_end_) {
    const auto failed = offline() || closed_ || truncating_;
    ResultOf<kafka::Offset, kafka::Error> answer = log_end_;
    if (failed) answer = kafka::Error(ErrorCode::kafka_storage_error, "The log cannot be truncated now");
    parts_.executor->post([callback = std::move(callback), answer] { callback(answer); });
    return;
  }
  truncating_ = true;
  when_idle([weak = weak_from_this(), offset, callback = std::move(callback)]() mutable {
    const auto self = weak.lock();
    if (!self) return;
    auto cut = [self, offset, callback = std::move(callback)](bool past) {
      if (past && !self->offline()) return self->finish_truncate(std::max(offset, self->log_start_), callback);
      self->truncating_ = false;
      self->parts_.executor->post(
          [callback] { callback(kafka::Error(ErrorCode::kafka_storage_error, "The log directory is offline")); });
    };
    // Nor may a replay bring back what is cut off now.
    if (!self->journal_share_) return cut(true);
    self->parts_.journal->when_past(self->parts_.journal->end(), std::move(cut));
  });
}

/// Everything is in the files now and nothing is under way. The log is cut there, then opened again from them: the one
/// way by which indexes, producers and epochs are rebuilt.
void Partition::finish_truncate(kafka::Offset offset, LogCallback<kafka::Offset> callback) {
  seal_open_chunk();
  // A batch that holds the offset goes whole: where the log will end is known after the cut, and the recovery point is
  // written before it.
  const auto last = segment_of(offset);
  const auto certain = last ? std::min(last->base, offset) : offset;
  const auto old = std::exchange(segments_, {});
  if (parts_.observer) parts_.observer->layout_changed(*this, LayoutChange::truncated);
  for (const auto& [base, segment] : old) {
    retire_chunks(segment);
    segment->on_disk->close_files();
  }
  flushed_end_ = std::min(flushed_end_, certain);
  published_recovery_.store(flushed_end_.value);
  published_checkpoint_.store(flushed_end_.value);
  reopen(offset, std::move(callback));
}

void Partition::reopen(kafka::Offset truncate_to, LogCallback<kafka::Offset> callback) {
  auto plan = std::make_shared<OpenPlan>();
  plan->path = parts_.path;
  plan->config = config_;
  plan->clean = true;
  plan->recovery_point = flushed_end_;
  plan->log_start = log_start_;
  plan->truncate_to = truncate_to;
  plan->now_ms = parts_.clock->wall_ms();
  parts_.io->submit(write_queue_, [self = shared_from_this(), plan, callback = std::move(callback)]() mutable {
    // A recovery point above the cut would vouch for what is appended there next.
    auto noted = self->parts_.write_checkpoints ? self->parts_.write_checkpoints() : IoResult<void>();
    // Nor may an older tail of the journal: the cut is durable, so it has to be too.
    if (noted && self->parts_.journal) noted = self->parts_.journal->sync_tail();
    auto opened = std::make_shared<IoResult<OpenedLog>>(noted ? open_log(self->parts_.io->files(), *plan)
                                                              : IoResult<OpenedLog>(noted.error()));
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), opened, callback = std::move(callback)] {
      self->truncating_ = false;
      if (!*opened) {
        self->io_failed(opened->error());
        return callback(kafka::Error(ErrorCode::kafka_storage_error, opened->error().text));
      }
      self->active_.reset();
      const auto flushed = self->flushed_end_;
      (**opened).flushed_end = std::min(flushed, (**opened).log_end);
      self->install(std::move(**opened));
      self->committed_changed();
      callback(self->log_end_);
    });
  });
}

/// Takes over a log opened from its files. Nothing of it is in memory yet.
void Partition::install(OpenedLog opened) {
  ++times_opened_;
  segments_ = std::move(opened.segments);
  active_ = segments_.rbegin()->second;
  epochs_ = std::move(opened.epochs);
  producers_ = std::move(opened.producers);
  log_start_ = opened.log_start;
  log_end_ = submitted_end_ = filed_end_ = written_end_ = high_watermark_ = opened.log_end;
  flushed_end_ = opened.flushed_end;
  const auto after = segments_.upper_bound(flushed_end_);
  indexes_durable_ = after == segments_.begin() ? log_start_ : std::prev(after)->first;
  last_snapshot_ = opened.last_snapshot;
  log_bytes_ = 0;
  for (const auto& [base, segment] : segments_) log_bytes_ += segment->bytes;
  cleaned_to_ = std::min(cleaned_to_, log_start_);
  committed_sequence_ = 0;
  committed_length_ = 0;
  producers_.high_watermark_moved(high_watermark_);
  publish();
  flush_in_time();
}

void Partition::close(LogCallback<kafka::Offset> callback) {
  if (swapping_) {
    after_swap_.push_back([weak = weak_from_this(), callback = std::move(callback)] {
      if (const auto self = weak.lock()) self->close(callback);
    });
    return;
  }
  if (offline() || closed_) {
    parts_.executor->post([callback = std::move(callback)] { callback(kafka::Error(ErrorCode::kafka_storage_error)); });
    return;
  }
  when_idle([weak = weak_from_this(), callback = std::move(callback)]() mutable {
    const auto self = weak.lock();
    if (!self) return;
    self->finish_close(std::move(callback));
  });
}

void Partition::finish_close(LogCallback<kafka::Offset> callback) {
  closed_ = true;
  if (offline()) return callback(kafka::Error(ErrorCode::kafka_storage_error));
  seal_open_chunk();
  active_->finish_time_index();
  fail_waiting({ErrorCode::not_leader_or_follower, "The broker stops"});
  const bool snapshot = last_snapshot_ != log_end_;
  ++writes_in_flight_;
  parts_.io->submit(write_queue_, [self = shared_from_this(), segment = active_, snapshot, end = log_end_,
                                   bytes = producers_.to_snapshot(), recent = producers_.recent_batches_text(),
                                   producers = !producers_.empty(), callback = std::move(callback)]() mutable {
    auto& files = self->parts_.io->files();
    auto done = segment->finish_files();
    if (done && snapshot) done = write_file(files, segment_file(self->parts_.path, end, snapshot_suffix), bytes);
    if (done && producers)
      done = write_file(files, self->parts_.path + "/" + std::string(recent_batches_file), as_bytes(recent));
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), done, end, callback = std::move(callback)]() mutable {
      --self->writes_in_flight_;
      if (!done) {
        self->io_failed(done.error());
        return callback(kafka::Error(ErrorCode::kafka_storage_error, done.error().text));
      }
      if (self->parts_.observer) self->parts_.observer->layout_changed(*self, LayoutChange::partition_closed);
      for (const auto& [base, one] : self->segments_) self->retire_chunks(one);
      self->sync_until(end,
                       [self, callback = std::move(callback)](const ResultOf<kafka::Offset, kafka::Error>& synced) {
                         for (const auto& [base, one] : self->segments_) one->on_disk->close_files();
                         callback(synced);
                       });
    });
  });
}

}  // namespace ciuic::broker
