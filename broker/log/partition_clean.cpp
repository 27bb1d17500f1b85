// When a compacted log is cleaned, and how the cleaned segments take their places. Not here: what stays (cleaner.cpp).
#include <algorithm>
#include <utility>

#include "broker/log/cleaner.h"
#include "broker/log/partition.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

/// Sealed segments that may be cleaned now, or none if too little of them is dirty.
std::shared_ptr<CleanPlan> Partition::plan_clean() const {
  auto plan = std::make_shared<CleanPlan>();
  plan->path = parts_.path;
  plan->config = config_;
  plan->dirty_from = cleaned_to_;
  plan->now_ms = parts_.clock->wall_ms();
  const auto stable = last_stable_offset();
  std::uint64_t dirty = 0;
  std::uint64_t all = 0;
  bool overdue = false;
  for (auto at = segments_.begin(); at != segments_.end() && at->second != active_; ++at) {
    const auto& segment = *at->second;
    const auto end = std::next(at)->first;
    const auto newest = segment.max_timestamp.value_or(-1);
    const bool young = config_.min_compaction_lag_ms > 0 && plan->now_ms - newest < config_.min_compaction_lag_ms;
    if (end > stable || end > flushed_end_ || segment.indexes || young) break;
    plan->sources.push_back({segment.on_disk, segment.base, end, segment.bytes, segment.aborted});
    all += segment.bytes;
    if (end <= cleaned_to_) continue;
    dirty += segment.bytes;
    overdue = overdue || (newest >= 0 && plan->now_ms - newest > config_.max_compaction_lag_ms);
  }
  const bool enough =
      dirty > 0 && static_cast<double>(dirty) >= config_.min_cleanable_dirty_ratio * static_cast<double>(all);
  return enough || overdue ? plan : nullptr;
}

void Partition::clean(LogCallback<std::uint64_t> callback) {
  const bool can = config_.cleanup_compact && !offline() && !closed_ && !truncating_ && !cleaning_;
  const auto plan = can ? plan_clean() : nullptr;
  if (!plan) {
    parts_.executor->post([callback = std::move(callback)] { callback(std::uint64_t{0}); });
    return;
  }
  cleaning_ = true;
  parts_.io->submit(clean_queue_, [self = shared_from_this(), plan, callback = std::move(callback)]() mutable {
    auto result = std::make_shared<IoResult<CleanResult>>(clean_segments(self->parts_.io->files(), *plan));
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), plan, result, callback = std::move(callback)]() mutable {
      self->cleaned(plan, std::move(result), std::move(callback));
    });
  });
}

void Partition::cleaned(const std::shared_ptr<CleanPlan>& plan, std::shared_ptr<IoResult<CleanResult>> result,
                        LogCallback<std::uint64_t> callback) {
  const auto give_up = [&](kafka::Error why) {
    cleaning_ = false;
    callback(std::move(why));
  };
  // Retention or a truncation may have taken some meanwhile: then the copies are left for a start to remove, and that a
  // file ended before its time is no fault of the disk.
  const bool stands = std::all_of(plan->sources.begin(), plan->sources.end(), [this](const CleanSource& source) {
    const auto at = segments_.find(source.base);
    return at != segments_.end() && at->second->on_disk == source.files;
  });
  if (offline() || closed_ || truncating_ || !stands)
    return give_up({ErrorCode::kafka_storage_error, "The log changed while it was cleaned"});
  if (!*result) {
    io_failed(result->error());
    return give_up({ErrorCode::kafka_storage_error, result->error().text});
  }
  swapping_ = true;
  // Behind the reads under way, before any that begins later: no read meets half a swap.
  parts_.io->submit(read_queue_, [self = shared_from_this(), plan, result, callback = std::move(callback)]() mutable {
    // No start after a crash may scan these segments: their gaps would look like losses.
    auto done = self->parts_.write_checkpoints ? self->parts_.write_checkpoints() : IoResult<void>();
    if (done) done = swap_cleaned(self->parts_.io->files(), *plan, **result);
    auto& executor = *self->parts_.executor;
    executor.post([self = std::move(self), plan, result, done, callback = std::move(callback)]() mutable {
      self->swapped(*plan, **result, done, std::move(callback));
    });
  });
}

void Partition::swapped(const CleanPlan& plan, CleanResult& result, const IoResult<void>& done,
                        LogCallback<std::uint64_t> callback) {
  swapping_ = false;
  cleaning_ = false;
  if (!done) {
    io_failed(done.error());
    callback(kafka::Error(ErrorCode::kafka_storage_error, done.error().text));
  } else if (!offline()) {
    std::vector<std::shared_ptr<Segment>> old;
    for (auto& group : result.groups) {
      for (auto i = group.first; i < group.last; ++i) {
        const auto at = segments_.find(plan.sources[i].base);
        log_bytes_ -= at->second->bytes;
        old.push_back(at->second);
        segments_.erase(at);
      }
      log_bytes_ += group.segment->bytes;
      segments_[group.segment->base] = group.segment;
    }
    cleaned_to_ = result.cleaned_to;
    publish();
    if (parts_.observer) parts_.observer->layout_changed(*this, LayoutChange::segment_replaced);
    for (const auto& segment : old) {
      retire_chunks(segment);
      parts_.executor->post_at(parts_.clock->now() + Milliseconds(config_.file_delete_delay_ms),
                               [io = parts_.io, queue = clean_queue_, files = segment->on_disk] {
                                 io->submit(queue, [files] {
                                   if (const auto removed = files->remove_deleted(); !removed)
                                     log::warn("log", "a cleaned segment's file stays behind: {}",
                                               removed.error().text);
                                 });
                               });
    }
    log::info("log", "compacted topic={} partition={} segments={} to={} bytes {} to {}", parts_.name.topic,
              parts_.name.partition.value, old.size(), result.groups.size(), result.bytes_before, result.bytes_after);
    callback(result.bytes_before - std::min(result.bytes_before, result.bytes_after));
  }
  for (auto& then : std::exchange(after_swap_, {})) then();
  start_load();
}

}  // namespace ciuic::broker
