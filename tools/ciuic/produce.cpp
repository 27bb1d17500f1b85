// ciuic produce: lines, or whole files, to a topic.
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>

#include "client/include/ciuic/producer.h"
#include "tools/ciuic/client_options.h"
#include "tools/ciuic/commands.h"
#include "tools/ciuic/failure.h"

namespace ciuic::tool {
namespace {

struct Options {
  std::string topic;
  std::vector<std::string> files;
  std::string key_separator;
  std::string delimiter = "\n";
  std::string compression = "none";
  std::string acks = "all";
  std::vector<std::string> headers;
  std::vector<std::string> settings;
  std::int32_t partition = -1;
  bool whole = false;
  bool empty_is_null = false;
};

/// Counts what came back; the first error is kept for the report.
struct Outcome {
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> failed{0};
  std::mutex mutex;
  std::string first_error;
};

class Sender {
 public:
  Sender(client::Producer& producer, const Options& options, std::shared_ptr<Outcome> outcome)
      : producer_(producer), options_(options), outcome_(std::move(outcome)) {
    for (const auto& text : options.headers) {
      const auto equals = text.find('=');
      if (equals == std::string::npos) throw Failure(Exit::usage, "no header: " + text, "write -H key=value");
      headers_.push_back(
          {std::string_view(text).substr(0, equals), client::as_bytes(std::string_view(text).substr(equals + 1))});
    }
  }

  void send(std::string_view text) {
    client::RecordToSend record;
    record.topic = options_.topic;
    if (options_.partition >= 0) record.partition = options_.partition;
    if (const auto at = options_.key_separator.empty() ? std::string_view::npos : text.find(options_.key_separator);
        at != std::string_view::npos) {
      record.key = client::as_bytes(text.substr(0, at));
      text.remove_prefix(at + options_.key_separator.size());
    }
    if (!text.empty() || !options_.empty_is_null) record.value = client::as_bytes(text);
    record.headers = headers_;
    throw_on_error(producer_.send(record, [outcome = outcome_](const client::Result<client::Written>& result) {
      if (result) {
        ++outcome->written;
        return;
      }
      ++outcome->failed;
      const std::lock_guard lock(outcome->mutex);
      if (outcome->first_error.empty()) outcome->first_error = result.error().text;
    }));
  }

 private:
  client::Producer& producer_;
  const Options& options_;
  std::shared_ptr<Outcome> outcome_;
  std::vector<client::Header> headers_;
};

void send_lines(std::FILE* in, const std::string& path, Sender& sender, const Options& options, Progress& progress) {
  std::string pending;
  std::uint64_t done = 0;
  char block[1 << 16];
  for (;;) {
    const auto got = ::read(::fileno(in), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Failure(Exit::failed, fmt::format("{}: {}", path, std::strerror(errno)));
    if (got == 0) break;
    pending.append(block, static_cast<std::size_t>(got));
    std::size_t from = 0;
    for (std::size_t at = 0; (at = pending.find(options.delimiter, from)) != std::string::npos;
         from = at + options.delimiter.size()) {
      sender.send(std::string_view(pending).substr(from, at - from));
    }
    done += static_cast<std::uint64_t>(got);
    pending.erase(0, from);
    progress.at(done);
  }
  if (!pending.empty()) sender.send(pending);
}

void run(const Common& common, const Options& options) {
  // In front: -X has the last word.
  client::Config first{{"max.block.ms", std::to_string(common.timeout_ms)},
                       {"compression.type", options.compression},
                       {"acks", options.acks}};
  if (options.acks != "all" && options.acks != "-1") first.emplace_back("enable.idempotence", "false");
  auto config = client_config(common, options.settings);
  config.insert(config.begin(), first.begin(), first.end());
  auto producer = value_or_fail(client::Producer::open(config));
  const auto outcome = std::make_shared<Outcome>();
  Sender sender(producer, options, outcome);
  auto files = options.files;
  if (files.empty()) files.emplace_back("-");
  for (const auto& path : files) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(
        path == "-" ? nullptr : std::fopen(path.c_str(), "re"),
        [](std::FILE* f) { return f == nullptr ? 0 : std::fclose(f); });
    if (path != "-" && opened == nullptr)
      throw Failure(Exit::failed, fmt::format("{}: {}", path, std::strerror(errno)));
    std::error_code error;
    const auto size = path == "-" ? 0 : std::filesystem::file_size(path, error);
    Progress progress(path == "-" ? "bytes" : path, error ? 0 : size, path != "-" || ::isatty(STDIN_FILENO) == 0);
    auto* const in = path == "-" ? stdin : opened.get();
    if (!options.whole) {
      send_lines(in, path, sender, options, progress);
      continue;
    }
    std::string all;
    char block[1 << 16];
    for (std::size_t got = 0; (got = std::fread(block, 1, sizeof block, in)) > 0;) all.append(block, got);
    if (std::ferror(in) != 0) throw Failure(Exit::failed, fmt::format("{}: {}", path, std::strerror(errno)));
    sender.send(all);
  }
  throw_on_error(producer.flush());
  throw_on_error(producer.close());
  if (common.json)
    print_json(
        Json{{"topic", options.topic}, {"written", outcome->written.load()}, {"failed", outcome->failed.load()}});
  if (outcome->failed != 0)
    throw Failure(Exit::failed,
                  fmt::format("{} records were not written: {}", outcome->failed.load(), outcome->first_error));
}

}  // namespace

void add_produce(CLI::App& app, Common& common) {
  auto options = std::make_shared<Options>();
  auto* const command = app.add_subcommand("produce", "Send lines from standard input or files");
  add_common(*command, common);
  command->add_option("topic", options->topic, "The topic")->required();
  command->add_option("file", options->files, "Files; - or none: standard input");
  command->add_option("-K,--key-separator", options->key_separator,
                      "What ends the key in a line; without it there are no keys");
  command->add_option("-D,--delimiter", options->delimiter, "What ends a record instead of a newline")
      ->check([](const std::string& text) { return text.empty() ? "may not be empty" : ""; });
  command->add_option("-z,--compression", options->compression, "Codec of the batches")
      ->check(CLI::IsMember({"none", "gzip", "snappy", "lz4", "zstd"}))
      ->capture_default_str();
  command->add_option("-p,--partition", options->partition, "Always this partition")
      ->check(CLI::Range(0, std::numeric_limits<std::int32_t>::max()));
  command->add_option("-H,--header", options->headers, "key=value; may be repeated")->allow_extra_args(false);
  command->add_option("--acks", options->acks, "0, 1 or all")
      ->check(CLI::IsMember({"0", "1", "-1", "all"}))
      ->capture_default_str();
  command->add_option("-X", options->settings, "Any client setting: key=value; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--whole", options->whole, "Each file is one record");
  command->add_flag("-Z,--null", options->empty_is_null, "An empty value is null (a tombstone)");
  command->callback([&common, options] { run(common, *options); });
}

}  // namespace ciuic::tool
