// What each request to the local controller decides: checks with Kafka's errors, and the records that follow.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "broker/log/log_directory.h"
#include "broker/metadata/local_controller.h"
#include "broker/metadata/metadata_records.h"
#include "transport/kafka/messages/metadata_records.h"

namespace ciuic::broker {
namespace {

using kafka::Error;
using kafka::ErrorCode;

// As Apache's broker asks of its controller (ProducerIdsBlock).
constexpr std::int32_t producer_ids_per_block = 1000;
constexpr std::int32_t partitions_of_a_topic_max = 100'000;

Error check_replicas(const std::vector<std::int32_t>& replicas, const MetadataImage& image) {
  if (replicas.empty()) return {ErrorCode::invalid_replica_assignment, "a partition has no replica"};
  const std::set<std::int32_t> distinct(replicas.begin(), replicas.end());
  if (distinct.size() != replicas.size())
    return {ErrorCode::invalid_replica_assignment, "a partition names a broker twice"};
  for (const auto id : replicas) {
    if (image.brokers().find(id) == image.brokers().end()) {
      return {ErrorCode::invalid_replica_assignment,
              fmt::format("broker {} is not known; known are the ids of DescribeCluster", id)};
    }
  }
  return {};
}

Buffer partition_record(const kafka::TopicId& topic, std::int32_t index, const std::vector<std::int32_t>& replicas,
                        const kafka::Uuid& directory) {
  kafka::PartitionRecord record;
  record.partition_id = index;
  record.topic_id = topic;
  record.replicas = replicas;
  record.isr = replicas;
  record.leader = replicas.front();
  record.leader_epoch = 0;
  record.partition_epoch = 0;
  record.directories.assign(replicas.size(), directory);
  return encode_metadata(record);
}

Buffer config_record(ConfigResource resource, const std::string& name, const std::string& key,
                     std::optional<std::string> value) {
  kafka::ConfigRecord record;
  record.resource_type = static_cast<std::int8_t>(resource);
  record.resource_name = name;
  record.name = key;
  record.value = std::move(value);
  return encode_metadata(record);
}

struct Plan {
  std::vector<std::vector<std::int32_t>> replicas;  // by partition
  Error error;
};

Plan plan_topic(const NewTopic& topic, const BrokerConfig& config, const MetadataImage& image) {
  const auto refuse = [](ErrorCode code, std::string text) { return Plan{{}, {code, std::move(text)}}; };
  if (const auto wrong = wrong_topic_name(topic.name)) return refuse(ErrorCode::invalid_topic_exception, *wrong);
  if (topic.name == metadata_log_topic) {
    return refuse(ErrorCode::invalid_request, fmt::format("Creation of internal topic {} is prohibited.", topic.name));
  }
  if (image.topic(topic.name) != nullptr) {
    return refuse(ErrorCode::topic_already_exists, fmt::format("Topic '{}' already exists.", topic.name));
  }
  // Names that differ in '.' and '_' alone collide in metric names (Apache refuses them too).
  std::string flat = topic.name;
  std::replace(flat.begin(), flat.end(), '.', '_');
  if (flat.find('_') != std::string::npos) {
    for (const auto& [name, other] : image.topics()) {
      std::string their = name;
      std::replace(their.begin(), their.end(), '.', '_');
      if (their == flat) {
        return refuse(ErrorCode::invalid_topic_exception,
                      fmt::format("Topic '{}' collides with existing topic: {}", topic.name, name));
      }
    }
  }
  if (const auto made = make_topic_config(config.log, topic.config); !made)
    return refuse(ErrorCode::invalid_config, made.error());
  Plan plan;
  if (!topic.assignments.empty()) {
    if (topic.partitions != -1 || topic.replication_factor != -1) {
      return refuse(ErrorCode::invalid_request,
                    fmt::format("A manual partition assignment was specified, but {} was not set to -1.",
                                topic.replication_factor != -1 ? "replication factor" : "numPartitions"));
    }
    plan.replicas.resize(topic.assignments.size());
    for (const auto& [index, replicas] : topic.assignments) {
      if (index < 0 || static_cast<std::size_t>(index) >= plan.replicas.size() ||
          !plan.replicas[static_cast<std::size_t>(index)].empty()) {
        return refuse(ErrorCode::invalid_replica_assignment, "partitions must be a consecutive 0-based sequence");
      }
      if (auto error = check_replicas(replicas, image); error.code != ErrorCode::none) return {{}, std::move(error)};
      plan.replicas[static_cast<std::size_t>(index)] = replicas;
    }
    return plan;
  }
  const auto partitions = topic.partitions == -1 ? config.partitions_default : topic.partitions;
  const std::int32_t factor =
      topic.replication_factor == -1 ? config.replication_factor_default : topic.replication_factor;
  if (partitions < 1 || partitions > partitions_of_a_topic_max) {
    return refuse(ErrorCode::invalid_partitions,
                  fmt::format("Number of partitions was set to an invalid value: {}; allowed: 1…{}", partitions,
                              partitions_of_a_topic_max));
  }
  const auto alive = static_cast<std::int32_t>(image.brokers().size());
  if (factor < 1 || factor > alive) {
    return refuse(
        ErrorCode::invalid_replication_factor,
        fmt::format("Replication factor {} is not possible: 1 to {} (the number of brokers) are", factor, alive));
  }
  std::vector<std::int32_t> ids;
  for (const auto& [id, broker] : image.brokers()) ids.push_back(id);
  for (std::int32_t partition = 0; partition < partitions; ++partition) {
    auto& replicas = plan.replicas.emplace_back();
    for (std::int32_t r = 0; r < factor; ++r)
      replicas.push_back(ids[static_cast<std::size_t>(partition + r) % ids.size()]);
  }
  return plan;
}

/// The row of a key as the resource names it; nullptr if the resource has no such key, or it cannot change now.
const Setting* row_of(ConfigResource resource, std::string_view key) {
  if (resource == ConfigResource::topic) return find_setting(Scope::topic, key);
  for (const auto& setting : all_settings()) {
    if (setting.scope == Scope::topic && !setting.broker_key.empty() && setting.broker_key == key) return &setting;
  }
  return nullptr;
}

Error unknown_key(ConfigResource resource, const std::string& key) {
  if (resource == ConfigResource::topic)
    return {ErrorCode::invalid_config, fmt::format("Unknown topic config name: {}", key)};
  if (find_setting(Scope::broker, key) != nullptr) {
    return {
        ErrorCode::invalid_request,
        fmt::format("Cannot update these configs dynamically: Set({}); set it in server.properties and restart", key)};
  }
  return {ErrorCode::invalid_config, fmt::format("Unknown broker config name: {}", key)};
}

/// The resource's config after the change, or why not.
ResultOf<Overrides, Error> changed_config(const ConfigAlteration& change, const Overrides& before) {
  Overrides config = before;
  for (const auto& key : change.keys) {
    const auto* setting = row_of(change.resource, key.key);
    if (setting == nullptr) return unknown_key(change.resource, key.key);
    if (key.change == ConfigChange::remove) {
      config.erase(key.key);
      continue;
    }
    if (!key.value) return Error{ErrorCode::invalid_request, fmt::format("Null value not supported for : {}", key.key)};
    if (key.change == ConfigChange::set) {
      config[key.key] = *key.value;
      continue;
    }
    if (setting->type != ValueType::list) {
      return Error{ErrorCode::invalid_config,
                   fmt::format("Config value append is not allowed for config key: {}", key.key)};
    }
    const auto found = config.find(key.key);
    const auto now = parse_value(*setting, found == config.end() ? std::string(setting->fallback) : found->second);
    const auto delta = parse_value(*setting, *key.value);
    if (!now) return Error{ErrorCode::invalid_config, now.error()};
    if (!delta) return Error{ErrorCode::invalid_config, delta.error()};
    std::vector<std::string> words = now->list;
    for (const auto& word : delta->list) {
      words.erase(std::remove(words.begin(), words.end(), word), words.end());
      if (key.change == ConfigChange::append) words.push_back(word);
    }
    std::string joined;
    for (const auto& word : words) joined += (joined.empty() ? "" : ",") + word;
    config[key.key] = joined;
  }
  return config;
}

/// Words for values that are wrong, none if all are right.
std::optional<std::string> wrong_values(const ConfigAlteration& change, const Overrides& config,
                                        const LogConfig& defaults) {
  if (change.resource == ConfigResource::topic) {
    const auto made = make_topic_config(defaults, config);
    return made ? std::nullopt : std::optional(made.error());
  }
  for (const auto& [key, value] : config) {
    const auto* setting = row_of(change.resource, key);
    if (setting == nullptr) continue;
    if (const auto parsed = parse_value(*setting, value); !parsed) return parsed.error();
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> wrong_topic_name(std::string_view name) {
  if (name.empty()) return "Topic name is invalid: the empty string is not allowed";
  if (name == "." || name == "..") return "Topic name is invalid: '.' or '..' is not allowed";
  if (name.size() > 249) {
    return fmt::format("Topic name is invalid: the length of '{}' is longer than the max allowed length 249", name);
  }
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  if (!std::all_of(name.begin(), name.end(), good)) {
    return fmt::format(
        "Topic name is invalid: '{}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        name);
  }
  return std::nullopt;
}

void LocalController::create_topics(std::vector<NewTopic> topics, Commit commit,
                                    Callback<std::vector<CreatedTopic>> done) {
  auto results = std::make_shared<std::vector<CreatedTopic>>();
  submit({[this, topics = std::move(topics), commit, results](const MetadataImage& image) {
            std::vector<Buffer> records;
            std::set<std::string> seen;
            for (const auto& topic : topics) {
              auto plan = plan_topic(topic, *parts_.config, image);
              if (plan.error.code == ErrorCode::none && !seen.insert(topic.name).second) {
                plan.error = {ErrorCode::topic_already_exists, fmt::format("Topic '{}' already exists.", topic.name)};
              }
              if (plan.error.code == ErrorCode::none && parts_.can_create) plan.error = parts_.can_create();
              if (plan.error.code != ErrorCode::none) {
                results->push_back({topic.name, plan.error, 0, 0});
                continue;
              }
              const auto id = kafka::Uuid::random();
              results->push_back({topic.name, id, static_cast<std::int32_t>(plan.replicas.size()),
                                  static_cast<std::int16_t>(plan.replicas.front().size())});
              if (commit == Commit::validate_only) continue;
              kafka::TopicRecord record;
              record.name = topic.name;
              record.topic_id = id;
              records.push_back(encode_metadata(record));
              for (const auto& [key, value] : topic.config)
                records.push_back(config_record(ConfigResource::topic, topic.name, key, value));
              for (std::size_t i = 0; i < plan.replicas.size(); ++i) {
                records.push_back(
                    partition_record(id, static_cast<std::int32_t>(i), plan.replicas[i], parts_.directory_id));
              }
            }
            return records;
          },
          [results, done = std::move(done)](Error error) {
            if (error.code != ErrorCode::none) {
              for (auto& result : *results) {
                if (result.id) result.id = error;
              }
            }
            done(std::move(*results));
          }});
}

void LocalController::delete_topics(std::vector<kafka::TopicId> topics, Callback<std::vector<Error>> done) {
  auto results = std::make_shared<std::vector<Error>>();
  submit({[topics = std::move(topics), results](const MetadataImage& image) {
            std::vector<Buffer> records;
            std::set<kafka::TopicId> seen;
            for (const auto& id : topics) {
              if (image.topic(id) == nullptr || !seen.insert(id).second) {
                results->emplace_back(ErrorCode::unknown_topic_id);
                continue;
              }
              results->emplace_back();
              kafka::RemoveTopicRecord record;
              record.topic_id = id;
              records.push_back(encode_metadata(record));
            }
            return records;
          },
          [results, done = std::move(done)](const Error& error) {
            for (auto& result : *results) {
              if (result.code == ErrorCode::none) result = error;
            }
            done(std::move(*results));
          }});
}

void LocalController::create_partitions(std::vector<MorePartitions> topics, Commit commit,
                                        Callback<std::vector<NamedResult>> done) {
  auto results = std::make_shared<std::vector<NamedResult>>();
  submit({[this, topics = std::move(topics), commit, results](const MetadataImage& image) {
            std::vector<Buffer> records;
            for (const auto& wanted : topics) {
              const auto refuse = [&](ErrorCode code, std::string text) {
                results->push_back({wanted.topic, {code, std::move(text)}});
              };
              const auto* topic = image.topic(wanted.topic);
              if (topic == nullptr) {
                refuse(ErrorCode::unknown_topic_or_partition,
                       fmt::format("The topic '{}' does not exist.", wanted.topic));
                continue;
              }
              const auto now = static_cast<std::int32_t>(topic->partitions.size());
              if (wanted.total == now) {
                refuse(ErrorCode::invalid_partitions, fmt::format("Topic already has {} partition(s).", now));
                continue;
              }
              if (wanted.total < now || wanted.total > partitions_of_a_topic_max) {
                refuse(ErrorCode::invalid_partitions,
                       fmt::format("The topic {} currently has {} partition(s); {} would not be an increase.",
                                   wanted.topic, now, wanted.total));
                continue;
              }
              if (auto error = parts_.can_create ? parts_.can_create() : Error{}; error.code != ErrorCode::none) {
                results->push_back({wanted.topic, std::move(error)});
                continue;
              }
              if (!wanted.assignments.empty() &&
                  wanted.assignments.size() != static_cast<std::size_t>(wanted.total - now)) {
                refuse(ErrorCode::invalid_replica_assignment,
                       fmt::format("Increasing the number of partitions by {} but {} assignments provided.",
                                   wanted.total - now, wanted.assignments.size()));
                continue;
              }
              Error error;
              std::vector<Buffer> mine;
              const auto& like = topic->partitions.front().replicas;
              for (auto index = now; index < wanted.total && error.code == ErrorCode::none; ++index) {
                const auto& replicas =
                    wanted.assignments.empty() ? like : wanted.assignments[static_cast<std::size_t>(index - now)];
                error = check_replicas(replicas, image);
                mine.push_back(partition_record(topic->id, index, replicas, parts_.directory_id));
              }
              if (error.code == ErrorCode::none && commit == Commit::yes)
                records.insert(records.end(), mine.begin(), mine.end());
              results->push_back({wanted.topic, std::move(error)});
            }
            return records;
          },
          [results, done = std::move(done)](const Error& error) {
            for (auto& result : *results) {
              if (result.error.code == ErrorCode::none) result.error = error;
            }
            done(std::move(*results));
          }});
}

void LocalController::alter_configs(std::vector<ConfigAlteration> changes, Commit commit,
                                    Callback<std::vector<NamedResult>> done) {
  auto results = std::make_shared<std::vector<NamedResult>>();
  submit({[this, changes = std::move(changes), commit, results](const MetadataImage& image) {
            std::vector<Buffer> records;
            for (const auto& change : changes) {
              const bool of_topic = change.resource == ConfigResource::topic;
              const auto& before = of_topic ? image.topic_config(change.name) : image.broker_config(change.name);
              Error error;
              if (of_topic && image.topic(change.name) == nullptr) {
                error = {ErrorCode::unknown_topic_or_partition,
                         fmt::format("The topic '{}' does not exist.", change.name)};
              } else if (const auto config = changed_config(change, before); !config) {
                error = config.error();
              } else if (const auto wrong = wrong_values(change, *config, parts_.config->log)) {
                error = {ErrorCode::invalid_config, *wrong};
              } else if (commit == Commit::yes) {
                for (const auto& [key, value] : *config) {
                  const auto old = before.find(key);
                  if (old == before.end() || old->second != value)
                    records.push_back(config_record(change.resource, change.name, key, value));
                }
                for (const auto& [key, value] : before) {
                  if (config->find(key) == config->end())
                    records.push_back(config_record(change.resource, change.name, key, std::nullopt));
                }
              }
              results->push_back({change.name, std::move(error)});
            }
            return records;
          },
          [results, done = std::move(done)](const Error& error) {
            for (auto& result : *results) {
              if (result.error.code == ErrorCode::none) result.error = error;
            }
            done(std::move(*results));
          }});
}

void LocalController::allocate_producer_ids(Callback<ResultOf<ProducerIdBlock, Error>> done) {
  auto block = std::make_shared<ProducerIdBlock>();
  submit({[this, block](const MetadataImage& image) {
            *block = {image.next_producer_id(), producer_ids_per_block};
            kafka::ProducerIdsRecord record;
            record.broker_id = parts_.config->node_id;
            record.broker_epoch = 0;
            record.next_producer_id = block->first + block->count;
            return std::vector<Buffer>{encode_metadata(record)};
          },
          [block, done = std::move(done)](const Error& error) {
            if (error.code != ErrorCode::none) return done(error);
            done(*block);
          }});
}

}  // namespace ciuic::broker
