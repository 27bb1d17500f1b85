// Replay of metadata records into the image. Not here: where records come from (local_controller.h).
#include "broker/metadata/metadata_image.h"

#include <limits>

#include "transport/kafka/messages/metadata_records.h"

namespace ciuic::broker {
namespace {
constexpr std::int8_t topic_resource = 2;
constexpr std::int8_t broker_resource = 4;

const Overrides& config_of(const std::map<std::string, Overrides, std::less<>>& configs, std::string_view name) {
  static const Overrides none;
  const auto found = configs.find(name);
  return found == configs.end() ? none : found->second;
}
}  // namespace

const TopicImage* MetadataImage::topic(std::string_view name) const {
  const auto found = topics_.find(name);
  return found == topics_.end() ? nullptr : found->second.get();
}

const TopicImage* MetadataImage::topic(const kafka::TopicId& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second.get();
}

const Overrides& MetadataImage::topic_config(std::string_view name) const { return config_of(topic_configs_, name); }
const Overrides& MetadataImage::broker_config(std::string_view name) const { return config_of(broker_configs_, name); }

TopicImage* ImageBuilder::change(const kafka::TopicId& id) {
  const auto found = image_.by_id_.find(id);
  if (found == image_.by_id_.end()) return nullptr;
  auto& own = own_[id];
  if (!own) {
    // Once for all records of this topic: a copy for each would be quadratic in its partitions.
    own = std::make_shared<TopicImage>(*found->second);
    image_.topics_[own->name] = own;
    found->second = own;
  }
  return own.get();
}

void ImageBuilder::put(TopicImage topic) {
  auto shared = std::make_shared<TopicImage>(std::move(topic));
  own_[shared->id] = shared;
  image_.by_id_[shared->id] = shared;
  image_.topics_[shared->name] = shared;
}

bool ImageBuilder::replay(Bytes record, std::int64_t offset) {
  kafka::WireReader in(record);
  const auto frame_version = in.uvarint();
  const auto key = in.uvarint();
  const auto version = static_cast<std::int16_t>(in.uvarint());
  if (!in.ok() || frame_version != 1) return false;
  const auto body = in.rest();
  bool sane = true;
  // Each branch decodes its record, or says that the bytes are damaged.
  const auto with = [&]<class Record>(Record, auto&& apply) {
    auto decoded = kafka::decode<Record>(body, version);
    if (!decoded) return false;
    apply(*decoded);
    return sane;
  };
  image_.offset_ = offset;
  switch (key) {
    case kafka::TopicRecord::api_key:
      return with(kafka::TopicRecord{}, [&](const kafka::TopicRecord& r) { put({r.name, r.topic_id, {}}); });
    case kafka::PartitionRecord::api_key:
      return with(kafka::PartitionRecord{}, [&](const kafka::PartitionRecord& r) {
        auto* const topic = change(r.topic_id);
        if (topic == nullptr || r.partition_id < 0 || r.partition_id > 1'000'000) return;
        const auto index = static_cast<std::size_t>(r.partition_id);
        if (topic->partitions.size() <= index) topic->partitions.resize(index + 1);
        topic->partitions[index] = {
            r.leader, kafka::LeaderEpoch(r.leader_epoch), r.partition_epoch, r.replicas, r.isr, r.directories};
      });
    case kafka::PartitionChangeRecord::api_key:
      return with(kafka::PartitionChangeRecord{}, [&](const kafka::PartitionChangeRecord& r) {
        auto* const topic = change(r.topic_id);
        if (topic == nullptr || r.partition_id < 0 ||
            static_cast<std::size_t>(r.partition_id) >= topic->partitions.size())
          return;
        auto& partition = topic->partitions[static_cast<std::size_t>(r.partition_id)];
        constexpr auto epoch_max = std::numeric_limits<std::int32_t>::max();
        if (partition.leader_epoch.value == epoch_max || partition.partition_epoch == epoch_max) {
          sane = false;  // there is no next one
          return;
        }
        if (r.isr) partition.isr = *r.isr;
        if (r.replicas) partition.replicas = *r.replicas;
        if (r.directories) partition.directories = *r.directories;
        if (r.leader != -2) {  // -2: unchanged
          partition.leader = r.leader;
          partition.leader_epoch = partition.leader_epoch + 1;
        }
        ++partition.partition_epoch;
      });
    case kafka::RemoveTopicRecord::api_key:
      return with(kafka::RemoveTopicRecord{}, [&](const kafka::RemoveTopicRecord& r) {
        const auto found = image_.by_id_.find(r.topic_id);
        if (found == image_.by_id_.end()) return;
        image_.topic_configs_.erase(found->second->name);
        image_.topics_.erase(found->second->name);
        own_.erase(found->first);
        image_.by_id_.erase(found);
      });
    case kafka::ConfigRecord::api_key:
      return with(kafka::ConfigRecord{}, [&](const kafka::ConfigRecord& r) {
        if (r.resource_type != topic_resource && r.resource_type != broker_resource) return;
        auto& config =
            (r.resource_type == topic_resource ? image_.topic_configs_ : image_.broker_configs_)[r.resource_name];
        if (r.value) {
          config[r.name] = *r.value;
        } else {
          config.erase(r.name);
        }
      });
    case kafka::RegisterBrokerRecord::api_key:
      return with(kafka::RegisterBrokerRecord{}, [&](const kafka::RegisterBrokerRecord& r) {
        BrokerImage broker{r.broker_id, r.broker_epoch, {}, 0, r.rack ? *r.rack : std::string(), r.fenced};
        if (!r.end_points.empty()) {
          broker.host = r.end_points.front().host;
          broker.port = r.end_points.front().port;
        }
        image_.brokers_[r.broker_id] = broker;
      });
    case kafka::UnregisterBrokerRecord::api_key:
      return with(kafka::UnregisterBrokerRecord{},
                  [&](const kafka::UnregisterBrokerRecord& r) { image_.brokers_.erase(r.broker_id); });
    case kafka::BrokerRegistrationChangeRecord::api_key:
      return with(kafka::BrokerRegistrationChangeRecord{}, [&](const kafka::BrokerRegistrationChangeRecord& r) {
        const auto found = image_.brokers_.find(r.broker_id);
        if (found != image_.brokers_.end() && r.fenced != 0) found->second.fenced = r.fenced > 0;
      });
    case kafka::ProducerIdsRecord::api_key:
      return with(kafka::ProducerIdsRecord{},
                  [&](const kafka::ProducerIdsRecord& r) { image_.next_producer_id_ = r.next_producer_id; });
    case kafka::FeatureLevelRecord::api_key:
      return with(kafka::FeatureLevelRecord{}, [&](const kafka::FeatureLevelRecord& r) {
        if (r.feature_level == 0) {
          image_.features_.erase(r.name);
        } else {
          image_.features_[r.name] = r.feature_level;
        }
      });
    default:
      return true;
  }
}

}  // namespace ciuic::broker
