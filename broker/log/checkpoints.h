#pragma once
#include <map>
#include <optional>
#include <string>

#include "broker/log/files.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// Apache's checkpoint files of a log directory and of a partition.
inline constexpr std::string_view recovery_point_file = "recovery-point-offset-checkpoint";
inline constexpr std::string_view log_start_file = "log-start-offset-checkpoint";
inline constexpr std::string_view high_watermark_file = "replication-offset-checkpoint";
inline constexpr std::string_view clean_shutdown_file = ".kafka_cleanshutdown";
inline constexpr std::string_view partition_metadata_file = "partition.metadata";

using Checkpoint = std::map<kafka::TopicPartition, kafka::Offset>;

/// `0`, count, `topic partition offset` lines. A missing file is empty; one that cannot be read as such too (warned).
[[nodiscard]] IoResult<Checkpoint> read_checkpoint(Files& files, const std::string& path);
[[nodiscard]] IoResult<void> write_checkpoint(Files& files, const std::string& path, const Checkpoint& checkpoint);

/// `version: 0`, `topic_id: …`.
[[nodiscard]] std::string partition_metadata_text(const kafka::TopicId& id);
[[nodiscard]] std::optional<kafka::TopicId> parse_partition_metadata(std::string_view text);

/// `topic-12` as a directory's name; nothing for other names.
[[nodiscard]] std::optional<kafka::TopicPartition> parse_partition_directory(std::string_view name);
[[nodiscard]] std::string partition_directory(const kafka::TopicPartition& name);

}  // namespace ciuic::broker
