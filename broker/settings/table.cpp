// The table of settings. One row a key; nothing else about a setting is written anywhere.
#include <limits>

#include "broker/settings/settings.h"

namespace ciuic::broker {
namespace {

constexpr double int_max = std::numeric_limits<std::int32_t>::max();
constexpr double long_max = 9.2e18;
constexpr auto LONG = ValueType::int64;
constexpr auto INT = ValueType::int32;
constexpr auto SHORT = ValueType::int16;
constexpr auto BOOLEAN = ValueType::boolean;
constexpr auto STRING = ValueType::string;
constexpr auto LIST = ValueType::list;
constexpr auto DOUBLE = ValueType::real;

template <auto member>
void broker_member(BrokerConfig& config, const Value& value) {
  auto& target = config.*member;
  using T = std::remove_reference_t<decltype(target)>;
  if constexpr (std::is_same_v<T, bool>) {
    target = value.boolean;
  } else if constexpr (std::is_same_v<T, std::string>) {
    target = value.text;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    target = value.list;
  } else {
    target = static_cast<T>(value.integer);
  }
}
template <auto member>
void topic_member(LogConfig& config, const Value& value) {
  auto& target = config.*member;
  using T = std::remove_reference_t<decltype(target)>;
  if constexpr (std::is_same_v<T, bool>) {
    target = value.boolean;
  } else if constexpr (std::is_same_v<T, double>) {
    target = value.real;
  } else {
    target = static_cast<T>(value.integer);
  }
}

Setting broker(std::string_view key, ValueType type, std::string_view fallback, double min, double max,
               void (*set)(BrokerConfig&, const Value&), std::string_view text, std::string_view allowed = {}) {
  return {key, Scope::broker, type, fallback, min, max, allowed, {}, set, nullptr, text, false};
}
Setting ours(std::string_view key, ValueType type, std::string_view fallback, double min, double max,
             void (*set)(BrokerConfig&, const Value&), std::string_view text, std::string_view allowed = {}) {
  auto row = broker(key, type, fallback, min, max, set, text, allowed);
  row.ours = true;
  return row;
}
Setting topic(std::string_view key, std::string_view broker_key, ValueType type, std::string_view fallback, double min,
              double max, void (*set)(LogConfig&, const Value&), std::string_view text, std::string_view allowed = {}) {
  return {key, Scope::topic, type, fallback, min, max, allowed, broker_key, nullptr, set, text, false};
}

void set_cleanup(LogConfig& config, const Value& value) {
  config.cleanup_delete = config.cleanup_compact = false;
  for (const auto& policy : value.list) (policy == "compact" ? config.cleanup_compact : config.cleanup_delete) = true;
}
void set_compression(LogConfig& config, const Value& value) {
  constexpr std::pair<std::string_view, LogCompression> names[] = {
      {"producer", LogCompression::producer}, {"uncompressed", LogCompression::uncompressed},
      {"gzip", LogCompression::gzip},         {"snappy", LogCompression::snappy},
      {"lz4", LogCompression::lz4},           {"zstd", LogCompression::zstd}};
  for (const auto& [name, compression] : names) {
    if (name == value.text) config.compression_type = compression;
  }
}
void set_timestamp_type(LogConfig& config, const Value& value) {
  config.timestamp_type = value.text == "LogAppendTime" ? TimestampType::log_append_time : TimestampType::create_time;
}
void ignore(BrokerConfig&, const Value&) {}     // read together with a more exact key, in make_broker_config
void ignore_topic(LogConfig&, const Value&) {}  // accepted for tools that set it; replication's, without effect alone

using B = BrokerConfig;
using L = LogConfig;

const Setting rows[] = {
    // --- broker ---
    broker("advertised.listeners", STRING, "", 0, 0, broker_member<&B::advertised_listeners>,
           "Address that clients are told; empty: that of `listeners`, or this host's name where that is a wildcard."),
    broker("auto.create.topics.enable", BOOLEAN, "true", 0, 0, broker_member<&B::auto_create_topics>,
           "A Metadata request that allows it creates an unknown topic."),
    broker("broker.rack", STRING, "", 0, 0, broker_member<&B::rack>, "Rack or zone of this broker."),
    broker("connections.max.idle.ms", LONG, "600000", 1, long_max, broker_member<&B::connection_idle_max_ms>,
           "A connection without traffic for this long is closed."),
    broker("default.replication.factor", SHORT, "1", 1, 32767, broker_member<&B::replication_factor_default>,
           "Replication factor of topics that do not name one."),
    broker("delete.topic.enable", BOOLEAN, "true", 0, 0, broker_member<&B::delete_topics>, "Topics may be deleted."),
    broker("fetch.max.bytes", INT, "57671680", 1024, int_max, broker_member<&B::fetch_bytes_max>,
           "Most bytes of one Fetch response, whatever the client asks for."),
    broker("group.initial.rebalance.delay.ms", INT, "3000", 0, int_max,
           broker_member<&B::group_initial_rebalance_delay_ms>,
           "How long an empty group waits for more members before its first rebalance."),
    broker("group.max.session.timeout.ms", INT, "1800000", 1, int_max, broker_member<&B::group_session_timeout_max_ms>,
           "Longest session timeout a member may ask for."),
    broker("group.max.size", INT, "2147483647", 1, int_max, broker_member<&B::group_size_max>,
           "Most members of a group."),
    broker("group.min.session.timeout.ms", INT, "6000", 1, int_max, broker_member<&B::group_session_timeout_min_ms>,
           "Shortest session timeout a member may ask for."),
    broker("listeners", STRING, "PLAINTEXT://:9092", 0, 0, broker_member<&B::listeners>,
           "Where the broker listens: PLAINTEXT://host:port; port 0 lets the kernel choose."),
    broker("log.cleaner.backoff.ms", LONG, "15000", 0, long_max, broker_member<&B::cleaner_backoff_ms>,
           "Time between two looks for logs to compact."),
    broker("log.cleaner.enable", BOOLEAN, "true", 0, 0, broker_member<&B::cleaner_enable>,
           "Compacted topics are compacted."),
    broker("log.dirs", LIST, "/var/lib/ciuic-kafka", 0, 0, broker_member<&B::log_dirs>,
           "Directories that hold the logs."),
    broker("log.flush.offset.checkpoint.interval.ms", INT, "60000", 0, int_max,
           broker_member<&B::checkpoint_interval_ms>, "Time between two writes of the recovery points."),
    broker("log.retention.check.interval.ms", LONG, "300000", 1, long_max,
           broker_member<&B::retention_check_interval_ms>, "Time between two looks for segments to delete."),
    broker("log.retention.hours", INT, "168", -1, int_max, ignore,
           "As log.retention.ms, in hours; the smaller unit wins."),
    broker("log.retention.minutes", INT, "", -1, int_max, ignore, "As log.retention.ms, in minutes."),
    broker("log.roll.hours", INT, "168", 1, int_max, ignore, "As log.roll.ms, in hours; the smaller unit wins."),
    broker("max.connections", INT, "2147483647", 0, int_max, broker_member<&B::connections_max>,
           "Most connections at a time."),
    broker("max.connections.per.ip", INT, "2147483647", 0, int_max, broker_member<&B::connections_per_ip_max>,
           "Most connections at a time from one address."),
    broker("max.incremental.fetch.session.cache.slots", INT, "1000", 0, int_max, broker_member<&B::fetch_session_slots>,
           "Most fetch sessions (KIP-227) remembered."),
    broker("node.id", INT, "1", 0, int_max, broker_member<&B::node_id>, "This broker's id."),
    broker("num.io.threads", INT, "2", 1, 1024, broker_member<&B::io_threads>, "Threads that read and write files."),
    broker("num.network.threads", INT, "0", 0, 1024, broker_member<&B::network_threads>,
           "Threads that serve connections and own partitions; 0: one a core but one, at least one."),
    broker("num.partitions", INT, "1", 1, 100000, broker_member<&B::partitions_default>,
           "Partitions of topics that do not name a number."),
    broker("num.recovery.threads.per.data.dir", INT, "2", 1, 1024, broker_member<&B::recovery_threads>,
           "Threads that recover a log directory at start."),
    broker("offset.metadata.max.bytes", INT, "4096", 0, int_max, broker_member<&B::offset_metadata_bytes_max>,
           "Most bytes of metadata with a committed offset."),
    broker("offsets.retention.check.interval.ms", LONG, "600000", 1, long_max,
           broker_member<&B::offsets_retention_check_interval_ms>, "Time between two looks for expired offsets."),
    broker("offsets.retention.minutes", INT, "10080", 1, int_max, broker_member<&B::offsets_retention_minutes>,
           "Committed offsets of a group are kept this long after it became empty."),
    broker("offsets.topic.num.partitions", INT, "50", 1, 100000, broker_member<&B::offsets_partitions>,
           "Partitions of __consumer_offsets; fixed once it exists."),
    broker("offsets.topic.replication.factor", SHORT, "1", 1, 32767, broker_member<&B::offsets_replication_factor>,
           "Replication factor of __consumer_offsets."),
    broker("offsets.topic.segment.bytes", INT, "104857600", 1, int_max, broker_member<&B::offsets_segment_bytes>,
           "Segment size of __consumer_offsets."),
    broker("producer.id.expiration.ms", INT, "86400000", 1, int_max, broker_member<&B::producer_id_expiration_ms>,
           "A silent idempotent producer is forgotten after this."),
    broker("queued.max.request.bytes", LONG, "1073741824", 1048576, long_max,
           broker_member<&B::queued_request_bytes_max>,
           "Most bytes of requests in memory over all connections; reading stops above it."),
    broker("socket.request.max.bytes", INT, "104857600", 1024, int_max, broker_member<&B::request_bytes_max>,
           "Largest request accepted; a larger one closes its connection."),
    ours(
        "log.journal.bytes", INT, "16777216", 0, 1073741824, broker_member<&B::journal_bytes>,
        "Journal a core and log directory: small appends are acknowledged from it and go to the segment files in large "
        "writes within a fifth of a second; a start after a kill puts back what it holds. 0: none."),
    ours("log.level", STRING, "info", 0, 0, broker_member<&B::log_level>, "How much is logged.",
         "debug|info|warn|error|off"),
    ours("log.memory.bytes", LONG, "4294967296", 67108864, long_max, broker_member<&B::memory_bytes>,
         "Memory for chunks: all log bytes that consumers read lie there. Cold chunks are evicted above it."),
    ours("log.memory.chunk.bytes.max", LONG, "16777216", 1048576, 67108864, broker_member<&B::memory_chunk_bytes_max>,
         "Largest chunk of a busy partition; the unit of exposure and eviction."),
    ours("log.read.ahead.bytes", INT, "4194304", 65536, 67108864, broker_member<&B::read_ahead_bytes>,
         "Bytes brought into memory at a time when an old offset is read."),
    ours("max.decompressed.batch.bytes", INT, "67108864", 1048576, 1073741824,
         broker_member<&B::decompressed_batch_bytes_max>,
         "Most bytes that the records of a produced batch may unpack to; a topic's max.message.bytes where that is "
         "more. A larger one is refused with MESSAGE_TOO_LARGE. Kafka knows no such limit: a few kilobytes may unpack "
         "to gigabytes there. The default is 64 times the default of max.message.bytes, its own largest value."),
    ours("onesided.enable", BOOLEAN, "true", 0, 0, broker_member<&B::onesided_enable>,
         "Consumers may read log memory one-sidedly."),
    ours("onesided.grants.per.session.max", INT, "10000", 1, 1000000,
         broker_member<&B::onesided_grants_per_session_max>, "Most partitions one session may hold grants for."),
    ours("onesided.lease.ms", INT, "10000", 100, 600000, broker_member<&B::onesided_lease_ms>,
         "How long a grant lasts without renewal."),
    ours("onesided.listen", STRING, "", 0, 0, broker_member<&B::onesided_listen>,
         "Where readers of other hosts connect: `ip:port`, commas between, one a network card and two at most; empty: "
         "every RDMA-capable address, at ports that the kernel chooses. Behind a firewall name the port."),
    ours("onesided.providers", LIST, "shm,verbs", 0, 0, broker_member<&B::onesided_providers>,
         "Providers offered, best first. One that this host lacks is left out, and said to be. `ofi` is libfabric, "
         "`ucx` is UCX (docs/fabric.md); `memory` serves readers in the process that the broker is embedded in.",
         "shm|verbs|ofi|ucx|memory"),
    ours("onesided.runtime.dir", STRING, "", 0, 0, broker_member<&B::onesided_runtime_dir>,
         "Where the shm provider's UNIX socket is made; empty: `onesided` in the first log directory."),
    ours("onesided.sessions.per.principal.max", INT, "1024", 1, 1000000,
         broker_member<&B::onesided_sessions_per_principal_max>, "Most one-sided sessions of one principal."),
    ours("onesided.shm.socket.mode", STRING, "0660", 0, 0, broker_member<&B::onesided_socket_mode>,
         "Who may connect to that socket: its owner, its group, everyone. A one-time token is needed besides.",
         "0600|0660|0666"),
    ours("rdma.trusted.readers", BOOLEAN, "false", 0, 0, broker_member<&B::rdma_trusted_readers>,
         "Whoever may read one-sidedly from another host is trusted: a provider is offered even where it does not "
         "enforce what a hostile reader could break (`ofi` over all but verbs, `ucx`). Otherwise it is left out, and "
         "said to be."),
    // --- topic; the second key is the broker-wide default ---
    topic("cleanup.policy", "log.cleanup.policy", LIST, "delete", 0, 0, set_cleanup,
          "What happens to old segments: deleted, compacted, or both.", "compact|delete"),
    topic("compression.gzip.level", "compression.gzip.level", INT, "-1", -1, 9,
          topic_member<&L::compression_gzip_level>, "Level where the broker compresses with gzip; -1: the library's."),
    topic("compression.lz4.level", "compression.lz4.level", INT, "9", 1, 17, topic_member<&L::compression_lz4_level>,
          "Level where the broker compresses with lz4."),
    topic("compression.type", "compression.type", STRING, "producer", 0, 0, set_compression,
          "Codec of stored batches; `producer` keeps what arrives.", "uncompressed|zstd|lz4|snappy|gzip|producer"),
    topic("compression.zstd.level", "compression.zstd.level", INT, "3", -131072, 22,
          topic_member<&L::compression_zstd_level>, "Level where the broker compresses with zstd."),
    topic("delete.retention.ms", "log.cleaner.delete.retention.ms", LONG, "86400000", 0, long_max,
          topic_member<&L::delete_retention_ms>, "How long tombstones stay readable in a compacted topic."),
    topic("file.delete.delay.ms", "log.segment.delete.delay.ms", LONG, "60000", 0, long_max,
          topic_member<&L::file_delete_delay_ms>, "Time between a segment's removal and that of its files."),
    topic("flush.messages", "log.flush.interval.messages", LONG, "9223372036854775807", 1, long_max,
          topic_member<&L::flush_messages>, "Records after which the log is forced to the device."),
    topic("flush.ms", "log.flush.interval.ms", LONG, "9223372036854775807", 0, long_max, topic_member<&L::flush_ms>,
          "Time after which the log is forced to the device."),
    topic("follower.replication.throttled.replicas", "", LIST, "", 0, 0, ignore_topic,
          "Accepted for reassignment tools."),
    topic("index.interval.bytes", "log.index.interval.bytes", INT, "4096", 0, int_max,
          topic_member<&L::index_interval_bytes>, "Log bytes between two entries of the offset index."),
    topic("leader.replication.throttled.replicas", "", LIST, "", 0, 0, ignore_topic,
          "Accepted for reassignment tools."),
    topic("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", LONG, "9223372036854775807", 1, long_max,
          topic_member<&L::max_compaction_lag_ms>, "A record is compacted at the latest after this."),
    topic("max.message.bytes", "message.max.bytes", INT, "1048588", 0, 67108864, topic_member<&L::max_message_bytes>,
          "Largest record batch accepted (after compression)."),
    topic("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", LONG, "3600000", 0, long_max,
          topic_member<&L::timestamp_after_max_ms>, "How far a create time may lie in the future."),
    topic("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", LONG, "9223372036854775807", 0,
          long_max, topic_member<&L::timestamp_before_max_ms>, "How far a create time may lie in the past."),
    topic("message.timestamp.type", "log.message.timestamp.type", STRING, "CreateTime", 0, 0, set_timestamp_type,
          "Whose time a record carries.", "CreateTime|LogAppendTime"),
    topic("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", DOUBLE, "0.5", 0, 1,
          topic_member<&L::min_cleanable_dirty_ratio>,
          "Share of a compacted log that must be new before it is compacted again."),
    topic("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", LONG, "0", 0, long_max,
          topic_member<&L::min_compaction_lag_ms>, "A record is left uncompacted at least this long."),
    topic("min.insync.replicas", "min.insync.replicas", INT, "1", 1, int_max, topic_member<&L::min_insync_replicas>,
          "Replicas that must have a record before acks=all is answered."),
    topic("preallocate", "log.preallocate", BOOLEAN, "false", 0, 0, topic_member<&L::preallocate>,
          "Accepted, without effect."),
    topic("retention.bytes", "log.retention.bytes", LONG, "-1", -1, long_max, topic_member<&L::retention_bytes>,
          "Size above which the oldest segments are deleted; -1: no limit."),
    topic("retention.ms", "log.retention.ms", LONG, "604800000", -1, long_max, topic_member<&L::retention_ms>,
          "Age above which segments are deleted; -1: no limit."),
    topic("segment.bytes", "log.segment.bytes", INT, "1073741824", 1048576, int_max, topic_member<&L::segment_bytes>,
          "Size at which the active segment is rolled."),
    topic("segment.index.bytes", "log.index.size.max.bytes", INT, "10485760", 4, int_max,
          topic_member<&L::segment_index_bytes>, "Largest index of a segment; a full one rolls it."),
    topic("segment.jitter.ms", "log.roll.jitter.ms", LONG, "0", 0, long_max, topic_member<&L::segment_jitter_ms>,
          "Random part taken off segment.ms, so that segments do not roll together."),
    topic("segment.ms", "log.roll.ms", LONG, "604800000", 1, long_max, topic_member<&L::segment_ms>,
          "Age at which the active segment is rolled."),
    topic("unclean.leader.election.enable", "unclean.leader.election.enable", BOOLEAN, "false", 0, 0,
          topic_member<&L::unclean_leader_election_enable>,
          "Accepted, without effect while a partition has one replica."),
};

}  // namespace

std::span<const Setting> all_settings() { return rows; }

}  // namespace ciuic::broker
