// ciuic consume: records to standard output, as kcat's -C does.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "client/include/ciuic/consumer.h"
#include "tools/ciuic/client_options.h"
#include "tools/ciuic/commands.h"
#include "tools/ciuic/record_format.h"

namespace ciuic::tool {
namespace {

std::atomic<bool> stop_asked{false};  // lock-free: a signal handler sets it

struct Options {
  std::string topic;
  std::string format = "%s\\n";
  std::string from = "beginning";
  std::string group;
  std::string transport = "auto";
  std::string isolation = "read_uncommitted";
  std::vector<std::int32_t> partitions;
  std::vector<std::string> settings;
  std::int64_t count = -1;
  bool exit_at_end = false;
  bool show_path = false;
};

using At = std::map<std::int32_t, std::int64_t>;

bool at_beginning(const Options& options) { return options.from == "beginning" || options.from == "earliest"; }
bool at_end(const Options& options) { return options.from == "end" || options.from == "latest"; }

/// A group's progress: what has been printed, not what has been fetched, as -c or a fault may end between the two.
class Commits {
 public:
  void printed(std::int32_t partition, std::int64_t next) { next_[partition] = next; }
  void lost(std::span<const client::TopicPartition> partitions) {
    for (const auto& each : partitions) next_.erase(each.partition);
  }
  client::Result<void> commit(client::Consumer& consumer, const std::string& topic, client::Milliseconds patience) {
    last_ = std::chrono::steady_clock::now();
    if (next_.empty() || std::fflush(stdout) != 0) return {};
    std::vector<client::TopicPartitionOffset> offsets;
    for (const auto& [partition, next] : next_) offsets.push_back({topic, partition, next, {}});
    auto done = consumer.commit_sync(offsets, patience);
    if (done) next_.clear();
    return done;
  }
  void forget() { next_.clear(); }
  [[nodiscard]] bool due() const { return std::chrono::steady_clock::now() - last_ >= std::chrono::seconds(1); }

 private:
  At next_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// What of -g, -o, -p and -e does not go together.
void check_combination(const Options& options) {
  const bool stored = options.from == "stored";
  if (options.group.empty()) {
    if (stored) throw Failure(Exit::usage, "-o stored: no group has stored anything", "name one with --group");
    return;
  }
  if (options.exit_at_end)
    throw Failure(Exit::usage, "-e and --group exclude each other",
                  "a group's members share partitions: none of them knows the end; use -c");
  if (!options.partitions.empty())
    throw Failure(Exit::usage, "-p and --group exclude each other", "a group deals out the partitions; leave out one");
  if (!stored && !at_beginning(options) && !at_end(options))
    throw Failure(Exit::usage, fmt::format("-o {} and --group exclude each other", options.from),
                  "a group begins where it has committed, else at -o beginning or -o end; `ciuic groups reset-offsets` "
                  "moves it");
}

/// The topic's partitions, or those of -p, which must be among them. Asks by itself: the client library would wait for
/// a topic that may still come.
std::vector<client::TopicPartition> wanted_partitions(const Common& common, const Options& options) {
  Cluster cluster(common.bootstrap, std::chrono::milliseconds(common.timeout_ms));
  std::set<std::int32_t> there;
  for (const auto& partition : cluster.topic(options.topic).partitions) there.insert(partition.partition_index);
  std::vector<client::TopicPartition> all;
  for (const auto index : options.partitions) {
    if (there.count(index) == 0)
      throw Failure(Exit::usage,
                    fmt::format("{}-{}: the topic has partitions 0 … {}", options.topic, index, *there.rbegin()));
    all.push_back({options.topic, index});
  }
  if (all.empty()) {
    for (const auto index : there) all.push_back({options.topic, index});
  }
  return all;
}

At by_partition(const std::vector<client::TopicPartitionOffset>& offsets) {
  At found;
  for (const auto& each : offsets) found[each.partition] = each.offset;
  return found;
}

/// Where -o says to begin, for every partition.
std::vector<client::TopicPartitionOffset> starts(client::Consumer& consumer,
                                                 const std::vector<client::TopicPartition>& partitions,
                                                 const Options& options, client::Milliseconds patience) {
  std::vector<client::TopicPartitionOffset> out;
  for (const auto& at : partitions) out.push_back({at.topic, at.partition, client::offset_beginning, {}});
  if (at_beginning(options)) return out;
  if (at_end(options)) {
    for (auto& each : out) each.offset = client::offset_end;
    return out;
  }
  const auto& from = options.from;
  if (!from.empty() && from.front() == '@') {
    const auto time = parse_time(from.substr(1));
    for (auto& each : out) each.offset = time;
    auto found = value_or_fail(consumer.offsets_for_times(out, patience));
    for (auto& each : found) {
      if (each.offset < 0) each.offset = client::offset_end;  // nothing later
    }
    return found;
  }
  const auto number = whole_number<std::int64_t>(from);
  if (!number) {
    throw Failure(Exit::usage, "no place to begin: " + from,
                  "write beginning, end, stored, an offset, -N (that many from the end) or @time");
  }
  if (*number >= 0) {
    for (auto& each : out) each.offset = *number;
    return out;
  }
  const auto ends = by_partition(value_or_fail(consumer.end_offsets(partitions, patience)));
  const auto begins = by_partition(value_or_fail(consumer.beginning_offsets(partitions, patience)));
  for (auto& each : out) each.offset = std::max(ends.at(each.partition) + *number, begins.at(each.partition));
  return out;
}

Json optional_text(const std::optional<client::Bytes>& bytes) {
  return bytes ? Json(std::string(client::as_text(*bytes))) : Json();
}

void write_json(std::string& out, const client::RecordBatch& batch, const client::Record& record) {
  Json headers = Json::array();
  for (const auto& header : record.headers) headers.push_back({std::string(header.key), optional_text(header.value)});
  const Json json{{"topic", batch.topic()},
                  {"partition", batch.partition()},
                  {"offset", record.offset},
                  {"ts", record.timestamp},
                  {"tstype", record.timestamp_type == client::TimestampType::create_time ? "create" : "logappend"},
                  {"headers", std::move(headers)},
                  {"key", optional_text(record.key)},
                  {"payload", optional_text(record.value)}};
  out += json.dump(-1, ' ', false, Json::error_handler_t::replace);
  out += '\n';
}

/// Removes partitions that have been read as far as they went when we began; true when none is left.
bool all_read(client::Consumer& consumer, const std::string& topic, At& ends) {
  for (auto at = ends.begin(); at != ends.end();) {
    const auto position = consumer.position({topic, at->first});
    at = position && *position >= at->second ? ends.erase(at) : std::next(at);
  }
  return ends.empty();
}

void report_paths(client::Consumer& consumer) {
  for (const auto& at : consumer.assignment()) {
    const auto path = consumer.path(at);
    std::fputs(fmt::format("{}-{}: {}{}{}{}\n", at.topic, at.partition, client::name(path.path),
                           path.provider.empty() ? "" : " by ", path.provider,
                           path.reason.empty() ? "" : " (" + path.reason + ")")
                   .c_str(),
               stderr);
  }
}

void run(const Common& common, const Options& options) {
  const RecordFormat format(options.format);
  check_combination(options);
  const client::Milliseconds patience(common.timeout_ms);
  const auto brief =
      std::min(patience, client::Milliseconds(2000));  // for what is tried again, or not to keep a ^C waiting
  // In front: -X has the last word. A name mistyped is told, not made into a topic.
  client::Config first{{"allow.auto.create.topics", "false"},
                       {"enable.auto.commit", "false"},
                       {"transport", options.transport},
                       {"isolation.level", options.isolation}};
  if (!options.group.empty()) {
    first.emplace_back("group.id", options.group);
    first.emplace_back("auto.offset.reset", at_end(options) ? "latest" : "earliest");
  }
  auto config = client_config(common, options.settings);
  config.insert(config.begin(), first.begin(), first.end());
  Commits commits;  // outlives the consumer, whose end calls the listener
  auto consumer = value_or_fail(client::Consumer::open(config));
  At ends;
  const auto partitions = wanted_partitions(common, options);
  if (options.group.empty()) {
    if (options.exit_at_end) ends = by_partition(value_or_fail(consumer.end_offsets(partitions, patience)));
    throw_on_error(consumer.assign(starts(consumer, partitions, options, patience)));
  } else {
    client::RebalanceListener listener;
    listener.revoked = [&](std::span<const client::TopicPartition> gone) {
      (void)commits.commit(consumer, options.topic, brief);  // in vain: another member prints them again
      commits.lost(gone);
    };
    listener.lost = [&commits](std::span<const client::TopicPartition> gone) { commits.lost(gone); };
    throw_on_error(consumer.subscribe({options.topic}, std::move(listener)));
  }
  struct sigaction action {};
  action.sa_handler = [](int) { stop_asked = true; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);

  Progress progress("records", options.count > 0 ? static_cast<std::uint64_t>(options.count) : 0,
                    ::isatty(STDOUT_FILENO) == 0);
  client::RecordReader reader;
  std::string out;
  std::int64_t done = 0;
  bool path_told = !options.show_path;
  const auto enough = [&] { return options.count >= 0 && done >= options.count; };
  while (!enough() && !stop_asked) {
    const auto batches = value_or_fail(consumer.poll(client::Milliseconds(200)));
    for (const auto& batch : batches) {
      throw_on_error(reader.open(batch));
      out.clear();
      auto next = batch.last_offset() + 1;
      while (const auto* record = reader.next()) {
        if (enough()) {
          next = record->offset;
          break;
        }
        common.json ? write_json(out, batch, *record) : format.write(out, batch, *record);
        ++done;
      }
      if (reader.error() != nullptr) fail(*reader.error());
      throw_on_error(reader.open({}));  // gives back what a large batch took
      // Bytes in another process's memory are vouched for only afterwards.
      if (!batch.in_force())
        throw Failure(Exit::failed, "a lease ended while records were being printed",
                      "the broker was away for longer than a lease: run it again");
      if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size())
        throw Failure(Exit::failed, "standard output is gone");
      constexpr std::size_t text_kept_max = 4U << 20;
      if (out.capacity() > text_kept_max) std::string().swap(out);
      commits.printed(batch.partition(), next);
      progress.at(static_cast<std::uint64_t>(done));
      if (!path_told) {
        report_paths(consumer);
        path_told = true;
      }
    }
    if (batches.empty()) std::fflush(stdout);
    if (!options.group.empty() && commits.due())
      (void)commits.commit(consumer, options.topic, brief);  // or a second later
    if (options.exit_at_end && (batches.empty() || !ends.empty()) && all_read(consumer, options.topic, ends)) break;
  }
  std::fflush(stdout);
  if (!options.group.empty()) {
    const auto committed = commits.commit(consumer, options.topic, stop_asked ? brief : patience);
    commits.forget();  // the end of the consumer does not try once more
    throw_on_error(committed);
  }
  throw_on_error(consumer.close());
  if (stop_asked) throw Failure(Exit::interrupted, fmt::format("interrupted after {} records", done));
}

}  // namespace

void add_consume(CLI::App& app, Common& common) {
  auto options = std::make_shared<Options>();
  auto* const command = app.add_subcommand("consume", "Print records, over TCP or one-sidedly");
  add_common(*command, common);
  command->add_option("topic", options->topic, "The topic")->required();
  command
      ->add_option(
          "-f,--format", options->format,
          "%s value %S length %k key %K length %t topic %p partition %o offset %T timestamp %h headers; \\n \\t \\xHH")
      ->capture_default_str();
  command
      ->add_option("-o,--offset", options->from,
                   "beginning, end, stored, an offset, -N (that many from the end), @time")
      ->capture_default_str();
  command->add_option("-c,--count", options->count, "Exit after this many records")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  command->add_flag("-e,--exit", options->exit_at_end, "Exit at the end");
  command->add_option("-p,--partition", options->partitions, "Only this partition; may be repeated")
      ->check(CLI::Range(0, std::numeric_limits<std::int32_t>::max()))
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("-g,--group", options->group, "Join this group and commit");
  command->add_option("--transport", options->transport, "rdma fails where auto falls back to tcp")
      ->check(CLI::IsMember({"auto", "rdma", "tcp"}))
      ->capture_default_str();
  command->add_option("--isolation", options->isolation, "What of transactions is shown")
      ->check(CLI::IsMember({"read_uncommitted", "read_committed"}))
      ->capture_default_str();
  command->add_flag("--path", options->show_path, "Say on standard error which way the bytes come, and why");
  command->add_option("-X", options->settings, "Any client setting: key=value; may be repeated")
      ->allow_extra_args(false);
  command->callback([&common, options] { run(common, *options); });
}

}  // namespace ciuic::tool
