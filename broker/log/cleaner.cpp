// Compaction: which records stay, and the files they go to. Not here: when a log is cleaned (partition_clean.cpp), and
// the end of an interrupted swap (recovery.cpp).
#include "broker/log/cleaner.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "broker/log/segment_scan.h"
#include "broker/log/stored_batch.h"
#include "transport/base/log.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {

namespace {

constexpr std::size_t write_bytes = 1U << 20;
constexpr std::string_view segment_suffixes[] = {index_suffix, time_index_suffix, txn_index_suffix, log_suffix};

class Cleaner {
 public:
  Cleaner(Files& files, const CleanPlan& plan) : files_(files), plan_(plan) {
    for (const auto& source : plan.sources)
      for (const auto& range : source.aborted) aborted_[range.producer_id].push_back(range);
  }

  IoResult<CleanResult> run() {
    if (auto done = map_keys(); !done) return done.error();
    CleanResult result;
    result.cleaned_to = mapped_to_;
    for (std::size_t first = 0; first < sources_to_clean_;) {
      auto last = first;
      std::uint64_t bytes = 0;
      // Neighbours become one segment while they fit in one.
      while (last < sources_to_clean_) {
        const auto& source = plan_.sources[last];
        if (last > first && (bytes + source.bytes > static_cast<std::uint64_t>(plan_.config.segment_bytes) ||
                             source.end - plan_.sources[first].base > std::numeric_limits<std::int32_t>::max()))
          break;
        bytes += source.bytes;
        ++last;
      }
      auto group = write_group(first, last);
      if (!group) return group.error();
      result.bytes_before += bytes;
      result.bytes_after += group->segment->bytes;
      result.groups.push_back(std::move(*group));
      first = last;
    }
    return result;
  }

 private:
  bool is_aborted(const StoredBatch& batch) const {
    if (!batch.transactional()) return false;
    const auto of = aborted_.find(batch.producer_id());
    return of != aborted_.end() &&
           std::any_of(of->second.begin(), of->second.end(), [&batch](const AbortedRange& range) {
             return range.first_offset <= batch.base_offset() && batch.base_offset() <= range.last_offset;
           });
  }

  template <class Each>
  IoResult<void> each_batch(const CleanSource& source, Each each) {
    const auto log = source.files->log();
    if (!log) return log.error();
    BatchWalk walk(**log, 0, source.bytes);
    while (true) {
      const auto batch = walk.next(BatchWalk::Need::whole);
      if (!batch) return batch.error();
      if (!*batch) break;
      if (auto done = each(**batch); !done) return done;
    }
    if (walk.stopped_short()) return IoError(EIO, source.files->path(log_suffix) + " cannot be read to its end");
    return {};
  }

  /// The last offset of every key, over the dirty part.
  IoResult<void> map_keys() {
    mapped_to_ = plan_.dirty_from;
    for (const auto& source : plan_.sources) {
      if (source.end <= plan_.dirty_from) {
        ++sources_to_clean_;
        continue;
      }
      // At least one segment a round, or a log of many keys would never be cleaned.
      if (last_.size() >= plan_.keys_max && mapped_to_ > plan_.dirty_from) break;
      const auto done = each_batch(source, [this](Bytes bytes) -> IoResult<void> {
        const StoredBatch header(bytes);
        if (header.control() || is_aborted(header)) return {};
        const auto batch = kafka::RecordBatchView::parse(bytes);
        if (!batch) return {};
        auto reader = kafka::RecordReader::open(*batch, scratch_, stored_batch_unpacked_max);
        if (!reader) return IoError(EIO, reader.error().text);
        while (const auto record = reader->next())
          if (record->key) last_[std::string(as_text(*record->key))] = record->offset;
        return {};
      });
      if (!done) return done;
      mapped_to_ = source.end;
      ++sources_to_clean_;
    }
    return {};
  }

  bool has_aged(kafka::Offset offset, std::int64_t timestamp) const {
    return offset < plan_.dirty_from && timestamp >= 0 && plan_.now_ms - timestamp > plan_.config.delete_retention_ms;
  }

  bool stays(const kafka::RecordView& record) const {
    if (!record.key) return false;
    const auto last = last_.find(std::string(as_text(*record.key)));
    if (last != last_.end() && last->second > record.offset) return false;
    return record.value || !has_aged(record.offset, record.timestamp);
  }

  /// A marker must outlive its transaction's records, or a replay would find the transaction open for ever.
  bool marker_stays(const StoredBatch& batch) {
    const bool has_records = with_records_.erase(batch.producer_id()) > 0;
    return has_records || !has_aged(batch.base_offset(), batch.max_timestamp());
  }

  /// Appends what stays of a batch to `out_`.
  IoResult<void> keep(Bytes bytes) {
    const StoredBatch header(bytes);
    if (header.control()) {
      if (marker_stays(header)) out_.insert(out_.end(), bytes.begin(), bytes.end());
      return {};
    }
    if (is_aborted(header)) return {};
    const auto batch = kafka::RecordBatchView::parse(bytes);
    if (!batch) {  // of an old format: not compacted, not lost
      out_.insert(out_.end(), bytes.begin(), bytes.end());
      return {};
    }
    auto reader = kafka::RecordReader::open(*batch, scratch_, stored_batch_unpacked_max);
    if (!reader) return IoError(EIO, reader.error().text);
    std::vector<kafka::RecordView> kept;
    std::int32_t seen = 0;
    while (const auto record = reader->next()) {
      ++seen;
      if (stays(*record)) kept.push_back(*record);
    }
    if (reader->error() != nullptr) return IoError(EIO, reader->error());
    if (kept.empty()) return {};
    if (header.transactional()) with_records_.insert(header.producer_id());
    if (static_cast<std::int32_t>(kept.size()) == seen) {
      out_.insert(out_.end(), bytes.begin(), bytes.end());
      return {};
    }
    return rebuild(*batch, kept);
  }

  IoResult<void> rebuild(const kafka::RecordBatchView& batch, const std::vector<kafka::RecordView>& kept) {
    builder_.clear();
    std::vector<kafka::HeaderToWrite> headers;
    for (const auto& record : kept) {
      headers.clear();
      auto left = record.headers;
      while (const auto one = kafka::next_header(left)) headers.push_back({one->key, one->value});
      kafka::RecordToWrite write;
      write.timestamp = record.timestamp;
      write.key = record.key;
      write.value = record.value;
      write.headers = headers;
      builder_.add(write, static_cast<std::int32_t>(record.offset - batch.base_offset()));
    }
    kafka::BatchHeader header;
    header.base_offset = batch.base_offset();
    header.leader_epoch = batch.leader_epoch();
    header.codec = batch.codec();
    header.transactional = batch.transactional();
    header.producer_id = batch.producer_id();
    header.producer_epoch = batch.producer_epoch();
    header.base_sequence = batch.base_sequence();
    const auto at = out_.size();
    if (const auto done = builder_.finish(header, out_, batch.last_offset_delta()); !done)
      return IoError(EIO, done.error().text);
    if (batch.log_append_time()) kafka::set_log_append_time(MutableBytes(out_).subspan(at), batch.max_timestamp());
    return {};
  }

  IoResult<CleanGroup> write_group(std::size_t first, std::size_t last) {
    const auto& front = plan_.sources[first];
    CleanGroup group{first, last, std::make_shared<Segment>(files_, plan_.path, front.base)};
    auto& segment = *group.segment;
    segment.indexes.emplace();
    segment.max_timestamp = -1;
    segment.nothing_from = plan_.sources[last - 1].end;
    segment.created_ms = plan_.now_ms;
    const auto name = [&](std::string_view suffix) { return front.files->path(suffix) + std::string(cleaned_suffix); };
    if (auto made = write_file(files_, name(log_suffix), {}); !made) return made.error();
    auto log = files_.open(name(log_suffix), OpenMode::read_write);
    if (!log) return log.error();
    Buffer pending;
    const auto write_out = [&]() -> IoResult<void> {
      if (pending.empty()) return {};
      const Bytes piece(pending);
      auto done = (*log)->write_at(segment.bytes - pending.size(), std::span(&piece, 1));
      pending.clear();
      return done;
    };
    for (auto i = first; i < last; ++i) {
      const auto done = each_batch(plan_.sources[i], [&](Bytes bytes) -> IoResult<void> {
        out_.clear();
        if (auto kept = keep(bytes); !kept) return kept;
        if (out_.empty()) return {};
        const auto info = batch_info(out_);
        segment.index_batch(info, segment.bytes, plan_.config.index_interval_bytes);
        segment.bytes += static_cast<std::uint32_t>(out_.size());
        pending.insert(pending.end(), out_.begin(), out_.end());
        return pending.size() >= write_bytes ? write_out() : IoResult<void>{};
      });
      if (!done) return done.error();
      // Markers may still stand: their entries stay as long as the segment's.
      segment.aborted.insert(segment.aborted.end(), plan_.sources[i].aborted.begin(), plan_.sources[i].aborted.end());
    }
    if (auto done = write_out(); !done) return done.error();
    if (auto done = (*log)->sync(); !done) return done.error();
    segment.written = segment.bytes;
    segment.aborted_in_file = segment.aborted.size();
    if (segment.bytes == 0) segment.nothing_from = segment.base;
    segment.finish_time_index();
    const auto write = [&](std::string_view suffix, const Buffer& bytes) {
      return replace_file(files_, name(suffix), bytes, Durable::now);
    };
    if (auto done = write(index_suffix, encode(std::span<const OffsetEntry>(segment.indexes->offsets))); !done)
      return done.error();
    if (auto done = write(time_index_suffix, encode(std::span<const TimeEntry>(segment.indexes->times))); !done)
      return done.error();
    if (!segment.aborted.empty())
      if (auto done = write(txn_index_suffix, encode(std::span<const AbortedRange>(segment.aborted))); !done)
        return done.error();
    segment.indexes.reset();
    return group;
  }

  Files& files_;
  const CleanPlan& plan_;
  std::unordered_map<std::string, kafka::Offset> last_;
  std::unordered_map<kafka::ProducerId, std::vector<AbortedRange>> aborted_;
  std::unordered_set<kafka::ProducerId> with_records_;
  kafka::Offset mapped_to_;
  std::size_t sources_to_clean_ = 0;
  Buffer scratch_;
  Buffer out_;
  kafka::RecordBatchBuilder builder_;
};

}  // namespace

IoResult<CleanResult> clean_segments(Files& files, const CleanPlan& plan) { return Cleaner(files, plan).run(); }

IoResult<void> swap_cleaned(Files& files, const CleanPlan& plan, const CleanResult& result) {
  const auto rename_all = [&files](const std::string& path, std::string_view from,
                                   std::string_view to) -> IoResult<void> {
    const auto exists = files.exists(path + std::string(from));
    if (!exists) return exists.error();
    if (!*exists) return {};
    return files.rename(path + std::string(from), path + std::string(to));
  };
  for (const auto& group : result.groups) {
    const auto& front = plan.sources[group.first];
    // The log last: `.log.swap` says that everything of the group is there.
    for (const auto suffix : segment_suffixes)
      if (auto done = rename_all(front.files->path(suffix), cleaned_suffix, swap_suffix); !done) return done;
    for (auto i = group.first; i < group.last; ++i) {
      plan.sources[i].files->close_files();
      for (const auto suffix : segment_suffixes)
        if (auto done = rename_all(plan.sources[i].files->path(suffix), "", deleted_suffix); !done) return done;
    }
    // The log last here too: until then a start does it all again.
    for (const auto suffix : segment_suffixes)
      if (auto done = rename_all(front.files->path(suffix), swap_suffix, ""); !done) return done;
  }
  return files.sync_directory(plan.path);
}

}  // namespace ciuic::broker
