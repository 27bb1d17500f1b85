#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "broker/metadata/metadata_image.h"
#include "transport/base/result.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

struct NewTopic {
  std::string name;
  std::int32_t partitions = -1;                                                 // -1: the broker's default
  std::int16_t replication_factor = -1;                                         // likewise
  std::vector<std::pair<std::int32_t, std::vector<std::int32_t>>> assignments;  // then both numbers are -1
  Overrides config;
};
struct CreatedTopic {
  std::string name;
  ResultOf<kafka::TopicId, kafka::Error> id;
  std::int32_t partitions = 0;
  std::int16_t replication_factor = 0;
};

struct MorePartitions {
  std::string topic;
  std::int32_t total = 0;
  std::vector<std::vector<std::int32_t>> assignments;  // of the new ones; empty: chosen
};
struct NamedResult {
  std::string name;
  kafka::Error error;
};

enum class ConfigChange : std::int8_t { set = 0, remove = 1, append = 2, subtract = 3 };
/// As on the wire and in ConfigRecord.
enum class ConfigResource : std::int8_t { topic = 2, broker = 4 };
struct ConfigAlteration {
  ConfigResource resource = ConfigResource::topic;
  std::string name;  // a topic's; a broker's id, or "" for all brokers
  struct Key {
    std::string key;
    ConfigChange change;
    std::optional<std::string> value;
  };
  std::vector<Key> keys;
};

enum class Commit { yes, validate_only };

struct ProducerIdBlock {
  std::int64_t first = 0;
  std::int32_t count = 0;
};

/// What changes the cluster's metadata. Requests are carried out one after the other; each calls back once, on the
/// controller's executor, when its records are durable, the image holds them and the partitions they name serve (or
/// with the error). Any thread may call. Alone: LocalController; in a cluster: requests to the KRaft quorum.
class Controller {
 public:
  template <class T>
  using Callback = std::function<void(T)>;

  virtual ~Controller() = default;
  /// The newest image. Any thread, no lock between changes.
  [[nodiscard]] virtual MetadataPointer image() const = 0;

  /// Errors by topic: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
  /// INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, KAFKA_STORAGE_ERROR.
  virtual void create_topics(std::vector<NewTopic> topics, Commit commit, Callback<std::vector<CreatedTopic>> done) = 0;
  /// By id, since a name may have come back. UNKNOWN_TOPIC_ID.
  virtual void delete_topics(std::vector<kafka::TopicId> topics, Callback<std::vector<kafka::Error>> done) = 0;
  virtual void create_partitions(std::vector<MorePartitions> topics, Commit commit,
                                 Callback<std::vector<NamedResult>> done) = 0;
  /// Of brokers, the keys that `is_dynamic` names.
  virtual void alter_configs(std::vector<ConfigAlteration> changes, Commit commit,
                             Callback<std::vector<NamedResult>> done) = 0;
  /// A block of producer ids that nobody else gets, over restarts too.
  virtual void allocate_producer_ids(Callback<ResultOf<ProducerIdBlock, kafka::Error>> done) = 0;
};

/// Kafka's rules for topic names, as words for people; nothing if the name is good.
[[nodiscard]] std::optional<std::string> wrong_topic_name(std::string_view name);

}  // namespace ciuic::broker
