// The world of the simulation: draws, then lets things happen in an order by its seed.
#include "tests/sim/support/sim_world.h"

#include <algorithm>

namespace ciuic::sim {

using broker::Exposure;
using kafka::Offset;

broker::ArenaConfig SimWorld::draw_arena(std::mt19937_64& dice) {
  broker::ArenaConfig config;
  config.chunk_bytes_min = 4096;
  config.chunk_bytes_max = 4096U << (dice() % 4);
  config.extent_bytes = 8U << 20;
  // From hopeless pressure to ease.
  config.budget_bytes = (64ULL << 10) << (dice() % 6);
  return config;
}

SimWorld::SimWorld(std::uint64_t seed) : dice_(seed), log_(seed * 7919 + 1, draw_arena(dice_), &forward_) {
  faults_->dice.seed(seed * 104729 + 3);
  const auto maybe = [this](int most) {
    return chance(400) ? 1 + static_cast<int>(roll(static_cast<std::uint64_t>(most))) : 0;
  };
  auto& plan = faults_->plan;
  plan.delay = maybe(300);
  plan.torn = maybe(200);
  plan.short_success = maybe(100);
  plan.garbage = maybe(100);
  plan.error = maybe(20);
  plan.disconnect = maybe(20);
  plan.lost = maybe(10);
  plan.revoke_in_flight = maybe(10);
  weight_append_ = 5 + static_cast<int>(roll(40));
  weight_time_ = 2 + static_cast<int>(roll(20));
  rate_restart_ = maybe(8);
  rate_evict_ = maybe(60);
  rate_delete_ = maybe(10);
  rate_retention_ = maybe(30);
  rate_freeze_ = maybe(20);
  rate_cut_ = maybe(15);
  rate_deny_ = maybe(10);
  rate_transaction_ = chance(500) ? 300 : 0;

  config_.segment_bytes = 2048 << roll(4);
  config_.index_interval_bytes = 512;
  config_.retention_bytes =
      rate_retention_ > 0 ? static_cast<std::int64_t>(8192U << roll(4)) : broker::LogConfig::unlimited;
  config_.file_delete_delay_ms = 1000;
  log_.limits.read_ahead_bytes = 4096;
  settings_.providers = {"memory"};
  settings_.lease_ms = 200 << roll(4);
  settings_.read_ms_max = 100;
  settings_.read_ahead_bytes = 1024 << roll(5);
  settings_.chunks_per_grant_max = 1 + static_cast<std::uint32_t>(roll(8));
  settings_.retry_after_ms = 20;

  broker_provider_ = rdma::make_memory_provider(fabric_, log_.clock);
  client_provider_ = testing::make_faulty(broker_provider_, faults_);
  faults_->on_revoke = [this] {
    // The broker takes a principal's rights away while a READ is on its way.
    if (exposure_) exposure_->revoke_principal("User:c" + std::to_string(roll(3)));
  };
  log_.start();
  log_.config = config_;
  topic_ = log_.create("t", 0, config_)->topic_id();
  start_exposure();
  const auto readers = 1 + roll(3);
  for (std::uint64_t i = 0; i < readers; ++i) add_client();
}

SimWorld::~SimWorld() {
  for (auto& consumer : consumers_) consumer.client->broker_gone();
  consumers_.clear();
  stop_exposure(false);
}

void SimWorld::start_exposure() {
  Exposure::Parts parts;
  parts.settings = settings_;
  parts.clock = &log_.clock;
  parts.home = &log_.executor;
  parts.executors = {&log_.executor};
  parts.providers = {broker_provider_};
  parts.arena = log_.arena;
  parts.lookup.find = [this](const kafka::TopicId& topic, kafka::PartitionIndex index) {
    return topic == topic_ && index.value == 0 ? log_.find("t") : nullptr;
  };
  parts.lookup.may_read = [this](const std::string&, const std::string&) { return may_read_; };
  exposure_ = std::make_unique<Exposure>(std::move(parts));
  forward_.to = exposure_.get();
}

void SimWorld::stop_exposure(bool clean) {
  if (!exposure_) return;
  if (clean) {
    bool closed = false;
    exposure_->close([&closed] { closed = true; });
    log_.settle();
    if (!closed) difference_ = "the exposure did not close";
  }
  const auto& metrics = exposure_->metrics();
  totals_.grants += static_cast<std::uint64_t>(metrics.grants_total.load());
  totals_.renewals += static_cast<std::uint64_t>(metrics.renewals_total.load());
  for (const auto& one : metrics.revocations) totals_.revocations += static_cast<std::uint64_t>(one.load());
  forward_.to = nullptr;
  if (!clean) {
    log_.io.drop_all();
    log_.executor.drop_all();
  }
  exposure_.reset();
}

void SimWorld::restart(bool clean) {
  ++totals_.restarts;
  for (auto& consumer : consumers_) consumer.client->broker_gone();
  open_.clear();
  stop_exposure(clean);
  // Readers try to read from a broker that is not there.
  for (auto& consumer : consumers_)
    if (auto wrong = consumer.client->step({})) difference_ = *wrong;
  if (clean)
    log_.restart();
  else
    log_.crash();
  start_exposure();
  end_transactions();
}

BrokerSide SimWorld::side() { return {exposure_.get(), log_.find("t"), topic_}; }

void SimWorld::append() {
  const auto partition = log_.find("t");
  std::optional<Open*> transaction;
  if (chance(rate_transaction_)) {
    if (open_.empty() || chance(300)) open_.push_back({kafka::ProducerId(next_producer_++), 0});
    transaction = &open_[roll(open_.size())];
  }
  const int records = 1 + static_cast<int>(roll(chance(50) ? 60 : 6));
  const auto id = transaction ? std::optional((*transaction)->id) : std::nullopt;
  const int number = model_.add(records, id);
  const auto key = std::to_string(number);
  kafka::RecordBatchBuilder builder;
  for (int i = 0; i < records; ++i) {
    kafka::RecordToWrite record;
    record.timestamp = log_.clock.wall_ms();
    auto value = std::to_string(i);
    value.resize(value.size() + roll(chance(30) ? 400 : 40), ' ');
    record.key = as_bytes(key);
    record.value = as_bytes(value);
    builder.add(record);
  }
  kafka::BatchHeader header;
  if (chance(100)) header.codec = kafka::Codec::lz4;
  if (transaction) {
    header.producer_id = (*transaction)->id;
    header.producer_epoch = kafka::ProducerEpoch(0);
    header.base_sequence = (*transaction)->sequence;
    header.transactional = true;
    (*transaction)->sequence += records;
  }
  Buffer out;
  if (!builder.finish(header, out)) std::abort();
  partition->append(out, {broker::AppendOrigin::client, kafka::LeaderEpoch(0)},
                    [this, number](const ResultOf<broker::AppendResult, broker::AppendError>& result) {
                      if (result) model_.acknowledged(number, result->base_offset);
                    });
  ++totals_.appended;
  if (!open_.empty() && chance(150)) {
    const auto at = roll(open_.size());
    const bool commit = chance(500);
    model_.transaction_ends(open_[at].id, commit);
    partition->append(broker::testing::make_marker(open_[at].id, kafka::ProducerEpoch(0), commit, 0),
                      {broker::AppendOrigin::coordinator, kafka::LeaderEpoch(0)},
                      [this](const ResultOf<broker::AppendResult, broker::AppendError>& result) {
                        if (result) model_.marker_acknowledged(result->base_offset);
                      });
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

/// After a restart: the coordinator aborts what was left open.
void SimWorld::end_transactions() {
  const auto partition = log_.find("t");
  std::vector<kafka::ProducerId> left;
  for (const auto& [id, producer] : partition->producers().producers())
    if (producer.transaction_first) left.push_back(id);
  std::sort(left.begin(), left.end());
  for (const auto id : left) {
    model_.transaction_ends(id, false);
    partition->append(broker::testing::make_marker(id, kafka::ProducerEpoch(0), false, 0),
                      {broker::AppendOrigin::coordinator, kafka::LeaderEpoch(0)}, [](const auto&) {});
  }
}

void SimWorld::add_client() {
  onesided::ReaderLimits limits;
  limits.read_bytes = 128U << roll(8);
  limits.read_timeout = Milliseconds(80);
  limits.batch_bytes_max = 1U << 20;
  const auto isolation = chance(400) ? kafka::Isolation::read_committed : kafka::Isolation::read_uncommitted;
  consumers_.push_back(
      {std::make_unique<SimClient>(client_provider_, log_.clock, dice_, model_, "User:c" + std::to_string(roll(3)),
                                   next_connection_++, isolation, limits)});
}

void SimWorld::background(std::size_t steps) {
  for (std::size_t i = 0; i < steps && log_.step(); ++i) {
  }
}

bool SimWorld::clients(bool frozen_stay) {
  for (auto& consumer : consumers_) {
    if (frozen_stay && consumer.frozen_steps > 0) {
      --consumer.frozen_steps;
      continue;
    }
    if (auto wrong = consumer.client->step(side())) {
      difference_ = *wrong;
      return false;
    }
  }
  return true;
}

bool SimWorld::step() {
  ++totals_.steps;
  for (auto n = roll(static_cast<std::uint64_t>(weight_append_)) / 10; n > 0; --n) append();
  background(roll(12));
  log_.clock.advance(std::chrono::microseconds(roll(static_cast<std::uint64_t>(weight_time_) * 1000)));
  if (chance(20)) log_.clock.advance(Milliseconds(roll(static_cast<std::uint64_t>(settings_.lease_ms) * 2)));
  if (chance(rate_restart_)) restart(chance(500));
  if (!difference_.empty()) return false;
  if (chance(rate_evict_)) log_.arena->relieve();
  if (chance(rate_retention_)) log_.find("t")->maintain();
  if (chance(rate_delete_)) {
    const auto partition = log_.find("t");
    const auto start = partition->log_start_offset().value;
    const auto span = partition->high_watermark().value - start;
    if (span > 0)
      partition->delete_records(Offset(start + static_cast<std::int64_t>(roll(static_cast<std::uint64_t>(span)))),
                                [](const auto&) {});
  }
  if (chance(rate_deny_)) may_read_ = !may_read_;
  auto& some = consumers_[roll(consumers_.size())];
  if (chance(rate_freeze_)) some.frozen_steps = static_cast<int>(roll(60));
  if (chance(rate_cut_)) {
    if (chance(500))
      exposure_->connection_closed(some.client->connection());
    else
      exposure_->revoke_principal("User:c" + std::to_string(roll(3)));
  }
  if (chance(5)) {
    const auto partition = log_.find("t");
    const auto start = partition->log_start_offset().value;
    const auto span = partition->high_watermark().value - start + 1;
    some.client->seek(Offset(start + static_cast<std::int64_t>(roll(static_cast<std::uint64_t>(span)))));
  }
  for (auto n = 1 + roll(4); n > 0; --n)
    if (!clients(true)) return false;
  return difference_.empty();
}

bool SimWorld::finish() {
  faults_->enabled = false;
  may_read_ = true;
  end_transactions();
  open_.clear();
  log_.settle();
  const auto partition = log_.find("t");
  for (int round = 0; round < 20000; ++round) {
    log_.clock.advance(Milliseconds(5));
    log_.settle();
    if (!clients(false)) return false;
    const auto end = [&](const SimClient& client) {
      return client.isolation() == kafka::Isolation::read_committed ? partition->last_stable_offset()
                                                                    : partition->high_watermark();
    };
    if (std::all_of(consumers_.begin(), consumers_.end(),
                    [&](const Consumer& one) { return one.client->position() >= end(*one.client); })) {
      for (const auto& one : consumers_) {
        if (one.client->position().value < model_.acknowledged_end())
          difference_ = "acknowledged records were never delivered";
        totals_.one_sided += one.client->batches_one_sided();
        totals_.fetched += one.client->batches_fetched();
      }
      if (difference_.empty() && !log_.offline_reasons.empty())
        difference_ = "the log went offline: " + log_.offline_reasons.front();
      return difference_.empty();
    }
  }
  difference_ = "a reader stands still at";
  for (const auto& one : consumers_) difference_ += " " + std::to_string(one.client->position().value);
  difference_ += " of " + std::to_string(partition->high_watermark().value);
  return false;
}

SimWorld::Totals SimWorld::totals() const {
  auto totals = totals_;
  for (const auto& [what, count] : faults_->injected) totals.faults += count;
  if (exposure_) {
    const auto& metrics = exposure_->metrics();
    totals.grants += static_cast<std::uint64_t>(metrics.grants_total.load());
    totals.renewals += static_cast<std::uint64_t>(metrics.renewals_total.load());
    for (const auto& one : metrics.revocations) totals.revocations += static_cast<std::uint64_t>(one.load());
  }
  return totals;
}

}  // namespace ciuic::sim
