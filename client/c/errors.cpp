// Errors, configuration and texts across the C ABI.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "client/c/handles.h"

namespace ciuic::c {

std::int32_t report(const client::Error& error, ciuic_error* out) {
  const auto code = -static_cast<std::int32_t>(error.trouble);
  if (out == nullptr) return code;
  ciuic_error ours{};
  ours.code = code;
  ours.kafka_code = error.kafka_code;
  ours.retriable = error.retriable ? 1 : 0;
  std::snprintf(ours.text, sizeof ours.text, "%s", error.text.c_str());
  give(ours, out);
  return code;
}

std::int32_t report(client::Trouble trouble, const char* text, ciuic_error* out) {
  return report(client::Error{trouble, 0, false, text}, out);
}

char* text_of(const std::string& text) noexcept { return ::strdup(text.c_str()); }

client::Config config_of(const ciuic_config_entry* config, std::size_t count) {
  client::Config out;
  for (std::size_t i = 0; i < count; ++i)
    out.emplace_back(config[i].key == nullptr ? "" : config[i].key, config[i].value == nullptr ? "" : config[i].value);
  return out;
}

std::vector<client::TopicPartition> partitions_of(const ciuic_topic_partition* partitions, std::size_t count) {
  std::vector<client::TopicPartition> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back({partitions[i].topic == nullptr ? "" : partitions[i].topic, partitions[i].partition});
  return out;
}

std::vector<client::TopicPartitionOffset> offsets_of(const ciuic_topic_partition* partitions, std::size_t count) {
  std::vector<client::TopicPartitionOffset> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(
        {partitions[i].topic == nullptr ? "" : partitions[i].topic, partitions[i].partition, partitions[i].offset, {}});
  return out;
}

std::vector<ciuic_topic_partition> to_c(std::span<const client::TopicPartition> partitions) {
  std::vector<ciuic_topic_partition> out;
  for (const auto& at : partitions) out.push_back({at.topic.c_str(), at.partition, -1});
  return out;
}

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_of(const std::vector<client::Metric>& metrics) {
  auto out = nlohmann::json::array();
  for (const auto& metric : metrics)
    out.push_back({{"name", metric.name}, {"label", metric.label}, {"value", metric.value}});
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace ciuic::c

extern "C" {

uint32_t ciuic_abi_version(void) { return CIUIC_ABI_VERSION; }
const char* ciuic_version(void) { return ciuic::client::version(); }
int32_t ciuic_set_log_level(const char* level) {
  return level != nullptr && ciuic::client::set_log_level(level) ? 0 : CIUIC_INVALID_ARGUMENT;
}
void ciuic_text_free(char* text) { std::free(text); }
}
