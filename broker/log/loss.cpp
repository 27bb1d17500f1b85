// Whether a partition's files are all there, by what other files say of them. Not here: what is done about it
// (log_directory_load.cpp).
#include "broker/log/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "broker/log/index.h"
#include "broker/log/leader_epochs.h"
#include "broker/log/recovery.h"
#include "broker/log/segment.h"
#include "broker/log/segment_scan.h"
#include "broker/log/stored_batch.h"
#include "broker/log/text_lines.h"

namespace ciuic::broker {

using kafka::Offset;

namespace {

class Inspection {
 public:
  Inspection(Files& files, const LossQuestion& question) : files_(files), question_(question) {}

  IoResult<LossAnswer> run() {
    if (auto done = list(); !done) return done.error();
    // What takes another's place is on its way: the opening finishes that.
    for (const auto& [name, bytes] : names_)
      if (name.ends_with(swap_suffix)) return LossAnswer{};
    if (auto done = gather(); !done) return done.error();
    if (bases_.empty()) {
      Loss loss;
      loss.nothing_left = true;
      if (known_end_ > Offset(0) || proof_) found("no segment file is left", std::move(loss));
      return answer_;
    }
    for (const auto step : {&Inspection::beginning, &Inspection::orphans, &Inspection::end, &Inspection::holes}) {
      if (auto done = (this->*step)(); !done) return done.error();
      if (answer_.loss) break;
    }
    if (answer_.loss) answer_.loss->known_end = known_end_;
    return answer_;
  }

 private:
  void found(std::string what, Loss loss = {}) {
    loss.what = std::move(what);
    loss.known_end = known_end_;
    answer_.loss = std::move(loss);
  }
  std::string path(std::string_view name) const { return question_.path + "/" + std::string(name); }
  void ended_at(Offset offset) { known_end_ = std::max(known_end_, offset); }
  bool has(Offset base, std::string_view suffix) const {
    return names_.contains(segment_file("", base, suffix).substr(1));
  }

  IoResult<void> list() {
    auto entries = files_.list(question_.path);
    if (!entries) return entries.error();
    for (const auto& entry : *entries)
      if (!entry.is_directory) names_[entry.name] = entry.bytes;
    return {};
  }

  IoResult<std::string> text(std::string_view name) {
    if (!names_.contains(name)) return std::string();
    const auto bytes = read_file(files_, path(name));
    if (!bytes) return bytes.error();
    return std::string(as_text(*bytes));
  }

  /// Relative to the segment's base.
  IoResult<std::uint32_t> last_offset_in(std::string_view index, bool by_time) {
    if (by_time) {
      const auto last = last_time_entry(files_, path(index));
      if (!last) return last.error();
      return *last ? (*last)->relative_offset : 0;
    }
    const auto last = floor_in_file(files_, path(index), std::numeric_limits<std::uint32_t>::max());
    if (!last) return last.error();
    return last->relative_offset;
  }

  IoResult<void> gather() {
    const auto& said = question_.checkpointed;
    for (const auto offset : {said.recovery_point, said.log_start, said.high_watermark}) ended_at(offset);
    for (const auto& [name, bytes] : names_) {
      if (const auto base = segment_base_of(name, log_suffix)) bases_.push_back(*base);
      if (name.ends_with(deleted_suffix)) deleting_ = true;
      if (const auto at = segment_base_of(name, snapshot_suffix)) ended_at(*at);
      const bool by_time = name.ends_with(time_index_suffix);
      const auto base = segment_base_of(name, by_time ? time_index_suffix : index_suffix);
      if (!base || bytes == 0 || has(*base, log_suffix)) continue;
      // A crash while a segment is deleted leaves this too, but then the log lies there under its new name.
      if (has(*base, std::string(log_suffix) + std::string(deleted_suffix))) continue;
      const auto last = last_offset_in(name, by_time);
      if (!last) return last.error();
      ended_at(*base + *last + 1);
      orphans_.push_back(*base);
      proof_ = true;
    }
    const auto epochs = text("leader-epoch-checkpoint");
    if (!epochs) return epochs.error();
    if (const auto parsed = LeaderEpochs::parse(*epochs); parsed && !parsed->entries().empty()) {
      first_epoch_ = parsed->entries().front().start;
      ended_at(parsed->entries().back().start);
      proof_ = true;  // it is written when the log is there
    }
    const auto accepted = text(accepted_loss_file);
    if (!accepted) return accepted.error();
    accepted_ = Offset(TextLines(*accepted).number<std::int64_t>().value_or(0));
    return {};
  }

  /// The first epoch's start moves with the log start.
  IoResult<void> beginning() {
    const auto first = bases_.front();
    if (!first_epoch_ || *first_epoch_ >= first || deleting_) return {};
    if (question_.checkpointed.log_start >= first || accepted_ >= first) return {};
    found(fmt::format("the first segment file begins at offset {} and leader-epoch-checkpoint at {}", first.value,
                      first_epoch_->value));
    return {};
  }

  IoResult<void> orphans() {
    for (const auto base : orphans_) {
      if (base < question_.checkpointed.log_start) continue;
      found(fmt::format("{} is missing, its index files are there", segment_file(question_.path, base, log_suffix)));
      break;
    }
    return {};
  }

  IoResult<void> end() {
    const auto last = bases_.back();
    const auto vouched = question_.checkpointed.recovery_point;
    if (question_.clean && bases_.size() > 1 && vouched > Offset(0) && last > vouched && bytes_of(last) == 0) {
      answer_.stray_segment = last;
      bases_.pop_back();
      return end();
    }
    if (vouched <= last) return {};
    const auto at = end_of(last, vouched);
    if (!at) return at.error();
    ended_at(*at);
    if (*at < vouched)
      found(fmt::format("the segment files end at offset {} and were on the device up to {} (recovery point)",
                        at->value, vouched.value));
    return {};
  }

  IoResult<void> holes() {
    if (question_.compacted) return {};
    for (std::size_t i = 0; i + 1 < bases_.size(); ++i) {
      const auto next = bases_[i + 1];
      if (next <= question_.checkpointed.log_start || next <= accepted_) continue;
      if (!question_.clean && next > question_.checkpointed.recovery_point) break;
      const auto at = end_of(bases_[i], next);
      if (!at) return at.error();
      if (*at >= next) continue;
      // Of a topic that was compacted once it is rightful.
      for (const auto base : {bases_[i], next}) {
        const auto whole = dense(base);
        if (!whole) return whole.error();
        if (!*whole) return {};
      }
      found(fmt::format("the records from offset {} to {} are in no segment file", at->value, next.value - 1));
      return {};
    }
    return {};
  }

  std::uint64_t bytes_of(Offset base) const { return names_.at(segment_file("", base, log_suffix).substr(1)); }

  /// Where a segment's whole batches end; walked from the last index entry, and from the beginning where that does not
  /// lead to `wanted`: after a crash index files may hold anything.
  IoResult<Offset> end_of(Offset base, Offset wanted) {
    const auto file = files_.open(segment_file(question_.path, base, log_suffix), OpenMode::read);
    if (!file) return file.error();
    std::uint64_t from = 0;
    if (has(base, index_suffix)) {
      const auto last = floor_in_file(files_, segment_file(question_.path, base, index_suffix),
                                      std::numeric_limits<std::uint32_t>::max());
      if (!last) return last.error();
      from = last->position;
    }
    auto at = walk(**file, base, from, nullptr);
    if (!at || *at >= wanted || from == 0) return at;
    return walk(**file, base, 0, nullptr);
  }

  /// True if every offset between a segment's first and last batch is in it, and there is one.
  IoResult<bool> dense(Offset base) {
    const auto file = files_.open(segment_file(question_.path, base, log_suffix), OpenMode::read);
    if (!file) return file.error();
    bool sparse = bytes_of(base) == 0 && base != bases_.back();
    if (const auto at = walk(**file, base, 0, &sparse); !at) return at.error();
    return !sparse;
  }

  IoResult<Offset> walk(const File& file, Offset base, std::uint64_t from, bool* sparse) {
    const auto size = file.size();
    if (!size) return size.error();
    auto end = base;
    if (from > *size) from = 0;
    BatchWalk batches(file, from, *size);
    while (true) {
      const auto next = batches.next(BatchWalk::Need::header);
      if (!next) return next.error();
      if (!*next) return end;
      const StoredBatch batch(**next);
      if (batch.base_offset() < end) return end;
      if (sparse != nullptr && (batch.base_offset() != end || batch.record_count() != batch.last_offset_delta() + 1))
        *sparse = true;
      end = batch.last_offset() + 1;
    }
  }

  Files& files_;
  const LossQuestion& question_;
  std::map<std::string, std::uint64_t, std::less<>> names_;
  std::vector<Offset> bases_;
  std::vector<Offset> orphans_;  // of index files
  std::optional<Offset> first_epoch_;
  Offset accepted_;
  Offset known_end_;
  bool proof_ = false;     // that there was a log, though not how far it went
  bool deleting_ = false;  // retention was at work
  LossAnswer answer_;
};

}  // namespace

IoResult<LossAnswer> find_loss(Files& files, const LossQuestion& question) { return Inspection(files, question).run(); }

}  // namespace ciuic::broker
