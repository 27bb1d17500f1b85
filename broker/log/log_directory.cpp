// A log directory: found, checkpointed, stopped, failed. Not here: its start (log_directory_load.cpp), the log of one
// partition (partition.h).
#include "broker/log/log_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "broker/log/checkpoints.h"
#include "broker/log/journal.h"
#include "broker/log/recovery.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

constexpr std::string_view delete_suffix = "-delete";
constexpr std::string_view stray_suffix = "-stray";

kafka::Error storage_error(const IoError& error) { return {ErrorCode::kafka_storage_error, error.text}; }

/// Apache's form for a directory that is out of use, cut to what a file name may have: `topic-partition.<uuid without
/// dashes><suffix>`.
std::string aside_name(const kafka::TopicPartition& name, std::string_view suffix) {
  auto unique = kafka::Uuid::random().to_string();
  std::replace(unique.begin(), unique.end(), '-', '_');
  constexpr std::size_t name_bytes_max = 255;
  const auto tail = "." + unique + std::string(suffix);
  return partition_directory(name).substr(0, name_bytes_max - tail.size()) + tail;
}

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
  if (auto done = read(high_watermark_file, high_watermarks_); !done) return done;
  auto entries = files.list(path());
  if (!entries) return entries.error();
  for (const auto& entry : *entries) {
    if (!entry.is_directory && entry.name.starts_with(journal_file_prefix))
      journals_found_.push_back(path() + "/" + entry.name);
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

CheckpointedOffsets LogDirectory::checkpointed(const kafka::TopicPartition& name) const {
  const std::scoped_lock lock(mutex_);
  const auto in = [&name](const Checkpoint& checkpoint) {
    const auto at = checkpoint.find(name);
    return at == checkpoint.end() ? kafka::Offset(0) : at->second;
  };
  return {in(recovery_points_), in(log_starts_), in(high_watermarks_)};
}

IoResult<std::shared_ptr<Partition>> LogDirectory::open_partition(const kafka::TopicPartition& name,
                                                                  const PartitionPlan& plan,
                                                                  std::optional<kafka::Offset> anew_from) {
  const auto known = checkpointed(name);
  OpenPlan how;
  how.path = path() + "/" + partition_directory(name);
  how.config = plan.config;
  how.clean = was_clean_;
  how.recovery_point = anew_from.value_or(known.recovery_point);
  how.log_start = anew_from.value_or(known.log_start);
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

/// A directory in the place of a new partition that is not its own: another topic's records must not become its.
IoResult<void> LogDirectory::move_stray_aside(const kafka::TopicPartition& name, const kafka::TopicId& id) {
  auto& files = io_.files();
  const auto home = path() + "/" + partition_directory(name);
  const auto exists = files.exists(home);
  if (!exists) return exists.error();
  if (!*exists) return {};
  const auto text = read_file(files, home + "/" + std::string(partition_metadata_file));
  if (!text && text.error().number != ENOENT) return text.error();
  if ((text ? parse_partition_metadata(as_text(*text)) : std::nullopt).value_or(kafka::TopicId{}) == id) return {};
  const auto aside = path() + "/" + aside_name(name, stray_suffix);
  log::warn("log", "{} is no directory of the new topic and is moved to {}; delete it if nobody needs it", home, aside);
  return files.rename(home, aside);
}

ResultOf<std::shared_ptr<Partition>, kafka::Error> LogDirectory::create(const kafka::TopicPartition& name,
                                                                        const PartitionPlan& plan) {
  if (offline()) return kafka::Error(ErrorCode::kafka_storage_error, offline_reason());
  if (find(name))
    return kafka::Error(ErrorCode::topic_already_exists, partition_directory(name) + " exists in " + path());
  auto& files = io_.files();
  const auto home = path() + "/" + partition_directory(name);
  const auto make = [&]() -> IoResult<std::shared_ptr<Partition>> {
    if (auto moved = move_stray_aside(name, plan.topic_id); !moved) return moved.error();
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
    for (auto* checkpoint : {&recovery_points_, &log_starts_, &high_watermarks_}) checkpoint->erase(name);
  }
  if (!partition) return done(kafka::Error(ErrorCode::unknown_topic_or_partition));
  const auto home = path() + "/" + partition_directory(name);
  const auto gone = path() + "/" + aside_name(name, delete_suffix);
  auto& executor = partition->executor();
  executor.post([this, failure = failure_, partition, home, gone, delay, done = std::move(done)]() mutable {
    partition->abandon(ErrorCode::unknown_topic_or_partition);
    partition->parts_.io->submit(partition->write_queue_, [failure, partition, home, gone, delay, io = &io_,
                                                           queue = queue_, done = std::move(done)]() mutable {
      const auto renamed = io->files().rename(home, gone);
      auto& back = partition->executor();
      back.post([failure, partition, gone, delay, io, queue, renamed, done = std::move(done)] {
        if (!renamed && !(partition->lost_ && renamed.error().number == ENOENT)) {
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
    if (partition->lost_) {  // what proves that records are missing stays
      const std::scoped_lock lock(mutex_);
      for (const auto& [from, to] :
           {std::pair{&recovery_points_, &recovery}, {&log_starts_, &starts}, {&high_watermarks_, &high_watermarks}})
        if (const auto at = from->find(partition->name()); at != from->end()) to->insert(*at);
      continue;
    }
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
  auto all = partitions();
  const auto lost = std::erase_if(all, [](const auto& partition) { return partition->lost_; });
  closing->left = all.size() + 1;
  closing->done = std::move(done);
  const auto finish = [this, closing, broker_epoch, lost] {
    if (closing->left.fetch_sub(1) != 1) return;
    io_.submit(queue_, [this, closing, broker_epoch, lost] {
      if (offline() || closing->failed)
        return closing->done(kafka::Error(ErrorCode::kafka_storage_error, offline_reason()));
      auto written = write_checkpoint_files();
      {
        const std::scoped_lock lock(journals_mutex_);
        for (const auto& [executor, journal] : journals_)
          if (written && journal) written = journal->remove();
      }
      const auto text = fmt::format("{{\"version\":0,\"brokerEpoch\":{}}}", broker_epoch);
      if (lost > 0)  // files that are put back are to be scanned
        log::info("log", "stopped without the mark of a clean stop: {} partitions lack files path={}", lost, path());
      else if (written)
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
