// The start of a log directory: which partitions are whole, what the journals hold for them, opening them. Not here:
// how one log is opened (recovery.cpp), what counts as a loss (loss.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "broker/log/checkpoints.h"
#include "broker/log/journal.h"
#include "broker/log/log_directory.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

/// Says every few seconds how far a long load is. Any thread.
class LoadProgress {
 public:
  LoadProgress(const Clock& clock, std::string path, std::size_t of)
      : clock_(clock), path_(std::move(path)), of_(of), next_(clock.now() + interval) {}
  void one_done() {
    const std::scoped_lock lock(mutex_);
    ++done_;
    if (done_ == of_ || clock_.now() < next_) return;
    next_ = clock_.now() + interval;
    log::info("log", "loading path={} partitions={} of={}", path_, done_, of_);
  }

 private:
  static constexpr std::chrono::seconds interval{3};
  const Clock& clock_;
  const std::string path_;
  const std::size_t of_;
  std::mutex mutex_;
  std::size_t done_ = 0;
  Clock::TimePoint next_;
};

/// Each number below `count` on one of so many threads; the first error ends it.
IoResult<void> in_parallel(std::size_t count, unsigned threads_max,
                           const std::function<IoResult<void>(std::size_t)>& each) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  IoResult<void> result;
  const auto run = [&] {
    for (auto i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      auto done = each(i);
      if (done) continue;
      const std::scoped_lock lock(mutex);
      result = std::move(done);
      next.store(count);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::min<std::size_t>(threads_max, count); ++i) threads.emplace_back(run);
  run();
  for (auto& thread : threads) thread.join();
  return result;
}

kafka::Error storage_error(const IoError& error) { return {ErrorCode::kafka_storage_error, error.text}; }

}  // namespace

struct LogDirectory::Loading {
  kafka::TopicPartition name;
  bool has_metadata;
  PartitionPlan plan;
  std::string home;
  std::optional<Loss> loss{};  // what makes it stay offline
  std::optional<kafka::Offset> anew_from{};
  std::shared_ptr<Partition> partition{};
};

ResultOf<std::vector<std::shared_ptr<Partition>>, kafka::Error> LogDirectory::load(
    const std::function<std::optional<PartitionPlan>(const FoundPartition&)>& plan,
    const std::function<bool(const kafka::PartitionId&)>& expected) {
  std::vector<Loading> work;
  for (const auto& found : found_) {
    const auto decided = plan(found);
    if (!decided) {
      log::warn("log", "stray partition directory left alone: {}/{}; delete it if its topic is gone", path(),
                partition_directory(found.name));
      continue;
    }
    work.push_back({found.name, found.topic_id.has_value(), *decided, path() + "/" + partition_directory(found.name)});
  }
  LoadProgress progress(clock_, path(), work.size());
  // A replay makes segment files: what is missing shows before it only.
  auto done = in_parallel(work.size(), settings_.recovery_threads, [&](std::size_t i) { return inspect(work[i]); });
  if (done) done = replay_journals(work, expected);
  if (done)
    done = in_parallel(work.size(), settings_.recovery_threads, [&](std::size_t i) {
      auto opened = open_found(work[i]);
      progress.one_done();
      return opened;
    });
  // From here on this is a running directory: only the next clean stop says otherwise.
  if (done) done = io_.files().remove(path() + "/" + std::string(clean_shutdown_file));
  if (!done) {
    fail(done.error());
    return storage_error(done.error());
  }
  std::vector<std::shared_ptr<Partition>> partitions;
  const std::scoped_lock lock(mutex_);
  for (auto& one : work) {
    partitions_[one.name] = one.partition;
    partitions.push_back(std::move(one.partition));
  }
  return partitions;
}

/// Before anything changes: are the partition's files there, and if not, does the operator go on without them?
IoResult<void> LogDirectory::inspect(Loading& one) {
  auto& files = io_.files();
  auto answer = find_loss(files, {one.home, checkpointed(one.name), was_clean_, one.plan.config.cleanup_compact});
  if (!answer) return answer.error();
  const auto marker = one.home + "/" + std::string(accept_loss_file);
  const auto accepted = files.exists(marker);
  if (!accepted) return accepted.error();
  if (*accepted) {
    const std::scoped_lock lock(mutex_);
    accepted_.push_back(marker);
  }
  one.loss = std::move(answer->loss);
  if (one.loss && *accepted) {
    const auto loss = *std::exchange(one.loss, std::nullopt);
    log::warn("log", "going on without missing records, as {} says topic={} partition={} known_end={}: {}", marker,
              one.name.topic, one.name.partition.value, loss.known_end.value, loss.what);
    if (loss.nothing_left) {
      one.anew_from = loss.known_end;
    } else {
      const auto text = fmt::format("{}\n", loss.known_end.value);
      const auto note = one.home + "/" + std::string(accepted_loss_file);
      if (auto noted = replace_file(files, note, as_bytes(text), Durable::now); !noted) return noted;
    }
  } else if (*accepted) {
    log::warn("log", "nothing is missing, and {} is removed", marker);
  }
  if (!one.loss && answer->stray_segment) {
    log::warn("log", "an empty last segment that no broker made is removed: {}",
              segment_file(one.home, *answer->stray_segment, log_suffix));
    for (const auto suffix : {index_suffix, time_index_suffix, txn_index_suffix, log_suffix})
      if (auto removed = files.remove(segment_file(one.home, *answer->stray_segment, suffix)); !removed) return removed;
  }
  return {};
}

IoResult<void> LogDirectory::open_found(Loading& one) {
  if (one.loss) {
    one.partition = hold(one.name, one.plan, *one.loss);
    return {};
  }
  auto opened = open_partition(one.name, one.plan, one.anew_from);
  if (!opened) return opened.error();
  one.partition = std::move(*opened);
  if (one.has_metadata || one.plan.topic_id.is_zero()) return {};
  const auto text = partition_metadata_text(one.plan.topic_id);
  return replace_file(io_.files(), one.home + "/" + std::string(partition_metadata_file), as_bytes(text), Durable::now);
}

/// What a killed process had acknowledged goes into the segment files, before anybody opens them.
IoResult<void> LogDirectory::replay_journals(const std::vector<Loading>& all,
                                             const std::function<bool(const kafka::PartitionId&)>& expected) {
  // Strays are found too: what they lack is nobody's.
  std::map<kafka::PartitionId, ReplayTo> known;
  for (const auto& found : found_)
    if (found.topic_id)
      known[{*found.topic_id, found.name.partition}] = {ReplayTo::Kind::directory,
                                                        path() + "/" + partition_directory(found.name)};
  for (const auto& one : all)
    if (one.loss) known[{one.plan.topic_id, one.name.partition}] = {ReplayTo::Kind::kept_back, {}};
  const auto where = [&](const kafka::PartitionId& id) -> ReplayTo {
    if (const auto at = known.find(id); at != known.end()) return at->second;
    return {expected && expected(id) ? ReplayTo::Kind::kept_back : ReplayTo::Kind::gone, {}};
  };
  auto& files = io_.files();
  for (const auto& journal : journals_found_) {
    const auto replayed = replay_journal(files, journal, where);
    if (!replayed)
      return IoError(replayed.error().number,
                     fmt::format("{}; acknowledged records of {} wait to be put into their files: make the disk "
                                 "writable or free some space, then start again",
                                 replayed.error().text, journal));
    for (const auto& [id, end] : replayed->kept_back) journaled_[id] = std::max(journaled_[id], end);
    if (replayed->left_out > 0) {
      const auto file = journal.substr(path().size() + 1);
      auto kept = fmt::format("{}/left-out-{}", path(), file);
      for (auto n = 2;; ++n) {
        const auto taken = files.exists(kept);
        if (!taken) return taken.error();
        if (!*taken) break;
        kept = fmt::format("{}/left-out-{}.{}", path(), file, n);
      }
      log::warn("log",
                "{} bytes of {} fit no segment file and are left out: the files are missing, end before them or went "
                "on otherwise; it is kept as {}",
                replayed->left_out, journal, kept);
      if (auto renamed = files.rename(journal, kept); !renamed) return renamed;
    }
    log::info("log", "journal replayed path={} bytes={} of_deleted_partitions={}", journal, replayed->bytes,
              replayed->gone);
  }
  // All or none: a start that ends in between finds them again.
  for (const auto& journal : journals_found_)
    if (auto removed = files.remove(journal); !removed) return removed;
  return {};
}

std::shared_ptr<Partition> LogDirectory::hold(const kafka::TopicPartition& name, const PartitionPlan& plan,
                                              const Loss& loss) {
  auto parts = parts_for(name, plan);
  parts.journal = nullptr;
  const auto home = parts.path;
  auto partition = std::shared_ptr<Partition>(new Partition(std::move(parts)));
  partition->lost_ = true;
  partition->offline_.store(true);
  const auto known = checkpointed(name);
  auto end = loss.known_end;
  if (const auto at = journaled_.find({plan.topic_id, name.partition}); at != journaled_.end()) {
    // The journal is put aside: at the next start this says what it said.
    end = std::max(end, at->second);
    const std::scoped_lock lock(mutex_);
    high_watermarks_[name] = std::max(high_watermarks_[name], end);
  }
  log::error(
      "log",
      "records are missing, the partition stays offline topic={} partition={} path={}: {}; its records were "
      "known up to offset {} (recovery point {}, log start {}, high watermark {}). Put its files back, or delete "
      "the topic, or, to go on without them, make an empty file {}/{}; then start again",
      name.topic, name.partition.value, home, loss.what, end.value, known.recovery_point.value, known.log_start.value,
      known.high_watermark.value, home, accept_loss_file);
  return partition;
}

std::shared_ptr<Partition> LogDirectory::hold_missing(const kafka::TopicPartition& name, const PartitionPlan& plan) {
  const auto known = checkpointed(name);
  Loss loss;
  loss.what = "its directory is not there";
  loss.known_end = std::max({known.recovery_point, known.log_start, known.high_watermark});
  if (loss.known_end <= kafka::Offset(0) && !journaled_.contains({plan.topic_id, name.partition})) return nullptr;
  auto partition = hold(name, plan, loss);
  const std::scoped_lock lock(mutex_);
  partitions_[name] = partition;
  return partition;
}

ResultOf<void, kafka::Error> LogDirectory::settle() {
  bool changed = !accepted_.empty();
  {
    const std::scoped_lock lock(mutex_);
    for (auto* checkpoint : {&recovery_points_, &log_starts_, &high_watermarks_}) {
      std::erase_if(*checkpoint, [this, &changed](const auto& entry) {
        const auto at = partitions_.find(entry.first);
        changed |= at == partitions_.end();
        return at == partitions_.end() || !at->second->lost_;
      });
    }
  }
  if (!changed && journaled_.empty()) return {};
  auto done = write_checkpoint_files();
  // Behind the checkpoints, which no longer speak of what was accepted.
  for (const auto& marker : std::exchange(accepted_, {}))
    if (done) done = io_.files().remove(marker);
  if (done) return {};
  fail(done.error());
  return storage_error(done.error());
}

}  // namespace ciuic::broker
