// Running changes one after the other: records, durable, applied, published, answered. What each change decides is in
// local_decisions.cpp.
#include "broker/metadata/local_controller.h"

#include <fmt/core.h>

#include <algorithm>

#include "broker/metadata/metadata_records.h"
#include "transport/base/log.h"
#include "transport/kafka/messages/metadata_records.h"

namespace ciuic::broker {
namespace {

// Kafka 4.0's finalized metadata.version (4.0-IV3 of Apache's MetadataVersion).
constexpr std::int16_t metadata_version = 25;

std::vector<Buffer> registration(const LocalController::Parts& parts, const MetadataImage& image, std::int64_t epoch) {
  std::vector<Buffer> records;
  if (image.features().find("metadata.version") == image.features().end()) {
    kafka::FeatureLevelRecord feature;
    feature.name = "metadata.version";
    feature.feature_level = metadata_version;
    records.push_back(encode_metadata(feature));
  }
  kafka::RegisterBrokerRecord broker;
  broker.broker_id = parts.config->node_id;
  broker.broker_epoch = epoch;
  broker.incarnation_id = parts.incarnation;
  broker.fenced = false;
  broker.log_dirs = {parts.directory_id};
  if (!parts.config->rack.empty()) broker.rack = parts.config->rack;
  auto& endpoint = broker.end_points.emplace_back();
  endpoint.name = "PLAINTEXT";
  endpoint.host = parts.host;
  endpoint.port = static_cast<std::uint16_t>(parts.port);
  endpoint.security_protocol = 0;
  records.push_back(encode_metadata(broker));
  return records;
}

/// Apache's controller leaves partitions without a leader when its last broker stops: this one, alone now, leads every
/// partition that it has a replica of. A new leader, a new epoch.
std::vector<Buffer> elections(std::int32_t node_id, const MetadataImage& image) {
  std::vector<Buffer> records;
  for (const auto& [name, topic] : image.topics()) {
    for (std::size_t i = 0; i < topic->partitions.size(); ++i) {
      const auto& state = topic->partitions[i];
      const bool here = std::find(state.replicas.begin(), state.replicas.end(), node_id) != state.replicas.end();
      if (state.leader == node_id || !here) continue;
      kafka::PartitionChangeRecord change;
      change.topic_id = topic->id;
      change.partition_id = static_cast<std::int32_t>(i);
      change.leader = node_id;
      change.isr = {node_id};
      records.push_back(encode_metadata(change));
    }
  }
  return records;
}

bool replay_all(ImageBuilder& builder, const std::vector<Buffer>& records, std::int64_t last_offset) {
  auto offset = last_offset - static_cast<std::int64_t>(records.size()) + 1;
  for (const auto& record : records) {
    if (!builder.replay(record, offset++)) return false;
  }
  return true;
}

}  // namespace

ResultOf<std::unique_ptr<LocalController>, std::string> LocalController::open(Parts parts) {
  ImageBuilder builder;
  auto log = MetadataLog::open(parts.io->files(), parts.log_dir,
                               [&](Bytes record, std::int64_t offset) { return builder.replay(record, offset); });
  if (!log) return log.error();
  const auto before = builder.build();
  const auto known = before->brokers().find(parts.config->node_id);
  if (known == before->brokers().end() || known->second.host != parts.host || known->second.port != parts.port ||
      known->second.rack != parts.config->rack) {
    const auto records = registration(parts, *before, log->next_offset());
    const auto written = log->append(records, parts.clock->wall_ms());
    if (!written) return written.error().text;
    if (!replay_all(builder, records, *written)) return std::string("the broker's own registration does not replay");
  }
  if (const auto records = elections(parts.config->node_id, *builder.build()); !records.empty()) {
    const auto written = log->append(records, parts.clock->wall_ms());
    if (!written) return written.error().text;
    if (!replay_all(builder, records, *written)) return std::string("the broker's own election does not replay");
    log::info("metadata", "leader of partitions that had none count={}", records.size());
  }
  return std::unique_ptr<LocalController>(new LocalController(std::move(parts), std::move(*log), builder.build()));
}

LocalController::LocalController(Parts parts, MetadataLog log, MetadataPointer image)
    : parts_(std::move(parts)),
      log_(std::make_shared<MetadataLog>(std::move(log))),
      image_(std::move(image)),
      queue_(parts_.io->make_queue()) {}

LocalController::~LocalController() { alive_->store(false); }

void LocalController::submit(Change change) {
  parts_.executor->post([this, alive = alive_, change = std::move(change)]() mutable {
    if (!alive->load()) return;
    waiting_.push_back(std::move(change));
    if (!running_) run_next();
  });
}

void LocalController::run_next() {
  if (waiting_.empty()) {
    running_ = false;
    return;
  }
  running_ = true;
  auto change = std::move(waiting_.front());
  waiting_.pop_front();
  auto records = change.decide(*image_.get());
  if (records.empty()) return finish(change, {});
  parts_.io->submit(
      queue_, [this, alive = alive_, log = log_, now = parts_.clock->wall_ms(), executor = parts_.executor,
               change = std::move(change), records = std::move(records)]() mutable {
        auto written = log->append(records, now);
        executor->post([this, alive, change = std::move(change), records = std::move(records), written]() mutable {
          if (alive->load()) durable(std::move(change), std::move(records), written);
        });
      });
}

void LocalController::durable(Change change, std::vector<Buffer> records, IoResult<std::int64_t> written) {
  if (!written) {
    log::bounded(log::Level::error, "metadata", "change refused, the metadata log cannot be written reason=\"{}\"",
                 written.error().text);
    return finish(change, {kafka::ErrorCode::kafka_storage_error, written.error().text});
  }
  const auto previous = image_.get();
  ImageBuilder builder(*previous);
  if (!replay_all(builder, records, *written))
    return finish(change, {kafka::ErrorCode::unknown_server_error, "a record does not replay"});
  auto next = builder.build();
  parts_.apply(
      previous, next,
      [this, alive = alive_, executor = parts_.executor, change = std::move(change), next](kafka::Error error) mutable {
        executor->post(
            [this, alive, change = std::move(change), next = std::move(next), error = std::move(error)]() mutable {
              if (!alive->load()) return;
              image_.set(next);
              finish(change, std::move(error));
            });
      });
}

void LocalController::finish(const Change& change, kafka::Error error) {
  change.done(std::move(error));
  run_next();
}

}  // namespace ciuic::broker
