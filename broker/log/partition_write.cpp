// Writing: what was appended goes to the journal, or in one gathered write to the segment's file; then the high
// watermark moves and the append is acknowledged. What the journal has goes to the file later, in large writes: those
// cost the kernel a third of small ones. Also flush, roll's files and the end by an I/O error. Not here: validation,
// reading.
#include <algorithm>
#include <limits>
#include <utility>

#include "broker/log/partition.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

/// After this many written bytes the kernel is told to start writing back.
constexpr std::uint64_t writeback_step_bytes = 8U << 20;
/// Index entries gather in memory up to a page of the file.
constexpr std::size_t index_entries_step = 512;
/// So much goes to the file: the kernel then takes it in large pieces.
constexpr std::uint64_t file_step_bytes = 1U << 20;
/// flush.ms=0 means after every write, not without end; a longer time than this is no promise that a timer must keep.
constexpr Milliseconds flush_wait_min{1};
constexpr Milliseconds flush_wait_max{std::chrono::hours(24 * 7)};
/// Room is taken so far ahead.
constexpr std::uint64_t reserve_step_bytes = 8U << 20;

void hint_writeback(SegmentFiles& files, File& log, std::uint64_t end) {
  if (end - files.hinted_to < writeback_step_bytes) return;
  log.start_writeback(files.hinted_to, end);
  files.hinted_to = end;
}

/// Of a partition that writes large pieces: it will write more.
void hint_room(SegmentFiles& files, File& log, std::uint64_t at, std::uint64_t end) {
  if (end - at < file_step_bytes || end <= files.reserved_to) return;
  const auto from = std::max(at, files.reserved_to);
  files.reserved_to = end + reserve_step_bytes;
  log.reserve(from, files.reserved_to);
}

}  // namespace

struct Partition::WriteJob {
  struct Piece {
    std::shared_ptr<Segment> segment;  // the owner's; the job itself touches files only
    std::shared_ptr<SegmentFiles> files;
    std::uint32_t at = 0;
    std::uint32_t end = 0;
    std::vector<Bytes> bytes{};
  };
  struct IndexPiece {
    std::shared_ptr<SegmentFiles> files;
    std::string_view suffix;
    std::uint64_t at;
    Buffer bytes;
  };
  std::vector<Piece> pieces{};
  std::vector<IndexPiece> indexes{};
  std::vector<std::shared_ptr<Chunk>> pins{};
  kafka::Offset end{};
  std::uint64_t bytes = 0;
  DirtyRange last{};
  std::uint64_t journal_end = 0;  // the share's bytes below it are in this write or an earlier one
  bool sync = false;
  std::optional<IoError> error{};

  IoResult<void> run() const {
    for (const auto& piece : pieces) {
      const auto log = piece.files->log();
      if (!log) return log.error();
      hint_room(*piece.files, **log, piece.at, piece.end);
      if (auto done = (*log)->write_at(piece.at, piece.bytes); !done) return done;
      hint_writeback(*piece.files, **log, piece.end);
    }
    for (const auto& piece : indexes)
      if (auto done = piece.files->write_index(piece.suffix, piece.at, piece.bytes); !done) return done;
    if (!sync) return {};
    for (const auto& piece : pieces) {
      const auto log = piece.files->log();
      if (!log) return log.error();
      if (auto done = (*log)->sync(); !done) return done;
    }
    return {};
  }
};

/// To the journal, else to the files, one write at a time: what is appended meanwhile gathers and goes with the next.
void Partition::start_write() {
  const bool kernel_has_it = journaled_bytes_ == dirty_bytes_ || write_journal();
  if (writes_in_flight_ == 0 && (!kernel_has_it || dirty_bytes_ >= file_step_bytes)) submit_write();
}

/// Copies what the kernel has not got yet into the journal and acknowledges it. False: that is for the files to do.
bool Partition::write_journal() {
  // Nothing is acknowledged before what lies below it, nor before the sync that flush.messages asks for.
  const bool in_order = submitted_end_ <= written_end_ && epochs_writing_ == 0;
  if (!journal_share_ || offline() || !in_order || flush_messages_reached() ||
      dirty_bytes_ - journaled_bytes_ >= file_step_bytes)
    return false;
  auto skip = journaled_bytes_;
  for (const auto& range : dirty_) {
    const auto size = range.to - range.from;
    if (skip >= size) {
      skip -= size;
      continue;
    }
    const auto from = range.from + static_cast<std::uint32_t>(std::exchange(skip, 0));
    const JournalPlace place{
        {parts_.topic_id, parts_.name.partition}, range.segment->base, range.chunk->file_position() + from};
    if (!parts_.journal->append(journal_share_, place, range.chunk->memory().subspan(from, range.to - from)))
      return false;
    journaled_bytes_ += range.to - from;
  }
  acknowledge(log_end_, dirty_.back());
  return true;
}

/// Everything below `end` is in the kernel; `last` ends there.
void Partition::acknowledge(kafka::Offset end, const DirtyRange& last) {
  written_end_ = end;
  committed_sequence_ = last.chunk->sequence();
  committed_length_ = last.to;
  // Without followers what is written is committed.
  high_watermark_ = written_end_;
  producers_.high_watermark_moved(high_watermark_);
  committed_changed();
  flush_in_time();
  while (!waiters_.empty() && waiters_.front().end <= written_end_) {
    auto waiter = std::move(waiters_.front());
    waiters_.pop_front();
    waiter.callback(waiter.result);
  }
}

/// What the journal has goes to the files too, as soon as no write is under way.
void Partition::file_now() {
  if (writes_in_flight_ > 0)
    file_is_due_ = true;
  else
    submit_write();
}

/// Runs `then` when everything acknowledged until now is in the files, or will never be (offline).
void Partition::when_filed(std::function<void()> then) {
  if (filed_end_ >= written_end_ || offline()) return then();
  when_filed_.emplace_back(written_end_, std::move(then));
  file_now();
}

bool Partition::flush_messages_reached() const {
  return messages_since_flush_ >= static_cast<std::uint64_t>(std::max<std::int64_t>(config_.flush_messages, 1));
}

/// Behind what already waits for this executor: a request's other partitions then go to the file threads together, and
/// a partition's next batches with its first.
void Partition::write_soon() {
  const bool waits = !journal_share_ && writes_in_flight_ > 0;
  if (waits || std::exchange(write_is_due_, true)) return;
  parts_.executor->post([self = shared_from_this()] {
    self->write_is_due_ = false;
    self->start_write();
  });
}

void Partition::submit_write() {
  if (dirty_.empty() || offline()) return;
  auto job = std::make_shared<WriteJob>();
  for (const auto& range : dirty_) {
    const auto at = range.chunk->file_position() + range.from;
    const auto size = range.to - range.from;
    if (job->pieces.empty() || job->pieces.back().segment != range.segment)
      job->pieces.push_back({range.segment, range.segment->on_disk, at, at});
    job->pieces.back().bytes.push_back(range.chunk->memory().subspan(range.from, size));
    job->pieces.back().end += size;
    job->pins.push_back(range.chunk);
    job->bytes += size;
  }
  job->last = dirty_.back();
  if (journal_share_) job->journal_end = parts_.journal->end();
  dirty_.clear();
  dirty_bytes_ = journaled_bytes_ = 0;
  for (const auto& piece : job->pieces) {
    auto& segment = *piece.segment;
    if (segment.aborted.size() > segment.aborted_in_file) {
      const auto all = encode(std::span<const AbortedRange>(segment.aborted));
      const auto entry = all.size() / segment.aborted.size();
      const auto at = entry * segment.aborted_in_file;
      job->indexes.push_back({piece.files, txn_index_suffix, at, to_buffer(Bytes(all).subspan(at))});
      segment.aborted_in_file = segment.aborted.size();
    }
    if (!segment.indexes) continue;
    auto& index = *segment.indexes;
    if (index.offsets.size() - index.offsets_in_file < index_entries_step) continue;
    const auto offsets = std::span<const OffsetEntry>(index.offsets).subspan(index.offsets_in_file);
    const auto times = std::span<const TimeEntry>(index.times).subspan(index.times_in_file);
    job->indexes.push_back(
        {piece.files, index_suffix, index.offsets_in_file * OffsetEntry::bytes_on_disk, encode(offsets)});
    job->indexes.push_back(
        {piece.files, time_index_suffix, index.times_in_file * TimeEntry::bytes_on_disk, encode(times)});
    index.offsets_in_file = index.offsets.size();
    index.times_in_file = index.times.size();
  }
  job->end = submitted_end_ = log_end_;
  job->sync = flush_messages_reached();
  if (job->sync) messages_since_flush_ = 0;
  ++writes_in_flight_;
  auto run = [self = shared_from_this(), job]() mutable {
    if (const auto done = self->unless_failed([&] { return job->run(); }); !done) job->error = done.error();
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), job = std::move(job)] { self->written(*job); });
  };
  if (job->sync)
    parts_.io->submit(write_queue_, std::move(run));
  else
    parts_.io->submit_cached(write_queue_, std::move(run));
}

void Partition::written(WriteJob& job) {
  unwritten_bytes_ -= job.bytes;
  if (job.error) io_failed(*job.error);
  if (!offline()) {
    for (const auto& piece : job.pieces) piece.segment->written = piece.end;
    filed_end_ = job.end;
    if (journal_share_) parts_.journal->filed(*journal_share_, job.journal_end);
    if (job.sync) {
      // Segments that rolled are synced with their indexes elsewhere: the recovery point waits before them.
      if (indexes_durable_ >= job.pieces.front().segment->base)
        flushed_end_ = std::max(flushed_end_, active_->base >= job.end ? active_->base - 1 : job.end);
      publish();
    }
    if (job.end > written_end_) acknowledge(job.end, job.last);
    while (!when_filed_.empty() && when_filed_.front().first <= filed_end_) {
      auto then = std::move(when_filed_.front().second);
      when_filed_.pop_front();
      then();
    }
  }
  job_settled();
}

/// One job of the write queue has answered: go on with what gathered, or tell those who wait for quiet.
void Partition::job_settled() {
  const bool file =
      --writes_in_flight_ == 0 && (std::exchange(file_is_due_, false) || !when_idle_.empty() || !when_filed_.empty());
  start_write();
  if (file && writes_in_flight_ == 0) submit_write();
  if (writes_in_flight_ > 0) return;
  for (auto& then : std::exchange(when_idle_, {})) then();
}

/// Runs `then` when nothing waits to be written; at once if that is now. An offline partition counts as idle.
void Partition::when_idle(std::function<void()> then) {
  file_now();
  if (writes_in_flight_ == 0) return then();
  when_idle_.push_back(std::move(then));
}

Committed Partition::committed() const {
  Committed position;
  position.chunk_sequence = committed_sequence_;
  position.chunk_length = committed_length_;
  position.high_watermark = high_watermark_;
  position.last_stable_offset = last_stable_offset();
  position.log_start_offset = log_start_;
  position.leader_epoch = epochs_.latest();
  return position;
}

kafka::Offset Partition::last_stable_offset() const {
  const auto unstable = producers_.first_unstable(high_watermark_);
  return unstable ? std::max(std::min(*unstable, high_watermark_), log_start_) : high_watermark_;
}

void Partition::committed_changed() {
  publish();
  if (parts_.observer) parts_.observer->committed(*this, committed());
}

void Partition::publish() {
  published_hw_.store(high_watermark_.value);
  published_start_.store(log_start_.value);
  published_recovery_.store(flushed_end_.value);
  published_checkpoint_.store(!closed_ && flushed_end_ > active_->base ? flushed_end_.value - 1 : flushed_end_.value);
  published_bytes_.store(log_bytes_);
}

/// Index files and snapshot of a segment that has rolled, in order behind its last write; then its sync, elsewhere, so
/// that acknowledgements do not wait for it.
void Partition::finish_segment(const std::shared_ptr<Segment>& segment, const Segment& next) {
  const auto next_base = next.base;
  auto snapshot = producers_.to_snapshot();
  last_snapshot_ = next_base;
  const auto path = segment_file(parts_.path, next_base, snapshot_suffix);
  ++writes_in_flight_;
  parts_.io->submit(write_queue_, [self = shared_from_this(), segment, next_base, path, next_files = next.on_disk,
                                   snapshot = std::move(snapshot)]() mutable {
    // The owner does not change the indexes of a rolled segment before the answer below.
    const auto done = self->unless_failed([&]() -> IoResult<void> {
      if (auto finished = segment->finish_files(); !finished) return finished;
      if (auto written = write_file(self->parts_.io->files(), path, snapshot); !written) return written;
      // That the next file is there says that this one lacks nothing (journal_replay.cpp).
      if (const auto made = next_files->log(); !made) return made.error();
      return {};
    });
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), segment, next_base, done] {
      if (!done)
        self->io_failed(done.error());
      else
        segment->indexes.reset();
      if (!self->offline()) self->sync_until(next_base, [](const ResultOf<kafka::Offset, kafka::Error>&) {});
      self->job_settled();
    });
  });
}

/// REQUIRES: everything below `end` is written.
void Partition::sync_until(kafka::Offset end, LogCallback<kafka::Offset> callback) {
  struct Unsynced {
    std::shared_ptr<SegmentFiles> files;
    bool rolled;
  };
  std::vector<Unsynced> segments;
  auto covered = end;
  auto durable = indexes_durable_;
  for (const auto& [base, segment] : segments_) {
    const auto next = segments_.upper_bound(base);
    const bool before = next != segments_.end() && next->first <= flushed_end_;
    if (before || base >= end) continue;
    segments.push_back({segment->on_disk, segment != active_ || closed_});
    // Its index files are still on their way: a start after a crash must look at it again.
    if (segment != active_ && segment->indexes.has_value()) covered = std::min(covered, base);
  }
  // The name of the epoch itself may still be on its way: then its batches are looked at again after a crash.
  if (epochs_writing_ > 0 && !epochs_.entries().empty()) covered = std::min(covered, epochs_.entries().back().start);
  if (const auto at = segments_.upper_bound(covered); at != segments_.begin())
    durable = std::max(durable, std::prev(at)->first);
  std::vector<std::string> small;
  if (std::exchange(epochs_unsynced_, false)) small.push_back(parts_.path + "/leader-epoch-checkpoint");
  if (std::exchange(metadata_unsynced_, false)) small.push_back(parts_.path + "/partition.metadata");
  parts_.io->submit(
      sync_queue_, [self = shared_from_this(), segments = std::move(segments), small = std::move(small), end, covered,
                    durable, opened = times_opened_, callback = std::move(callback)]() mutable {
        IoResult<void> done;
        for (const auto& one : segments) {
          if (!done) break;
          done = one.files->sync_log();
          if (done && one.rolled) done = one.files->sync_indexes();
        }
        for (const auto& path : small) {
          if (!done) break;
          const auto file = self->parts_.io->files().open(path, OpenMode::read_write);
          done = file ? (*file)->sync() : IoResult<void>(file.error());
        }
        // Names of segments that are new since the last time are durable with what is in them.
        if (done) done = self->parts_.io->files().sync_directory(self->parts_.path);
        auto& executor = *self->parts_.executor;
        executor.post([self = std::move(self), done, end, covered, durable, opened, callback = std::move(callback)] {
          if (!done) {
            self->io_failed(done.error());
            return callback(kafka::Error(ErrorCode::kafka_storage_error, done.error().text));
          }
          // Of a log that is cut meanwhile it says nothing: other records may take these offsets.
          if (!self->truncating_ && opened == self->times_opened_) {
            self->flushed_end_ = std::min(std::max(self->flushed_end_, covered), self->log_end_);
            self->indexes_durable_ = std::max(self->indexes_durable_, durable);
            self->publish();
          }
          callback(end);
        });
      });
}

void Partition::flush(LogCallback<kafka::Offset> callback) {
  if (offline()) {
    parts_.executor->post([callback = std::move(callback)] { callback(kafka::Error(ErrorCode::kafka_storage_error)); });
    return;
  }
  when_filed([weak = weak_from_this(), callback = std::move(callback)]() mutable {
    const auto self = weak.lock();  // in a list of its own it must not keep itself
    if (!self) return;
    if (self->offline()) return callback(kafka::Error(ErrorCode::kafka_storage_error));
    // What is not written yet is synced by its own write.
    if (self->dirty_.empty()) self->messages_since_flush_ = 0;
    self->sync_until(self->filed_end_, std::move(callback));
  });
}

void Partition::set_config(const LogConfig& config) {
  const bool other_time = config.flush_ms != config_.flush_ms;
  config_ = config;
  if (!other_time) return;
  ++flush_timer_;
  flush_timer_pending_ = false;
  flush_in_time();
}

/// flush.ms: a timer from the first record that is not on the device. Without the setting it costs a comparison, and
/// with it as many flushes as there are intervals in which something was written; a slow disk has one under way.
void Partition::flush_in_time() {
  constexpr auto never = std::numeric_limits<std::int64_t>::max();
  if (config_.flush_ms == never || flush_timer_pending_ || flushed_end_ >= written_end_ || closed_ || offline()) return;
  flush_timer_pending_ = true;
  const auto wait = std::clamp(Milliseconds(config_.flush_ms), flush_wait_min, flush_wait_max);
  parts_.executor->post_at(parts_.clock->now() + wait, [weak = weak_from_this(), timer = flush_timer_] {
    if (const auto self = weak.lock()) self->flush_is_due(timer);
  });
}

void Partition::flush_is_due(std::uint64_t timer) {
  if (timer != flush_timer_) return;
  // Kept by the partition until its writes are done: it must not keep the partition.
  const auto again = [weak = weak_from_this(), timer](const ResultOf<kafka::Offset, kafka::Error>&) {
    const auto self = weak.lock();
    if (!self || timer != self->flush_timer_) return;
    self->flush_timer_pending_ = false;
    self->flush_in_time();  // what was written meanwhile
  };
  // While files change places none may be opened, and a log that is being cut has no end to flush to.
  const bool now = flushed_end_ < written_end_ && !swapping_ && !truncating_ && !closed_ && !offline();
  if (now) return flush(again);
  again(flushed_end_);
}

/// In order with the writes: the epoch is named on disk before the first batch that carries it.
void Partition::write_epochs() {
  epoch_unnamed_ = false;
  ++epochs_writing_;
  ++writes_in_flight_;
  parts_.io->submit(write_queue_, [self = shared_from_this(), text = epochs_.to_text()]() mutable {
    const auto done = replace_file(self->parts_.io->files(), self->parts_.path + "/leader-epoch-checkpoint",
                                   as_bytes(text), Durable::later);
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), done] {
      --self->epochs_writing_;
      self->epochs_unsynced_ = true;
      if (!done) self->io_failed(done.error());
      self->job_settled();
    });
  });
}

void Partition::io_failed(const IoError& error) {
  if (!offline_.exchange(true)) {
    log::error("log", "I/O error, the partition goes offline topic={} partition={}: {}", parts_.name.topic,
               parts_.name.partition.value, error.text);
    if (parts_.on_io_error) parts_.on_io_error(error);
  }
  fail_waiting({ErrorCode::kafka_storage_error, error.text});
}

void Partition::fail_waiting(const kafka::Error& why) {
  dirty_.clear();
  dirty_bytes_ = journaled_bytes_ = 0;
  for (auto& [end, then] : std::exchange(when_filed_, {})) then();
  for (auto& waiter : std::exchange(waiters_, {})) waiter.callback(AppendError(why, log_start_));
  for (auto& load : std::exchange(loads_, {}))
    if (load.callback) load.callback(why);
}

void Partition::abandon(ErrorCode reason) {
  offline_.store(true);
  closed_ = true;
  // What an offline directory's journal holds is for the next start.
  if (journal_share_ && reason == ErrorCode::kafka_storage_error)
    parts_.journal->stop();
  else if (journal_share_)
    parts_.journal->filed(*journal_share_, Journal::everything);
  fail_waiting({reason, "The partition is gone from this log directory"});
  seal_open_chunk();
  if (parts_.observer) parts_.observer->layout_changed(*this, LayoutChange::partition_closed);
  for (const auto& [base, segment] : segments_) retire_chunks(segment);
}

}  // namespace ciuic::broker
