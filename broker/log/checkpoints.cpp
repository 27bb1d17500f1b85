// Small text files: offset checkpoints and partition.metadata. Not here: when they are written (log_directory.cpp).
#include "broker/log/checkpoints.h"

#include <fmt/format.h>

#include "broker/log/text_lines.h"
#include "transport/base/log.h"

namespace ciuic::broker {

IoResult<Checkpoint> read_checkpoint(Files& files, const std::string& path) {
  const auto exists = files.exists(path);
  if (!exists) return exists.error();
  if (!*exists) return Checkpoint{};
  const auto bytes = read_file(files, path);
  if (!bytes) return bytes.error();
  const auto damaged = [&path] {
    log::warn("log", "{} cannot be read; it is taken as empty", path);
    return Checkpoint{};
  };
  TextLines lines(as_text(*bytes));
  const auto version = lines.number<int>();
  const auto count = lines.number<std::size_t>();
  if (version != 0 || !count) return damaged();
  Checkpoint checkpoint;
  for (std::size_t i = 0; i < *count; ++i) {
    const auto words = lines.words();
    if (words.size() != 3) return damaged();
    const auto partition = number<std::int32_t>(words[1]);
    const auto offset = number<std::int64_t>(words[2]);
    if (!partition || !offset) return damaged();
    checkpoint[{std::string(words[0]), kafka::PartitionIndex(*partition)}] = kafka::Offset(*offset);
  }
  return checkpoint;
}

IoResult<void> write_checkpoint(Files& files, const std::string& path, const Checkpoint& checkpoint) {
  auto text = fmt::format("0\n{}\n", checkpoint.size());
  for (const auto& [name, offset] : checkpoint)
    text += fmt::format("{} {} {}\n", name.topic, name.partition.value, offset.value);
  return replace_file(files, path, as_bytes(text), Durable::now);
}

std::string partition_metadata_text(const kafka::TopicId& id) {
  return fmt::format("version: 0\ntopic_id: {}", id.to_string());
}

std::optional<kafka::TopicId> parse_partition_metadata(std::string_view text) {
  TextLines lines(text);
  if (lines.line() != "version: 0") return std::nullopt;
  const auto line = lines.line();
  constexpr std::string_view key = "topic_id: ";
  if (!line.starts_with(key)) return std::nullopt;
  return kafka::Uuid::parse(line.substr(key.size()));
}

std::optional<kafka::TopicPartition> parse_partition_directory(std::string_view name) {
  const auto dash = name.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return std::nullopt;
  const auto partition = number<std::int32_t>(name.substr(dash + 1));
  if (!partition || *partition < 0) return std::nullopt;
  return kafka::TopicPartition{std::string(name.substr(0, dash)), kafka::PartitionIndex(*partition)};
}

std::string partition_directory(const kafka::TopicPartition& name) {
  return fmt::format("{}-{}", name.topic, name.partition.value);
}

}  // namespace ciuic::broker
