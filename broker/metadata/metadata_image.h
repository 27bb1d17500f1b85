#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "broker/settings/settings.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

struct PartitionImage {
  std::int32_t leader = -1;  // node id; -1: none
  kafka::LeaderEpoch leader_epoch{0};
  std::int32_t partition_epoch = 0;
  std::vector<std::int32_t> replicas;
  std::vector<std::int32_t> isr;
  std::vector<kafka::Uuid> directories;  // beside replicas (KIP-858)
};

struct TopicImage {
  std::string name;
  kafka::TopicId id;
  std::vector<PartitionImage> partitions;  // by partition index
  [[nodiscard]] const PartitionImage* partition(kafka::PartitionIndex index) const {
    return index.value >= 0 && static_cast<std::size_t>(index.value) < partitions.size()
               ? &partitions[static_cast<std::size_t>(index.value)]
               : nullptr;
  }
};

struct BrokerImage {
  std::int32_t id = 0;
  std::int64_t epoch = 0;
  std::string host;
  std::int32_t port = 0;
  std::string rack;
  bool fenced = false;
};

/// What the cluster looks like at one point of the metadata log. Immutable: handlers take a pointer and keep it for the
/// request. Built only by replaying KRaft metadata records (`MetadataImage::Builder`).
class MetadataImage {
 public:
  [[nodiscard]] const TopicImage* topic(std::string_view name) const;
  [[nodiscard]] const TopicImage* topic(const kafka::TopicId& id) const;
  [[nodiscard]] const std::map<std::string, std::shared_ptr<const TopicImage>, std::less<>>& topics() const {
    return topics_;
  }
  [[nodiscard]] const std::map<std::int32_t, BrokerImage>& brokers() const { return brokers_; }
  /// Keys set on a topic; empty if none.
  [[nodiscard]] const Overrides& topic_config(std::string_view name) const;
  /// Keys set on a broker while it ran; by id as text, "" for all brokers. Empty if none.
  [[nodiscard]] const Overrides& broker_config(std::string_view name) const;
  /// Last offset of the metadata log that is in here.
  [[nodiscard]] std::int64_t offset() const { return offset_; }
  [[nodiscard]] std::int64_t next_producer_id() const { return next_producer_id_; }
  /// Finalized features, `metadata.version` among them (KIP-584).
  [[nodiscard]] const std::map<std::string, std::int16_t>& features() const { return features_; }

 private:
  friend class ImageBuilder;
  std::map<std::string, std::shared_ptr<const TopicImage>, std::less<>> topics_;
  std::unordered_map<kafka::TopicId, std::shared_ptr<const TopicImage>> by_id_;
  std::map<std::string, Overrides, std::less<>> topic_configs_;
  std::map<std::string, Overrides, std::less<>> broker_configs_;
  std::map<std::int32_t, BrokerImage> brokers_;
  std::map<std::string, std::int16_t> features_;
  std::int64_t next_producer_id_ = 0;
  std::int64_t offset_ = -1;
};
using MetadataPointer = std::shared_ptr<const MetadataImage>;

/// Replays records onto an image. One thread.
class ImageBuilder {
 public:
  ImageBuilder() = default;
  explicit ImageBuilder(const MetadataImage& from) : image_(from) {}
  /// Takes in one record's value (frame version, type, version, fields). Records that concern what is not kept here
  /// (ACLs, quotas) pass; false for bytes that are no metadata record: the log is damaged.
  [[nodiscard]] bool replay(Bytes record, std::int64_t offset);
  /// What was built stays as it is, whatever is replayed afterwards.
  [[nodiscard]] MetadataPointer build() {
    own_.clear();
    return std::make_shared<const MetadataImage>(image_);
  }

 private:
  TopicImage* change(const kafka::TopicId& id);
  void put(TopicImage topic);
  MetadataImage image_;
  std::unordered_map<kafka::TopicId, std::shared_ptr<TopicImage>> own_;  // in no image yet: changed where they are
};

}  // namespace ciuic::broker
