// Opening a partition's log from its files, after a clean stop, a crash or a truncation. Order as Apache's LogLoader:
// leftovers, segments, end of log, epochs, producers. Not here: which partitions there are (log_directory.cpp).
#include "broker/log/recovery.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "broker/log/segment_scan.h"
#include "broker/log/stored_batch.h"
#include "transport/base/log.h"

namespace ciuic::broker {

namespace {

class Opener {
 public:
  Opener(Files& files, const OpenPlan& plan) : files_(files), plan_(plan) {}

  IoResult<OpenedLog> run() {
    for (const auto step : {&Opener::list, &Opener::finish_swaps, &Opener::drop_leftovers, &Opener::open_segments,
                            &Opener::fix_ends, &Opener::load_epochs, &Opener::load_producers, &Opener::write_rebuilt})
      if (auto done = (this->*step)(); !done) return done.error();
    return std::move(log_);
  }

 private:
  std::string path(std::string_view name) const { return plan_.path + "/" + std::string(name); }

  IoResult<void> list() {
    auto entries = files_.list(plan_.path);
    if (!entries) return entries.error();
    names_.clear();
    for (const auto& entry : *entries)
      if (!entry.is_directory) names_[entry.name] = entry.bytes;
    return {};
  }

  /// A `.swap` log is whole: what it replaces goes, then it takes its place.
  IoResult<void> finish_swaps() {
    bool any = false;
    for (const auto& [name, bytes] : names_) {
      const auto base = segment_base_of(name, ".log.swap");
      if (!base) continue;
      any = true;
      auto file = files_.open(path(name), OpenMode::read);
      if (!file) return file.error();
      BatchWalk walk(**file, 0, bytes);
      auto end = *base + 1;
      while (true) {
        const auto batch = walk.next(BatchWalk::Need::header);
        if (!batch) return batch.error();
        if (!*batch) break;
        end = StoredBatch(**batch).last_offset() + 1;
      }
      for (const auto& [old, old_bytes] : names_) {
        const auto old_base = segment_base_of(old, log_suffix);
        if (!old_base || *old_base < *base || *old_base >= end) continue;
        for (const auto suffix : {index_suffix, time_index_suffix, txn_index_suffix, log_suffix})
          if (auto done = files_.remove(segment_file(plan_.path, *old_base, suffix)); !done) return done;
      }
      for (const auto suffix : {log_suffix, index_suffix, time_index_suffix, txn_index_suffix}) {
        const auto final_name = segment_file(plan_.path, *base, suffix);
        const auto exists = files_.exists(final_name + std::string(swap_suffix));
        if (!exists) return exists.error();
        if (!*exists) continue;
        if (auto done = files_.rename(final_name + std::string(swap_suffix), final_name); !done) return done;
      }
    }
    return any ? list() : IoResult<void>{};
  }

  IoResult<void> drop_leftovers() {
    for (auto at = names_.begin(); at != names_.end();) {
      const auto& name = at->first;
      bool drop = name.ends_with(deleted_suffix) || name.ends_with(cleaned_suffix) || name.ends_with(swap_suffix) ||
                  name.ends_with(".tmp");
      for (const auto suffix : {index_suffix, time_index_suffix, txn_index_suffix})
        if (const auto base = segment_base_of(name, suffix);
            base && !names_.contains(segment_file("", *base, log_suffix).substr(1)))
          drop = true;
      if (drop)
        if (auto done = files_.remove(path(name)); !done) return done;
      at = drop ? names_.erase(at) : std::next(at);
    }
    return {};
  }

  bool has(kafka::Offset base, std::string_view suffix) const {
    return names_.contains(segment_file("", base, suffix).substr(1));
  }

  /// The log last: index files without it are taken for a loss.
  IoResult<void> remove_segment(kafka::Offset base) {
    for (const auto suffix : {index_suffix, time_index_suffix, txn_index_suffix, log_suffix}) {
      if (auto done = files_.remove(segment_file(plan_.path, base, suffix)); !done) return done;
      names_.erase(segment_file("", base, suffix).substr(1));
    }
    return {};
  }

  std::shared_ptr<Segment> add_segment(kafka::Offset base) {
    auto segment = std::make_shared<Segment>(files_, plan_.path, base);
    segment->created_ms = plan_.now_ms;
    log_.segments[base] = segment;
    return segment;
  }

  IoResult<ScanResult> scan(Segment& segment) {
    scanned_.insert(segment.base);
    segment.aborted.clear();
    auto result = scan_segment(segment, plan_.config.index_interval_bytes, [this](const BatchInfo& batch) {
      if (batch.leader_epoch >= kafka::LeaderEpoch(0)) seen_epochs_.assign(batch.leader_epoch, batch.base_offset);
    });
    return result;
  }

  /// Cuts a segment's file, durably: what was cut off must not come back under what is appended next. The caller
  /// rebuilds the indexes.
  IoResult<void> cut(Segment& segment, std::uint64_t bytes) {
    const auto file = segment.on_disk->log();
    if (!file) return file.error();
    if (auto done = (*file)->truncate(bytes); !done) return done;
    return (*file)->sync();
  }

  IoResult<void> open_segments() {
    std::vector<kafka::Offset> bases;
    for (const auto& [name, bytes] : names_)
      if (const auto base = segment_base_of(name, log_suffix)) bases.push_back(*base);
    if (plan_.truncate_to) {
      while (bases.size() > 1 && bases.back() >= *plan_.truncate_to) {
        if (auto done = remove_segment(bases.back()); !done) return done;
        bases.pop_back();
      }
    }
    bool torn = false;
    log_.log_end = plan_.log_start;
    for (std::size_t i = 0; i < bases.size(); ++i) {
      if (torn) {
        // Behind a torn batch nothing can be trusted to follow it.
        log::warn("log", "segment removed behind a torn one path={}", segment_file(plan_.path, bases[i], log_suffix));
        if (auto done = remove_segment(bases[i]); !done) return done;
        continue;
      }
      const bool last = i + 1 == bases.size();
      if (auto done = open_segment(bases[i], last ? std::nullopt : std::optional(bases[i + 1]), torn); !done)
        return done;
    }
    if (!log_.segments.empty()) {
      auto& active = *log_.segments.rbegin()->second;
      if (!active.indexes) {  // became the last because what followed was torn: it was scanned, so it has them
        if (auto result = scan(active); !result) return result.error();
      }
    }
    return {};
  }

  IoResult<void> open_segment(kafka::Offset base, std::optional<kafka::Offset> next, bool& torn) {
    auto segment = add_segment(base);
    const auto size = names_.at(segment_file("", base, log_suffix).substr(1));
    // The process before may have reserved room behind its end.
    if (!next && (!plan_.clean || plan_.truncate_to)) segment->on_disk->reserved_to = size;
    const bool doubtful =
        (!plan_.clean && (!next || *next > plan_.recovery_point)) || (size > 0 && !has(base, index_suffix) && next);
    const bool cut_here = plan_.truncate_to && !next;
    if (!doubtful && next && !cut_here) {
      segment->bytes = segment->written = static_cast<std::uint32_t>(size);
      segment->nothing_from = *next;
      log_.log_end = *next;
      return load_aborted(*segment);
    }
    if (!doubtful && !cut_here) {
      const auto opened = open_active(*segment);
      if (!opened) return opened.error();
      if (opened->good_bytes == opened->file_bytes) {
        log_.log_end = std::max(opened->next_offset, base);
        return load_aborted(*segment);
      }
      log::warn("log", "the end of {} does not agree with its index: scanned whole",
                segment->on_disk->path(log_suffix));
    }
    if (cut_here)
      if (auto done = cut_at_offset(*segment, *plan_.truncate_to); !done) return done;
    const auto result = scan(*segment);
    if (!result) return result.error();
    log_.log_end = std::max(result->next_offset, base);
    if (result->good_bytes < result->file_bytes) {
      torn = true;
      log_.cut_bytes += result->file_bytes - result->good_bytes;
      log::warn("log", "torn tail cut: {} bytes behind offset {} of {}", result->file_bytes - result->good_bytes,
                log_.log_end.value, segment->on_disk->path(log_suffix));
      if (auto done = cut(*segment, result->good_bytes); !done) return done;
    }
    // The machine lost this segment's end but not what followed: offsets would jump. Compaction leaves such gaps
    // rightly.
    if (next && !torn && !plan_.clean && !plan_.config.cleanup_compact && result->next_offset < *next) {
      torn = true;
      log::warn("log", "{} ends at offset {} and not at {}: the log ends there", segment->on_disk->path(log_suffix),
                log_.log_end.value, next->value);
    }
    if (next && !torn) segment->nothing_from = *next;
    return {};
  }

  IoResult<void> cut_at_offset(Segment& segment, kafka::Offset offset) {
    const auto file = segment.on_disk->log();
    if (!file) return file.error();
    const auto size = (*file)->size();
    if (!size) return size.error();
    BatchWalk walk(**file, 0, *size);
    while (true) {
      const auto batch = walk.next(BatchWalk::Need::header);
      if (!batch) return batch.error();
      if (!*batch) return {};
      if (StoredBatch(**batch).last_offset() < offset) continue;
      return cut(segment, walk.position());
    }
  }

  IoResult<void> load_aborted(Segment& segment) {
    const auto at = names_.find(segment_file("", segment.base, txn_index_suffix).substr(1));
    if (at == names_.end() || at->second == 0) return {};
    const auto bytes = read_file(files_, path(at->first));
    if (!bytes) return bytes.error();
    if (auto aborted = decode_aborted(*bytes)) {
      segment.aborted = std::move(*aborted);
      segment.aborted_in_file = segment.aborted.size();
      return {};
    }
    log::warn("log", "{} cannot be read and is rebuilt", path(at->first));
    scanned_.insert(segment.base);
    return {};
  }

  /// Log start and log end as segments and checkpoint say together; an empty log gets its first segment.
  IoResult<void> fix_ends() {
    log_.log_start = plan_.log_start;
    decltype(log_.segments) old;
    if (!log_.segments.empty()) {
      log_.log_start = std::max(log_.log_start, log_.segments.begin()->first);
      if (log_.log_start > log_.log_end) {
        log::warn("log", "log start {} lies behind the log end {}: the log begins anew there path={}",
                  log_.log_start.value, log_.log_end.value, plan_.path);
        old = std::exchange(log_.segments, {});
      }
    }
    if (log_.segments.empty()) {
      log_.log_end = log_.log_start;
      auto segment = add_segment(log_.log_start);
      segment->indexes.emplace();
      segment->max_timestamp = -1;
      // The files are there from the start, as Apache makes them.
      const auto file = segment->on_disk->log();
      if (!file) return file.error();
      for (const auto suffix : {index_suffix, time_index_suffix})
        if (auto done = segment->on_disk->replace_index(suffix, {}); !done) return done;
    }
    // Not before: a start that finds no segment at all takes that for a loss.
    for (const auto& [base, segment] : old)
      if (auto done = remove_segment(base); !done) return done;
    log_.flushed_end =
        plan_.clean ? log_.log_end : std::min(std::max(plan_.recovery_point, log_.log_start), log_.log_end);
    return {};
  }

  IoResult<void> load_epochs() {
    const std::string name = "leader-epoch-checkpoint";
    std::string before;
    if (names_.contains(name)) {
      const auto bytes = read_file(files_, path(name));
      if (!bytes) return bytes.error();
      before = std::string(as_text(*bytes));
      if (auto epochs = LeaderEpochs::parse(before))
        log_.epochs = std::move(*epochs);
      else
        log::warn("log", "{} cannot be read and is rebuilt from the segments scanned", path(name));
    }
    log_.epochs.truncate_from_end(log_.log_end);
    for (const auto& entry : seen_epochs_.entries())
      if (entry.start < log_.log_end) log_.epochs.assign(entry.epoch, entry.start);
    log_.epochs.truncate_from_start(log_.log_start);
    const auto after = log_.epochs.to_text();
    if (after == before || (before.empty() && log_.epochs.entries().empty())) return {};
    return replace_file(files_, path(name), as_bytes(after), Durable::later);
  }

  /// Loads the newest usable snapshot and replays what follows. Snapshots above it and between segments go.
  IoResult<void> load_producers() {
    // Transaction indexes of scanned segments are rebuilt by replay, so it begins before the first of them.
    const auto limit = scanned_.empty() ? log_.log_end : std::min(*scanned_.begin(), log_.log_end);
    std::vector<kafka::Offset> snapshots;
    for (const auto& [name, bytes] : names_)
      if (const auto at = segment_base_of(name, snapshot_suffix)) snapshots.push_back(*at);
    std::optional<kafka::Offset> loaded;
    bool damaged = false;
    for (auto at = snapshots.rbegin(); at != snapshots.rend(); ++at) {
      const auto file = segment_file(plan_.path, *at, snapshot_suffix);
      bool keep = *at <= limit;
      if (keep && loaded) keep = log_.segments.contains(*at);
      if (keep && !loaded) {
        const auto bytes = read_file(files_, file);
        if (!bytes) return bytes.error();
        keep = log_.producers.load_snapshot(*bytes);
        if (keep) {
          loaded = *at;
        } else {
          damaged = true;
          log::warn("log", "{} is damaged and removed", file);
        }
      }
      if (!keep)
        if (auto done = files_.remove(file); !done) return done;
    }
    if (loaded) log_.last_snapshot = *loaded;
    log_.producers.log_start_moved(log_.log_start);
    if (plan_.clean && loaded == log_.log_end) return load_recent();
    // No snapshot after a clean stop: there were no producers (as Apache assumes).
    if (plan_.clean && !loaded && !damaged && scanned_.empty()) return {};
    return replay(std::max(loaded.value_or(kafka::Offset(0)), log_.log_start));
  }

  IoResult<void> load_recent() {
    if (!names_.contains(std::string(recent_batches_file))) return {};
    const auto bytes = read_file(files_, path(recent_batches_file));
    if (!bytes) return bytes.error();
    log_.producers.load_recent_batches(as_text(*bytes));
    return files_.remove(path(recent_batches_file));
  }

  IoResult<void> replay(kafka::Offset from) {
    auto at = log_.segments.upper_bound(from);
    if (at != log_.segments.begin()) --at;
    for (; at != log_.segments.end(); ++at) {
      auto& segment = *at->second;
      const auto file = segment.on_disk->log();
      if (!file) return file.error();
      const bool rebuild = scanned_.contains(segment.base);
      if (rebuild) segment.aborted.clear();
      BatchWalk walk(**file, 0, segment.bytes);
      while (true) {
        auto batch = walk.next(BatchWalk::Need::header);
        if (!batch) return batch.error();
        if (!*batch) break;
        if (StoredBatch(**batch).last_offset() < from) continue;
        if (StoredBatch(**batch).control()) {
          walk.step_back();
          batch = walk.next(BatchWalk::Need::whole);
          if (!batch) return batch.error();
          if (!*batch) break;
        }
        const auto aborted = log_.producers.appended(batch_info(**batch));
        if (aborted && rebuild) segment.aborted.push_back(*aborted);
      }
    }
    return {};
  }

  IoResult<void> write_rebuilt() {
    for (const auto base : scanned_) {
      const auto at = log_.segments.find(base);
      if (at == log_.segments.end()) continue;
      auto& segment = *at->second;
      if (segment.indexes) {
        const bool active = std::next(at) == log_.segments.end();
        if (!active) segment.finish_time_index();
        auto& indexes = *segment.indexes;
        if (auto done =
                segment.on_disk->replace_index(index_suffix, encode(std::span<const OffsetEntry>(indexes.offsets)));
            !done)
          return done;
        if (auto done =
                segment.on_disk->replace_index(time_index_suffix, encode(std::span<const TimeEntry>(indexes.times)));
            !done)
          return done;
        indexes.offsets_in_file = indexes.offsets.size();
        indexes.times_in_file = indexes.times.size();
        if (!active) segment.indexes.reset();
      }
      if (!segment.aborted.empty() || has(base, txn_index_suffix))
        if (auto done = segment.on_disk->replace_index(txn_index_suffix,
                                                       encode(std::span<const AbortedRange>(segment.aborted)));
            !done)
          return done;
      segment.aborted_in_file = segment.aborted.size();
    }
    // Only the active segment's file stays open.
    for (auto at = log_.segments.begin(); at != log_.segments.end(); ++at) at->second->on_disk->close_files();
    return {};
  }

  Files& files_;
  const OpenPlan& plan_;
  std::map<std::string, std::uint64_t, std::less<>> names_;
  std::set<kafka::Offset> scanned_;
  LeaderEpochs seen_epochs_;
  OpenedLog log_;
};

}  // namespace

IoResult<OpenedLog> open_log(Files& files, const OpenPlan& plan) { return Opener(files, plan).run(); }

}  // namespace ciuic::broker
