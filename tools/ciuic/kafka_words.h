#pragma once
#include <string_view>

/// Options of Kafka's own tools and kcat that people type here, and what they are called here.
namespace ciuic::tool {

struct KafkaWord {
  std::string_view theirs, ours;
};
inline constexpr KafkaWord kafka_words[] = {
    {"--topic", "the topic's name alone, without an option"},
    {"--from-beginning", "--offset beginning, the default"},
    {"--max-messages", "--count"},
    {"--timeout-ms", "--exit to end at the end, --timeout for the wait for an answer"},
    {"--replication-factor", "--replicas"},
    {"--create", "ciuic topics create"},
    {"--list", "ciuic topics list, ciuic groups list"},
    {"--delete", "ciuic topics delete, ciuic groups delete"},
    {"--describe", "ciuic topics describe, ciuic groups describe, ciuic configs describe"},
    {"--alter", "ciuic topics alter, ciuic configs set"},
    {"--reset-offsets", "ciuic groups reset-offsets"},
    {"--entity-type", "ciuic configs describe topic NAME"},
    {"--entity-name", "ciuic configs describe topic NAME"},
    {"--add-config", "ciuic configs set topic NAME key=value"},
    {"--property", "-X key=value"},
    {"--producer-property", "-X key=value"},
    {"--consumer-property", "-X key=value"},
    {"--command-config", "-X key=value"},
    {"--compression-codec", "--compression"},
    {"--request-required-acks", "--acks"},
    {"--isolation-level", "--isolation"},
    {"--partitions-list", "--partition, once for each"},
};

}  // namespace ciuic::tool
