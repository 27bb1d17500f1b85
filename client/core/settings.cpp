// The client's settings: one table, from which parsing, `settings()` and docs/configuration.md come.
#include "client/core/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <optional>
#include <system_error>

#include "ciuic/client.h"
#include "client/core/error.h"
#include "transport/base/log.h"

namespace ciuic::client::core {
namespace {

struct All {
  ConsumerSettings consumer{};
  ProducerSettings producer{};
  std::optional<bool> idempotence_asked{};
};

/// Sets the value; false: not allowed.
using Set = bool (*)(All&, std::string_view);

struct Row {
  SettingInfo info;
  Set set;
};

bool to_number(std::string_view text, std::int64_t min, std::int64_t max, std::int64_t& out) {
  std::int64_t number = 0;
  const auto* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stopped != end || number < min || number > max) return false;
  out = number;
  return true;
}
bool to_bool(std::string_view text, bool& out) {
  if (text != "true" && text != "false") return false;
  out = text == "true";
  return true;
}
template <class T, std::size_t n>
bool to_choice(std::string_view text, const std::array<std::pair<std::string_view, T>, n>& choices, T& out) {
  for (const auto& [word, value] : choices) {
    if (word != text) continue;
    out = value;
    return true;
  }
  return false;
}
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    auto one = text.substr(0, comma);
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
    if (!one.empty()) out.emplace_back(one);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

bool set_bootstrap(All& all, std::string_view text) {
  std::vector<Address> found;
  for (const auto& one : split(text)) {
    auto address = parse_address(one);
    if (!address) return false;
    found.push_back(*std::move(address));
  }
  if (found.empty()) return false;
  all.consumer.bootstrap = all.producer.bootstrap = std::move(found);
  return true;
}
bool set_assignors(All& all, std::string_view text) {
  auto names = split(text);
  for (const auto& one : names) {
    if (one != "range" && one != "roundrobin") return false;
  }
  all.consumer.assignors = std::move(names);
  return !all.consumer.assignors.empty();
}
bool set_acks(All& all, std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::int16_t>, 4> choices{
      {{"all", -1}, {"-1", -1}, {"1", 1}, {"0", 0}}};
  return to_choice<std::int16_t>(text, choices, all.producer.acks);
}

constexpr std::int64_t day_ms = 86'400'000;
constexpr std::int64_t int_max = std::numeric_limits<std::int32_t>::max();

// One number of one kind of client, or of both.
#define CIUIC_BOTH(member, min, max)                                                                         \
  [](All& all, std::string_view text) {                                                                      \
    return to_number(text, min, max, all.consumer.member) && to_number(text, min, max, all.producer.member); \
  }
#define CIUIC_CONSUMER(member, min, max) \
  [](All& all, std::string_view text) { return to_number(text, min, max, all.consumer.member); }
#define CIUIC_PRODUCER(member, min, max) \
  [](All& all, std::string_view text) { return to_number(text, min, max, all.producer.member); }

const std::array rows{
    Row{{"bootstrap.servers", "both", "string", "", "host:port, comma separated", "Brokers to ask first. Required."},
        set_bootstrap},
    Row{{"client.id", "both", "string", "ciuic", "any text", "Name in the broker's logs and quotas."},
        [](All& all, std::string_view text) {
          all.consumer.client_id = all.producer.client_id = text;
          return true;
        }},
    Row{{"security.protocol", "both", "choice", "PLAINTEXT", "PLAINTEXT", "How connections are protected."},
        [](All&, std::string_view text) { return text == "PLAINTEXT" || text == "plaintext"; }},
    Row{{"request.timeout.ms", "both", "integer", "30000", "1 … 86400000", "Longest wait for an answer."},
        CIUIC_BOTH(request_timeout_ms, 1, day_ms)},
    Row{{"socket.connection.setup.timeout.ms", "both", "integer", "10000", "1 … 86400000",
         "Longest wait for a connection."},
        CIUIC_BOTH(connect_timeout_ms, 1, day_ms)},
    Row{{"metadata.max.age.ms", "both", "integer", "300000", "100 … 86400000",
         "Topics are asked for again after this long."},
        CIUIC_BOTH(metadata_max_age_ms, 100, day_ms)},
    Row{{"reconnect.backoff.ms", "both", "integer", "50", "1 … 86400000",
         "First pause before a broker is dialled again; doubles."},
        CIUIC_BOTH(reconnect_backoff_ms, 1, day_ms)},
    Row{{"reconnect.backoff.max.ms", "both", "integer", "1000", "1 … 86400000", "Longest of those pauses."},
        CIUIC_BOTH(reconnect_backoff_max_ms, 1, day_ms)},
    Row{{"retry.backoff.ms", "both", "integer", "100", "1 … 86400000", "Pause before a request is tried again."},
        CIUIC_BOTH(retry_backoff_ms, 1, day_ms)},
    Row{{"receive.message.max.bytes", "both", "integer", "1073741824", "1024 … 2147483647",
         "A larger answer ends the connection."},
        CIUIC_BOTH(answer_bytes_max, 1024, int_max)},
    Row{{"allow.auto.create.topics", "both", "boolean", "true", "true, false",
         "Asking for an unknown topic may create it, if the broker allows."},
        [](All& all, std::string_view text) {
          return to_bool(text, all.consumer.auto_create_topics) && to_bool(text, all.producer.auto_create_topics);
        }},

    Row{{"transport", "consumer", "choice", "auto", "auto, rdma, tcp",
         "How bytes are read: rdma insists on one-sided reads (shm on one host included), auto falls back to tcp."},
        [](All& all, std::string_view text) {
          static constexpr std::array<std::pair<std::string_view, Transport>, 3> choices{
              {{"auto", Transport::automatic}, {"rdma", Transport::rdma}, {"tcp", Transport::tcp}}};
          return to_choice(text, choices, all.consumer.transport);
        }},
    Row{{"onesided.providers", "consumer", "string", "", "provider names, comma separated",
         "One-sided providers to offer; empty: all of this build."},
        [](All& all, std::string_view text) {
          all.consumer.providers = split(text);
          return true;
        }},
    Row{{"onesided.source", "consumer", "string", "", "an IP address of this host, or two",
         "Network card of one-sided reads over a fabric, by its address; two with a comma between: both; empty: the "
         "routes to "
         "the broker's addresses decide."},
        [](All& all, std::string_view text) {
          all.consumer.onesided_source = text;
          return true;
        }},
    Row{{"onesided.read.bytes", "consumer", "integer", "1048576", "4096 … 134217728",
         "One READ, and what a poll returns of a one-sided partition, at most."},
        CIUIC_CONSUMER(onesided_read_bytes, 4096, 134'217'728)},
    Row{{"onesided.grant.bytes", "consumer", "integer", "67108864", "4096 … 2147483647",
         "Log that one grant should cover, if the broker has it in memory."},
        CIUIC_CONSUMER(onesided_grant_bytes, 4096, int_max)},
    Row{{"group.id", "consumer", "string", "", "any text", "Consumer group: needed to subscribe and to commit."},
        [](All& all, std::string_view text) {
          all.consumer.group_id = text;
          return true;
        }},
    Row{{"group.instance.id", "consumer", "string", "", "any text",
         "Static membership: a restart keeps its partitions."},
        [](All& all, std::string_view text) {
          all.consumer.group_instance_id = text;
          return true;
        }},
    Row{{"partition.assignment.strategy", "consumer", "string", "range,roundrobin", "range, roundrobin",
         "How a group's leader shares partitions out, first choice first."},
        set_assignors},
    Row{{"session.timeout.ms", "consumer", "integer", "45000", "1 … 3600000",
         "A member that is silent this long is out."},
        CIUIC_CONSUMER(session_timeout_ms, 1, 3'600'000)},
    Row{{"heartbeat.interval.ms", "consumer", "integer", "3000", "1 … 3600000", "Pause between heartbeats."},
        CIUIC_CONSUMER(heartbeat_interval_ms, 1, 3'600'000)},
    Row{{"max.poll.interval.ms", "consumer", "integer", "300000", "1 … 86400000",
         "A member that does not poll this long leaves the group."},
        CIUIC_CONSUMER(max_poll_interval_ms, 1, day_ms)},
    Row{{"enable.auto.commit", "consumer", "boolean", "true", "true, false", "Commit positions in the background."},
        [](All& all, std::string_view text) { return to_bool(text, all.consumer.auto_commit); }},
    Row{{"auto.commit.interval.ms", "consumer", "integer", "5000", "0 … 86400000", "Pause between those commits."},
        CIUIC_CONSUMER(auto_commit_interval_ms, 0, day_ms)},
    Row{{"auto.offset.reset", "consumer", "choice", "latest", "earliest, latest, none",
         "Where to begin without a committed offset, or when it is gone."},
        [](All& all, std::string_view text) {
          static constexpr std::array<std::pair<std::string_view, OffsetReset>, 6> choices{
              {{"earliest", OffsetReset::earliest},
               {"latest", OffsetReset::latest},
               {"none", OffsetReset::none},
               {"smallest", OffsetReset::earliest},
               {"largest", OffsetReset::latest},
               {"error", OffsetReset::none}}};
          return to_choice(text, choices, all.consumer.offset_reset);
        }},
    Row{{"isolation.level", "consumer", "choice", "read_uncommitted", "read_uncommitted, read_committed",
         "What of transactions is read."},
        [](All& all, std::string_view text) {
          static constexpr std::array<std::pair<std::string_view, kafka::Isolation>, 2> choices{
              {{"read_uncommitted", kafka::Isolation::read_uncommitted},
               {"read_committed", kafka::Isolation::read_committed}}};
          return to_choice(text, choices, all.consumer.isolation);
        }},
    Row{{"fetch.min.bytes", "consumer", "integer", "1", "0 … 2147483647", "Fetch over TCP waits for this much."},
        CIUIC_CONSUMER(fetch_min_bytes, 0, int_max)},
    Row{{"fetch.max.wait.ms", "consumer", "integer", "500", "0 … 300000",
         "But not longer than this. One-sided readers are told of news at once, and need no such limit."},
        CIUIC_CONSUMER(fetch_max_wait_ms, 0, 300'000)},
    Row{{"fetch.max.bytes", "consumer", "integer", "52428800", "1 … 2147483647", "Of one Fetch answer."},
        CIUIC_CONSUMER(fetch_max_bytes, 1, int_max)},
    Row{{"max.partition.fetch.bytes", "consumer", "integer", "1048576", "1 … 2147483647",
         "Of a partition in one Fetch answer; see onesided.grant.bytes for the other path."},
        CIUIC_CONSUMER(partition_fetch_bytes, 1, int_max)},
    Row{{"max.decompressed.batch.bytes", "consumer", "integer", "268435456", "1024 … 2147483647",
         "The records of a batch that unpack to more are an error where they are read. Four times what a broker lets "
         "in "
         "by its setting of this name; Apache's brokers let in any size."},
        CIUIC_CONSUMER(decompressed_batch_bytes_max, 1024, int_max)},
    Row{{"check.crcs", "consumer", "boolean", "true", "true, false",
         "Check batches that came over TCP. Those read one-sidedly are always checked."},
        [](All& all, std::string_view text) { return to_bool(text, all.consumer.check_crcs); }},

    Row{{"acks", "producer", "choice", "all", "all, 1, 0", "When a record counts as written."}, set_acks},
    Row{{"enable.idempotence", "producer", "boolean", "true", "true, false",
         "Exactly once and in order a partition; needs acks=all. Off by itself where acks is not all."},
        [](All& all, std::string_view text) {
          bool on = false;
          if (!to_bool(text, on)) return false;
          all.idempotence_asked = on;
          return true;
        }},
    Row{{"compression.type", "producer", "choice", "none", "none, gzip, snappy, lz4, zstd", "Codec of batches."},
        [](All& all, std::string_view text) {
          const auto codec = kafka::parse_codec(text);
          if (codec) all.producer.codec = *codec;
          return codec.has_value();
        }},
    Row{{"compression.level", "producer", "integer", "-1", "-1 … 22",
         "Of gzip (1 … 9), lz4 (1 … 12) and zstd (1 … 22); -1: the library's own."},
        [](All& all, std::string_view text) {
          if (!to_number(text, -1, 22, all.producer.compression_level)) return false;
          if (all.producer.compression_level == -1) all.producer.compression_level = kafka::default_level;
          return true;
        }},
    Row{{"linger.ms", "producer", "integer", "5", "0 … 900000", "A batch that is not full waits this long for more."},
        CIUIC_PRODUCER(linger_ms, 0, 900'000)},
    Row{{"batch.size", "producer", "integer", "131072", "1 … 2147483647",
         "Bytes of a batch before compression, at most, unless one record is larger."},
        CIUIC_PRODUCER(batch_bytes, 1, int_max)},
    Row{{"buffer.memory", "producer", "integer", "67108864", "1024 … 1099511627776",
         "Bytes of records not yet sent; `send` blocks above."},
        CIUIC_PRODUCER(buffer_bytes, 1024, 1'099'511'627'776)},
    Row{{"max.request.size", "producer", "integer", "1048576", "1 … 2147483647", "Of one record, and of one request."},
        CIUIC_PRODUCER(request_bytes_max, 1, int_max)},
    Row{{"max.block.ms", "producer", "integer", "60000", "0 … 86400000",
         "Longest wait of `send` for metadata and memory."},
        CIUIC_PRODUCER(max_block_ms, 0, day_ms)},
    Row{{"delivery.timeout.ms", "producer", "integer", "120000", "1 … 86400000",
         "A record that is not written after this long fails."},
        CIUIC_PRODUCER(delivery_timeout_ms, 1, day_ms)},
    Row{{"max.in.flight.requests.per.connection", "producer", "integer", "5", "1 … 1000",
         "Requests to one broker at a time; at most 5 with idempotence."},
        CIUIC_PRODUCER(in_flight_max, 1, 1000)},
    Row{{"partitioner", "producer", "choice", "murmur2_random",
         "murmur2_random, murmur2, consistent_random, consistent, random",
         "How a key chooses its partition: murmur2 as Java's clients, consistent (CRC32) as librdkafka's; _random: "
         "records without a key go anywhere."},
        [](All& all, std::string_view text) {
          static constexpr std::array<std::pair<std::string_view, Partitioner>, 5> choices{
              {{"murmur2_random", Partitioner::murmur2_random},
               {"murmur2", Partitioner::murmur2},
               {"consistent_random", Partitioner::consistent_random},
               {"consistent", Partitioner::consistent},
               {"random", Partitioner::random}}};
          return to_choice(text, choices, all.producer.partitioner);
        }},
};
#undef CIUIC_BOTH
#undef CIUIC_CONSUMER
#undef CIUIC_PRODUCER

/// librdkafka's and Java's other names for the same thing.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> aliases{
    {{"metadata.broker.list", "bootstrap.servers"},
     {"fetch.wait.max.ms", "fetch.max.wait.ms"},
     {"fetch.message.max.bytes", "max.partition.fetch.bytes"},
     {"request.required.acks", "acks"},
     {"compression.codec", "compression.type"},
     {"queue.buffering.max.ms", "linger.ms"},
     {"message.timeout.ms", "delivery.timeout.ms"},
     {"message.max.bytes", "max.request.size"},
     {"max.in.flight", "max.in.flight.requests.per.connection"}}};

const Row* find(std::string_view key) {
  for (const auto& [alias, real] : aliases) {
    if (alias == key) key = real;
  }
  const auto* const found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.info.key == key; });
  return found == rows.end() ? nullptr : found;
}

Result<All> parse(const Config& config) {
  All all;
  for (const auto& row : rows) {
    if (row.info.standard[0] != '\0') row.set(all, row.info.standard);
  }
  all.idempotence_asked.reset();  // its default follows acks
  for (const auto& [key, value] : config) {
    const auto* const row = find(key);
    if (row == nullptr)
      return failure(Trouble::invalid_config,
                     fmt::format("{}: no such setting; docs/configuration.md lists them", key));
    if (!row->set(all, value))
      return failure(Trouble::invalid_config,
                     fmt::format("{}={}: not allowed; allowed: {}", key, value, row->info.allowed));
  }
  if (all.consumer.bootstrap.empty())
    return failure(Trouble::invalid_config, "bootstrap.servers is missing: name a broker as host:port");
  return all;
}

}  // namespace

Result<Address> parse_address(const std::string& text) {
  const auto colon = text.rfind(':');
  std::int64_t port = 9092;
  auto host = text;
  if (colon != std::string::npos && text.back() != ']') {
    if (!to_number(std::string_view(text).substr(colon + 1), 1, 65535, port))
      return failure(Trouble::invalid_config, text + ": no such port; write host:port");
    host = text.substr(0, colon);
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty()) return failure(Trouble::invalid_config, text + ": no host; write host:port");
  return Address{host, static_cast<std::uint16_t>(port)};
}

Result<ConsumerSettings> consumer_settings(const Config& config) {
  auto all = parse(config);
  if (!all) return all.error();
  auto settings = std::move(all->consumer);
  if (settings.heartbeat_interval_ms >= settings.session_timeout_ms) {
    return failure(Trouble::invalid_config,
                   fmt::format("heartbeat.interval.ms={}: must be below session.timeout.ms ({})",
                               settings.heartbeat_interval_ms, settings.session_timeout_ms));
  }
  return settings;
}

Result<ProducerSettings> producer_settings(const Config& config) {
  auto all = parse(config);
  if (!all) return all.error();
  auto settings = std::move(all->producer);
  const bool asked = all->idempotence_asked.value_or(false);
  settings.idempotence = all->idempotence_asked.value_or(settings.acks == -1);
  if (asked && settings.acks != -1)
    return failure(Trouble::invalid_config,
                   fmt::format("acks={}: enable.idempotence=true needs acks=all", settings.acks));
  if (settings.idempotence && settings.in_flight_max > 5) {
    if (asked)
      return failure(Trouble::invalid_config,
                     fmt::format("max.in.flight.requests.per.connection={}: at most 5 with enable.idempotence=true",
                                 settings.in_flight_max));
    settings.in_flight_max = 5;
  }
  return settings;
}

}  // namespace ciuic::client::core

namespace ciuic::client {

const char* version() { return CIUIC_VERSION; }

std::span<const SettingInfo> settings() {
  static const auto infos = [] {
    std::vector<SettingInfo> out;
    for (const auto& row : core::rows) out.push_back(row.info);
    return out;
  }();
  return infos;
}

bool set_log_level(std::string_view level) {
  log::Level parsed{};
  if (!log::parse_level(level, parsed)) return false;
  log::set_level(parsed);
  return true;
}

}  // namespace ciuic::client
