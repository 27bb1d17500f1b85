// A log directory: found, loaded, checkpointed, stopped, failed. Not here: the log of one partition (partition.h).
#include "broker/log/log_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "broker/log/checkpoints.h"
#include "broker/log/recovery.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

constexpr std::string_view delete_suffix = "-delete";

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

kafka::Error storage_error(const IoError& error) { return {ErrorCode::kafka_storage_error, error.text}; }

}  // namespace

LogDirectory::LogDirectory(LogDirectorySettings settings, std::shared_ptr<Arena> arena, FileIo& io, const Clock& clock,
                           LogObserver* observer)
    : settings_(std::move(settings)),
      arena_(std::move(arena)),
      io_(io),
      clock_(clock),
      observer_(observer),
      queue_(io.make_queue()),
      failure_(std::make_shared<Failure>()) {}

LogDirectory::~LogDirectory() {
  const std::scoped_lock lock(failure_->mutex);
  failure_->directory = nullptr;
}

ResultOf<std::unique_ptr<LogDirectory>, kafka::Error> LogDirectory::open(LogDirectorySettings settings,
                                                                         std::shared_ptr<Arena> arena, FileIo& io,
                                                                         const Clock& clock, LogObserver* observer) {
  auto directory =
      std::unique_ptr<LogDirectory>(new LogDirectory(std::move(settings), std::move(arena), io, clock, observer));
  directory->failure_->directory = directory.get();
  if (const auto scanned = directory->scan(); !scanned) return storage_error(scanned.error());
  return directory;
}

IoResult<void> LogDirectory::scan() {
  auto& files = io_.files();
  if (auto made = files.make_directories(path()); !made) return made;
  const auto marker = path() + "/" + std::string(clean_shutdown_file);
  const auto clean = files.exists(marker);
  if (!clean) return clean.error();
  was_clean_ = *clean;
  const auto read = [&](std::string_view name, Checkpoint& into) -> IoResult<void> {
    auto checkpoint = read_checkpoint(files, path() + "/" + std::string(name));
    if (!checkpoint) return checkpoint.error();
    into = std::move(*checkpoint);
    return {};
  };
  if (auto done = read(recovery_point_file, recovery_points_); !done) return done;
  if (auto done = read(log_start_file, log_starts_); !done) return done;
  auto entries = files.list(path());
  if (!entries) return entries.error();
  for (const auto& entry : *entries) {
    if (!entry.is_directory) continue;
    if (entry.name.ends_with(delete_suffix)) {
      io_.submit(queue_, [&files, gone = path() + "/" + entry.name] {
        if (const auto removed = files.remove_all(gone); !removed) log::warn("log", "{}", removed.error().text);
      });
      continue;
    }
    const auto name = parse_partition_directory(entry.name);
    if (!name || name->topic == metadata_log_topic) continue;  // the controller's own log lies among the topics'
    FoundPartition found{*name, std::nullopt};
    const auto metadata = path() + "/" + entry.name + "/" + std::string(partition_metadata_file);
    if (const auto text = read_file(files, metadata)) {
      found.topic_id = parse_partition_metadata(as_text(*text));
      if (!found.topic_id) log::warn("log", "{} cannot be read", metadata);
    } else if (text.error().number != ENOENT) {
      return text.error();
    }
    found_.push_back(std::move(found));
  }
  return replay_journals(*entries);
}

/// What a killed process had acknowledged goes into the segment files, before anybody opens them.
IoResult<void> LogDirectory::replay_journals(const std::vector<DirectoryEntry>& entries) {
  std::map<kafka::PartitionId, std::string> directories;
  for (const auto& found : found_)
    if (found.topic_id)
      directories[{*found.topic_id, found.name.partition}] = path() + "/" + partition_directory(found.name);
  const auto directory_of = [&directories](const kafka::PartitionId& id) -> std::optional<std::string> {
    const auto at = directories.find(id);
    return at == directories.end() ? std::nullopt : std::optional(at->second);
  };
  auto& files = io_.files();
  std::vector<std::string> journals;
  for (const auto& entry : entries)
    if (!entry.is_directory && entry.name.starts_with(journal_file_prefix))
      journals.push_back(path() + "/" + entry.name);
  for (const auto& journal : journals) {
    const auto replayed = replay_journal(files, journal, directory_of);
    if (!replayed)
      return IoError(replayed.error().number,
                     fmt::format("{}; acknowledged records of {} wait to be put into their files: make the disk "
                                 "writable or free some space, then start again",
                                 replayed.error().text, journal));
    if (replayed->left_out > 0) {
      const auto kept = fmt::format("{}/left-out-{}", path(), journal.substr(path().size() + 1));
      log::warn("log",
                "{} bytes of {} fit no segment file and are left out: the files end before them or went on otherwise; "
                "it is kept as {}",
                replayed->left_out, journal, kept);
      if (auto renamed = files.rename(journal, kept); !renamed) return renamed;
    }
    log::info("log", "journal replayed path={} bytes={} of_deleted_partitions={}", journal, replayed->bytes,
              replayed->gone);
  }
  // All or none: a start that ends in between finds them again.
  for (const auto& journal : journals)
    if (auto removed = files.remove(journal); !removed) return removed;
  return {};
}

std::shared_ptr<Journal> LogDirectory::journal_of(Executor& executor) {
  if (settings_.limits.journal_bytes == 0) return nullptr;
  const std::scoped_lock lock(journals_mutex_);
  if (const auto at = journals_.find(&executor); at != journals_.end()) return at->second;
  const auto file = fmt::format("{}/{}{}", path(), journal_file_prefix, journals_.size());
  auto made = Journal::make(io_.files(), file, settings_.limits.journal_bytes, executor, clock_);
  if (!made)
    log::warn("log", "no journal, each append waits for its own write to a segment file: {}", made.error().text);
  if (!made)
    if (const auto removed = io_.files().remove(file); !removed) log::warn("log", "{}", removed.error().text);
  return journals_[&executor] = made ? *made : nullptr;
}

Partition::Parts LogDirectory::parts_for(const kafka::TopicPartition& name, const PartitionPlan& plan) {
  Partition::Parts parts;
  parts.name = name;
  parts.topic_id = plan.topic_id;
  parts.path = path() + "/" + partition_directory(name);
  parts.config = plan.config;
  parts.limits = settings_.limits;
  parts.arena = arena_;
  // A replay finds a partition by its topic's id.
  if (!plan.topic_id.is_zero()) parts.journal = journal_of(*plan.executor);
  parts.io = &io_;
  parts.checks = settings_.checks;
  parts.clock = &clock_;
  parts.executor = plan.executor;
  parts.observer = observer_;
  parts.on_io_error = [failure = failure_](const IoError& error) {
    const std::scoped_lock lock(failure->mutex);
    if (failure->directory) failure->directory->fail(error);
  };
  parts.write_checkpoints = [failure = failure_]() -> IoResult<void> {
    const std::scoped_lock lock(failure->mutex);
    return failure->directory ? failure->directory->write_checkpoint_files()
                              : IoResult<void>(IoError(EIO, "the log directory is closed"));
  };
  return parts;
}

IoResult<std::shared_ptr<Partition>> LogDirectory::open_partition(const kafka::TopicPartition& name,
                                                                  const PartitionPlan& plan) {
  const auto checkpointed = [this, &name](const Checkpoint& checkpoint) {
    const std::scoped_lock lock(mutex_);
    const auto at = checkpoint.find(name);
    return at == checkpoint.end() ? kafka::Offset(0) : at->second;
  };
  OpenPlan how;
  how.path = path() + "/" + partition_directory(name);
  how.config = plan.config;
  how.clean = was_clean_;
  how.recovery_point = checkpointed(recovery_points_);
  how.log_start = checkpointed(log_starts_);
  how.now_ms = clock_.wall_ms();
  auto opened = open_log(io_.files(), how);
  if (!opened) return opened.error();
  auto partition = std::shared_ptr<Partition>(new Partition(parts_for(name, plan)));
  if (opened->cut_bytes > 0)
    log::warn("log", "recovered topic={} partition={} log_end_offset={} cut_bytes={}", name.topic, name.partition.value,
              opened->log_end.value, opened->cut_bytes);
  partition->join_journal();
  partition->install(std::move(*opened));
  return partition;
}

ResultOf<std::vector<std::shared_ptr<Partition>>, kafka::Error> LogDirectory::load(
    const std::function<std::optional<PartitionPlan>(const FoundPartition&)>& plan) {
  struct Work {
    kafka::TopicPartition name;
    bool has_metadata;
    PartitionPlan plan;
    std::shared_ptr<Partition> partition{};
  };
  std::vector<Work> work;
  for (const auto& found : found_) {
    auto decided = plan(found);
    if (!decided) {
      log::warn("log", "stray partition directory left alone: {}/{}; delete it if its topic is gone", path(),
                partition_directory(found.name));
      continue;
    }
    work.push_back({found.name, found.topic_id.has_value(), std::move(*decided)});
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<IoError> failed;
  LoadProgress progress(clock_, path(), work.size());
  const auto run = [&] {
    for (auto i = next.fetch_add(1); i < work.size(); i = next.fetch_add(1)) {
      auto opened = open_partition(work[i].name, work[i].plan);
      if (opened && !work[i].has_metadata && !work[i].plan.topic_id.is_zero()) {
        const auto text = partition_metadata_text(work[i].plan.topic_id);
        const auto file = path() + "/" + partition_directory(work[i].name) + "/" + std::string(partition_metadata_file);
        if (auto written = replace_file(io_.files(), file, as_bytes(text), Durable::now); !written)
          opened = written.error();
      }
      progress.one_done();
      const std::scoped_lock lock(mutex);
      if (!opened) {
        failed = opened.error();
        next.store(work.size());
      } else {
        work[i].partition = std::move(*opened);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::min<std::size_t>(settings_.recovery_threads, work.size()); ++i)
    threads.emplace_back(run);
  run();
  for (auto& thread : threads) thread.join();
  if (failed) {
    fail(*failed);
    return storage_error(*failed);
  }
  // From here on this is a running directory: only the next clean stop says otherwise.
  if (auto removed = io_.files().remove(path() + "/" + std::string(clean_shutdown_file)); !removed) {
    fail(removed.error());
    return storage_error(removed.error());
  }
  std::vector<std::shared_ptr<Partition>> partitions;
  const std::scoped_lock lock(mutex_);
  for (auto& one : work) {
    partitions_[one.name] = one.partition;
    partitions.push_back(std::move(one.partition));
  }
  return partitions;
}

ResultOf<std::shared_ptr<Partition>, kafka::Error> LogDirectory::create(const kafka::TopicPartition& name,
                                                                        const PartitionPlan& plan) {
  if (offline()) return kafka::Error(ErrorCode::kafka_storage_error, offline_reason());
  if (find(name))
    return kafka::Error(ErrorCode::topic_already_exists, partition_directory(name) + " exists in " + path());
  auto& files = io_.files();
  const auto home = path() + "/" + partition_directory(name);
  const auto make = [&]() -> IoResult<std::shared_ptr<Partition>> {
    if (auto made = files.make_directories(home); !made) return made.error();
    const auto text = partition_metadata_text(plan.topic_id);
    if (auto written =
            replace_file(files, home + "/" + std::string(partition_metadata_file), as_bytes(text), Durable::later);
        !written)
      return written.error();
    auto partition = open_partition(name, plan);
    if (partition) (*partition)->metadata_unsynced_ = true;
    return partition;
  };
  auto made = make();
  if (!made) {
    fail(made.error());
    return storage_error(made.error());
  }
  const std::scoped_lock lock(mutex_);
  if (closing_)
    return kafka::Error(ErrorCode::kafka_storage_error, fmt::format("Log directory {} is being closed", path()));
  partitions_[name] = *made;
  return *made;
}

std::shared_ptr<Partition> LogDirectory::find(const kafka::TopicPartition& name) const {
  const std::scoped_lock lock(mutex_);
  const auto at = partitions_.find(name);
  return at == partitions_.end() ? nullptr : at->second;
}

std::vector<std::shared_ptr<Partition>> LogDirectory::partitions() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<Partition>> all;
  all.reserve(partitions_.size());
  for (const auto& [name, partition] : partitions_) all.push_back(partition);
  return all;
}

void LogDirectory::remove(const kafka::TopicPartition& name, Milliseconds delay, LogCallback<void> done) {
  std::shared_ptr<Partition> partition;
  {
    const std::scoped_lock lock(mutex_);
    const auto at = partitions_.find(name);
    if (at != partitions_.end()) {
      partition = std::move(at->second);
      partitions_.erase(at);
    }
    recovery_points_.erase(name);
    log_starts_.erase(name);
  }
  if (!partition) return done(kafka::Error(ErrorCode::unknown_topic_or_partition));
  // Apache's form, cut to what a file name may have: `topic-partition.<uuid without dashes>-delete`.
  auto unique = kafka::Uuid::random().to_string();
  std::replace(unique.begin(), unique.end(), '-', '_');
  constexpr std::size_t name_bytes_max = 255;
  const auto tail = "." + unique + std::string(delete_suffix);
  const auto home = path() + "/" + partition_directory(name);
  const auto gone = path() + "/" + partition_directory(name).substr(0, name_bytes_max - tail.size()) + tail;
  auto& executor = partition->executor();
  executor.post([this, failure = failure_, partition, home, gone, delay, done = std::move(done)]() mutable {
    partition->abandon(ErrorCode::unknown_topic_or_partition);
    partition->parts_.io->submit(partition->write_queue_, [failure, partition, home, gone, delay, io = &io_,
                                                           queue = queue_, done = std::move(done)]() mutable {
      const auto renamed = io->files().rename(home, gone);
      auto& back = partition->executor();
      back.post([failure, partition, gone, delay, io, queue, renamed, done = std::move(done)] {
        if (!renamed) {
          const std::scoped_lock lock(failure->mutex);
          if (failure->directory) failure->directory->fail(renamed.error());
          return done(storage_error(renamed.error()));
        }
        partition->executor().post_at(partition->parts_.clock->now() + delay, [io, queue, gone] {
          io->submit(queue, [io, gone] {
            if (const auto removed = io->files().remove_all(gone); !removed)
              log::warn("log", "{}", removed.error().text);
          });
        });
        // Made again with the same id it must not get the bytes of now from a replay.
        const auto& journal = partition->parts_.journal;
        if (!journal) return done({});
        journal->when_past(journal->end(), [done](bool) { done({}); });
      });
    });
  });
}

IoResult<void> LogDirectory::write_checkpoint_files() {
  // One writer at a time, so that the files hold what was published last.
  const std::scoped_lock writing(checkpoint_mutex_);
  Checkpoint recovery;
  Checkpoint starts;
  Checkpoint high_watermarks;
  for (const auto& partition : partitions()) {
    recovery[partition->name()] = partition->checkpoint_recovery_point();
    high_watermarks[partition->name()] = partition->published_high_watermark();
    if (partition->published_log_start() > kafka::Offset(0))
      starts[partition->name()] = partition->published_log_start();
  }
  for (const auto& [name, checkpoint] :
       {std::pair{recovery_point_file, &recovery}, {log_start_file, &starts}, {high_watermark_file, &high_watermarks}})
    if (auto done = write_checkpoint(io_.files(), path() + "/" + std::string(name), *checkpoint); !done) return done;
  return {};
}

void LogDirectory::write_checkpoints(std::function<void(ResultOf<void, kafka::Error>)> done) {
  io_.submit(queue_, [this, failure = failure_, done = std::move(done)] {
    IoResult<void> written;
    {
      const std::scoped_lock lock(failure->mutex);
      if (!failure->directory) return;
      if (offline()) written = IoError(EIO, offline_reason());
      if (written) written = write_checkpoint_files();
      if (!written) fail(written.error());
    }
    done(written ? ResultOf<void, kafka::Error>() : ResultOf<void, kafka::Error>(storage_error(written.error())));
  });
}

void LogDirectory::close(std::int64_t broker_epoch, std::function<void(ResultOf<void, kafka::Error>)> done) {
  struct Closing {
    std::atomic<std::size_t> left;
    std::atomic<bool> failed{false};
    std::function<void(ResultOf<void, kafka::Error>)> done;
  };
  auto closing = std::make_shared<Closing>();
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  const auto all = partitions();
  closing->left = all.size() + 1;
  closing->done = std::move(done);
  const auto finish = [this, closing, broker_epoch] {
    if (closing->left.fetch_sub(1) != 1) return;
    io_.submit(queue_, [this, closing, broker_epoch] {
      if (offline() || closing->failed)
        return closing->done(kafka::Error(ErrorCode::kafka_storage_error, offline_reason()));
      auto written = write_checkpoint_files();
      {
        const std::scoped_lock lock(journals_mutex_);
        for (const auto& [executor, journal] : journals_)
          if (written && journal) written = journal->remove();
      }
      const auto text = fmt::format("{{\"version\":0,\"brokerEpoch\":{}}}", broker_epoch);
      if (written)
        written =
            replace_file(io_.files(), path() + "/" + std::string(clean_shutdown_file), as_bytes(text), Durable::now);
      if (!written) {
        fail(written.error());
        return closing->done(storage_error(written.error()));
      }
      closing->done({});
    });
  };
  for (const auto& partition : all) {
    partition->executor().post([partition, closing, finish] {
      partition->close([closing, finish](const ResultOf<kafka::Offset, kafka::Error>& closed) {
        if (!closed) closing->failed = true;
        finish();
      });
    });
  }
  finish();
}

std::string LogDirectory::offline_reason() const {
  const std::scoped_lock lock(mutex_);
  return offline_reason_;
}

void LogDirectory::on_offline(std::function<void(const std::string&)> call) {
  const std::scoped_lock lock(mutex_);
  on_offline_ = std::move(call);
}

void LogDirectory::fail(const IoError& error) {
  std::function<void(const std::string&)> tell;
  {
    const std::scoped_lock lock(mutex_);
    if (offline_.exchange(true)) return;
    offline_reason_ = fmt::format("Log directory {} is offline: {}", path(), error.text);
    tell = on_offline_;
  }
  log::error("log",
             "{}; its partitions answer KAFKA_STORAGE_ERROR until the broker is restarted with the disk repaired",
             offline_reason());
  for (const auto& partition : partitions())
    partition->executor().post([partition] { partition->abandon(ErrorCode::kafka_storage_error); });
  if (tell) tell(offline_reason());
}

}  // namespace ciuic::broker
