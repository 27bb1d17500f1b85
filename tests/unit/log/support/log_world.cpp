// A log directory on one thread for tests: see the header.
#include "tests/unit/log/support/log_world.h"

#include <algorithm>

#include "broker/log/stored_batch.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker::testing {

std::uint64_t seed_from_env(std::uint64_t fallback) {
  const char* text = std::getenv("CIUIC_SEED");
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

Buffer make_batch(const BatchOf& batch) {
  kafka::RecordBatchBuilder builder;
  for (int i = 0; i < batch.records; ++i) {
    auto value = "v" + std::to_string(i);
    value.resize(std::max(value.size(), batch.value_bytes), '.');
    kafka::RecordToWrite record;
    record.timestamp = batch.timestamp + i;
    if (!batch.null_key) record.key = as_bytes(batch.key);
    if (!batch.null_value) record.value = as_bytes(value);
    builder.add(record);
  }
  kafka::BatchHeader header;
  header.codec = batch.codec;
  header.producer_id = batch.producer_id;
  header.producer_epoch = batch.producer_epoch;
  header.base_sequence = batch.base_sequence;
  header.transactional = batch.transactional;
  Buffer out;
  if (!builder.finish(header, out)) std::abort();
  return out;
}

Buffer make_marker(kafka::ProducerId id, kafka::ProducerEpoch epoch, bool commit, std::int32_t coordinator_epoch,
                   std::int64_t timestamp) {
  kafka::BatchHeader header;
  header.producer_id = id;
  header.producer_epoch = epoch;
  header.transactional = true;
  header.control = true;
  Buffer out;
  kafka::append_end_transaction_marker(out, header, commit ? kafka::ControlType::commit : kafka::ControlType::abort,
                                       coordinator_epoch, timestamp);
  return out;
}

ArenaConfig LogWorld::small_arena() {
  ArenaConfig config;
  config.budget_bytes = 64U << 20;
  config.chunk_bytes_min = 4096;
  config.chunk_bytes_max = 1U << 20;
  config.extent_bytes = 16U << 20;
  return config;
}

LogWorld::LogWorld(std::uint64_t seed, ArenaConfig arena_settings, LogObserver* listener)
    : random(seed), arena_config(arena_settings), arena(Arena::make(arena_settings)), observer(listener) {
  limits.journal_bytes = 0;
}

LogWorld::~LogWorld() {
  io.drop_all();
  executor.drop_all();
}

void LogWorld::start() {
  LogDirectorySettings settings;
  settings.path = "/logs";
  settings.limits = limits;
  settings.recovery_threads = 1;
  settings.checks = checks;
  auto opened = LogDirectory::open(settings, arena, io, clock, observer);
  if (!opened) std::abort();
  directory = std::move(*opened);
  directory->on_offline([this](const std::string& reason) { offline_reasons.push_back(reason); });
  const auto loaded = directory->load(
      [this](const FoundPartition& found) {
        const auto named = known.find(found.name);
        const auto id = found.topic_id.value_or(named == known.end() ? kafka::TopicId{} : named->second);
        return std::optional(PartitionPlan{id, config, &executor});
      },
      [this](const kafka::PartitionId& id) {
        return std::any_of(known.begin(), known.end(), [&](const auto& one) {
          return one.second == id.topic && one.first.partition == id.partition;
        });
      });
  if (!loaded) std::abort();
  for (const auto& [name, id] : known)
    if (!directory->find(name)) (void)directory->hold_missing(name, {id, config, &executor});
  if (!directory->settle()) std::abort();
}

std::shared_ptr<Partition> LogWorld::create(const std::string& topic, std::int32_t partition, LogConfig topic_config) {
  config = topic_config;
  auto made = directory->create({topic, kafka::PartitionIndex(partition)},
                                PartitionPlan{kafka::Uuid::random(), topic_config, &executor});
  if (!made) std::abort();
  known[(*made)->name()] = (*made)->topic_id();
  return *made;
}

std::shared_ptr<Partition> LogWorld::find(const std::string& topic, std::int32_t partition) {
  return directory->find({topic, kafka::PartitionIndex(partition)});
}

bool LogWorld::step() {
  if (!io.idle() && random() % 2 == 0) return io.run_one(random);
  return executor.run_one() || io.run_one(random);
}

void LogWorld::settle() {
  while (step()) {
  }
}

void LogWorld::advance(Milliseconds by) {
  clock.advance(by);
  settle();
}

void LogWorld::restart() {
  bool closed = false;
  directory->close(7, [&closed](const ResultOf<void, kafka::Error>& done) { closed = done.has_value(); });
  settle();
  if (!closed) std::abort();
  directory.reset();
  start();
}

void LogWorld::crash(bool machine_too) {
  io.drop_all();
  executor.drop_all();
  directory.reset();
  if (machine_too) disk.lose_unsynced(random);
  start();
}

ResultOf<AppendResult, AppendError> LogWorld::append(Partition& partition, Bytes batch, AppendOptions options) {
  std::optional<ResultOf<AppendResult, AppendError>> answer;
  partition.append(batch, options,
                   [&answer](ResultOf<AppendResult, AppendError> result) { answer = std::move(result); });
  settle();
  if (!answer) std::abort();
  return *answer;
}

ResultOf<ReadResult, kafka::Error> LogWorld::read(Partition& partition, ReadRequest request) {
  for (int tries = 0; tries < 100; ++tries) {
    auto result = partition.read(request);
    if (!result || !result->miss || result->bytes > 0) return result;
    std::optional<kafka::Error> failed;
    partition.bring_in(*result->miss, request.max_bytes, MemoryFor::fetch, [&failed](const auto& loaded) {
      if (!loaded) failed = loaded.error();
    });
    settle();
    if (failed) return *failed;
  }
  return kafka::Error(kafka::ErrorCode::request_timed_out);
}

std::vector<std::int64_t> LogWorld::offsets(Partition& partition, kafka::Offset from, Isolation isolation) {
  std::vector<std::int64_t> seen;
  ReadRequest request;
  request.offset = from;
  request.isolation = isolation;
  while (true) {
    const auto result = read(partition, request);
    if (!result || result->bytes == 0) return seen;
    for (auto span : result->spans) {
      while (!span.empty()) {
        const auto batch = kafka::RecordBatchView::parse(span);
        if (!batch || !batch->crc_valid()) std::abort();
        Buffer scratch;
        auto reader = kafka::RecordReader::open(*batch, scratch, 1U << 30);
        if (!reader) std::abort();
        while (const auto record = reader->next())
          if (record->offset >= from) seen.push_back(record->offset.value);
        request.offset = batch->next_offset();
        span = span.subspan(batch->size());
      }
    }
  }
}

ResultOf<OffsetAtTime, kafka::Error> LogWorld::find_time(Partition& partition, std::int64_t timestamp) {
  std::optional<ResultOf<OffsetAtTime, kafka::Error>> answer;
  partition.offset_for_time(timestamp, Isolation::read_uncommitted, [&answer](const auto& found) { answer = found; });
  settle();
  if (!answer) std::abort();
  return *answer;
}

}  // namespace ciuic::broker::testing
