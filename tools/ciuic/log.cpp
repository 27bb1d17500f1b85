// ciuic log: what is in a partition's files, and whether it is whole. Reads Apache Kafka's format, which is ours.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "tools/ciuic/commands.h"
#include "tools/ciuic/failure.h"
#include "tools/ciuic/log_files.h"
#include "transport/base/unique_fd.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::tool {

namespace fs = std::filesystem;

MappedFile::MappedFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0)
    throw Failure(Exit::failed, fmt::format("{}: {}", path, std::strerror(errno)));
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;
  data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data_ == MAP_FAILED) throw Failure(Exit::failed, fmt::format("{}: {}", path, std::strerror(errno)));
}

MappedFile::~MappedFile() {
  if (size_ != 0) ::munmap(data_, size_);
}

std::int64_t base_offset_of(const std::string& path) {
  const auto stem = fs::path(path).stem().string();
  const auto base = whole_number<std::int64_t>(stem);
  if (!base || *base < 0) {
    throw Failure(Exit::usage, path + ": its name is not a base offset",
                  "name a segment's .log, .index or .timeindex, or a partition's directory");
  }
  return *base;
}

namespace {

struct Options {
  std::vector<std::string> paths;
  bool batches = false;
  bool records = false;
  bool quiet = false;
};

constexpr std::size_t unpacked_bytes_max = 1U << 30;
constexpr std::size_t index_entry_bytes = 8;
constexpr std::size_t time_entry_bytes = 12;

const char* codec_name(const kafka::RecordBatchView& batch) {
  if (!batch.codec_known()) return "unknown";
  constexpr const char* names[] = {"none", "gzip", "snappy", "lz4", "zstd"};
  return names[static_cast<std::size_t>(batch.codec())];
}

Json text_of(const std::optional<Bytes>& bytes) { return bytes ? Json(std::string(as_text(*bytes))) : Json(); }

/// What one look found: a summary for the report, and what is wrong.
struct Report {
  Json json = Json::object();
  std::vector<std::string> wrong;
  void fault(std::string text) { wrong.push_back(std::move(text)); }
};

/// Batches and records of a segment; gives the positions where batches begin.
std::set<std::size_t> look_at_log(const std::string& path, const Options& options, bool json, Report& report) {
  const MappedFile file(path);
  std::set<std::size_t> starts;
  auto next = base_offset_of(path);
  std::uint64_t batches = 0;
  std::uint64_t records = 0;
  Buffer scratch;
  Progress progress(fs::path(path).filename().string(), file.bytes().size(), !options.batches && !options.records);
  Json listed = Json::array();
  Table table({"POSITION", "BASE", "LAST", "RECORDS", "BYTES", "CODEC", "EPOCH", "PRODUCER", "SEQUENCE", "TIME", "KIND",
               "CRC"});
  for (std::size_t at = 0; at < file.bytes().size();) {
    progress.at(at);
    const auto batch = kafka::RecordBatchView::parse(file.bytes().subspan(at));
    if (!batch) {
      const auto rest = file.bytes().subspan(at);
      const bool zeros = std::all_of(rest.begin(), rest.end(), [](std::byte byte) { return byte == std::byte{0}; });
      if (!zeros)
        report.fault(fmt::format("{} at {}: {} ({} bytes to the end)", path, at, batch.error().text, rest.size()));
      if (zeros) report.json["preallocated_bytes"] = rest.size();
      break;
    }
    starts.insert(at);
    const bool whole = batch->crc_valid();
    if (!whole)
      report.fault(fmt::format("{} at {}: CRC of batch {} does not match", path, at, batch->base_offset().value));
    if (batch->base_offset().value < next)
      report.fault(fmt::format("{} at {}: offset {} after {}", path, at, batch->base_offset().value, next - 1));
    next = batch->next_offset().value;
    ++batches;
    records += static_cast<std::uint64_t>(std::max(batch->record_count(), 0));
    const auto* kind = batch->control() ? "control" : batch->transactional() ? "transactional" : "data";
    Json one{{"position", at},
             {"base_offset", batch->base_offset().value},
             {"last_offset", batch->last_offset().value},
             {"records", batch->record_count()},
             {"bytes", batch->size()},
             {"codec", codec_name(*batch)},
             {"leader_epoch", batch->leader_epoch().value},
             {"producer_id", batch->producer_id().value},
             {"producer_epoch", batch->producer_epoch().value},
             {"base_sequence", batch->base_sequence()},
             {"max_timestamp", batch->max_timestamp()},
             {"kind", kind},
             {"crc_valid", whole}};
    if (options.batches && !json && !options.records) {
      table.row({std::to_string(at), std::to_string(batch->base_offset().value),
                 std::to_string(batch->last_offset().value), std::to_string(batch->record_count()),
                 std::to_string(batch->size()), codec_name(*batch), std::to_string(batch->leader_epoch().value),
                 std::to_string(batch->producer_id().value), std::to_string(batch->base_sequence()),
                 time_text(batch->max_timestamp()), kind, whole ? "ok" : "WRONG"});
    }
    if (whole && (options.records || batch->codec() != kafka::Codec::none)) {
      auto reader = kafka::RecordReader::open(*batch, scratch, unpacked_bytes_max);
      if (!reader) {
        report.fault(fmt::format("{} at {}: {}", path, at, reader.error().text));
      } else {
        Json values = Json::array();
        while (const auto record = reader->next()) {
          if (!options.records) continue;
          if (json) {
            values.push_back({{"offset", record->offset.value},
                              {"timestamp", record->timestamp},
                              {"key", text_of(record->key)},
                              {"value", text_of(record->value)},
                              {"headers", record->header_count}});
          } else if (!options.quiet) {
            print(fmt::format("{}  {}  {}  {}", record->offset.value, time_text(record->timestamp),
                              record->key ? as_text(*record->key) : "null",
                              record->value ? as_text(*record->value) : "null"));
          }
        }
        if (reader->error() != nullptr) report.fault(fmt::format("{} at {}: {}", path, at, reader->error()));
        if (options.records && json) one["record_list"] = std::move(values);
      }
    }
    if (json && (options.batches || options.records)) listed.push_back(std::move(one));
    at += batch->size();
  }
  report.json["bytes"] = file.bytes().size();
  report.json["batches"] = batches;
  report.json["records"] = records;
  report.json["base_offset"] = base_offset_of(path);
  report.json["next_offset"] = next;
  if (json && (options.batches || options.records)) report.json["batch_list"] = std::move(listed);
  if (options.batches && !json && !options.records && !table.empty()) table.print();
  return starts;
}

/// Entries rise, and point to where a batch begins.
void look_at_index(const std::string& path, const std::set<std::size_t>* starts, std::size_t entry_bytes,
                   Report& report) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.size() % entry_bytes != 0)
    report.fault(fmt::format("{}: {} bytes are not whole entries of {}", path, bytes.size(), entry_bytes));
  std::size_t entries = 0;
  std::int64_t before = std::numeric_limits<std::int64_t>::min();
  std::int64_t before_position = -1;
  for (std::size_t at = 0; bytes.size() - at >= entry_bytes; at += entry_bytes) {
    const auto* entry = bytes.data() + at;
    if (entry_bytes == index_entry_bytes) {
      const auto offset = kafka::load_be<std::int32_t>(entry);
      const auto position = kafka::load_be<std::int32_t>(entry + 4);
      if (offset == 0 && position == 0 && at != 0) break;  // preallocated
      if (offset <= before || position <= before_position)
        report.fault(fmt::format("{}: entry {} does not rise", path, entries));
      if (starts != nullptr && starts->count(static_cast<std::size_t>(position)) == 0) {
        report.fault(fmt::format("{}: entry {} points to {}, where no batch begins", path, entries, position));
      }
      before = offset;
      before_position = position;
    } else {
      const auto timestamp = kafka::load_be<std::int64_t>(entry);
      if (timestamp == 0 && at != 0) break;
      if (timestamp < before) report.fault(fmt::format("{}: entry {} goes back in time", path, entries));
      before = timestamp;
    }
    ++entries;
  }
  report.json["entries"] = entries;
}

void look(const Common& common, const Options& options) {
  std::vector<fs::path> files;
  for (const auto& path : options.paths) {
    std::error_code error;
    if (!fs::exists(path, error))
      throw Failure(Exit::failed, fmt::format("{}: {}", path, std::strerror(error ? error.value() : ENOENT)),
                    "name a .log, .index or .timeindex, or a directory");
    if (!fs::is_directory(path, error)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
      const auto extension = entry.path().extension();
      const auto stem = entry.path().stem().string();
      const bool segment = !stem.empty() && stem.find_first_not_of("0123456789") == std::string::npos;
      if (segment && (extension == ".log" || extension == ".index" || extension == ".timeindex"))
        files.push_back(entry.path());
    }
    if (error) throw Failure(Exit::failed, fmt::format("{}: {}", path, error.message()));
  }
  std::sort(files.begin(), files.end());
  Json out = Json::array();
  std::size_t wrong = 0;
  Table table({"FILE", "BYTES", "BATCHES", "RECORDS", "NEXT OFFSET", "ENTRIES", "STATE"});
  for (const auto& path : files) {
    Report report;
    report.json["file"] = path.string();
    const auto extension = path.extension();
    if (extension == ".log") {
      (void)look_at_log(path.string(), options, common.json, report);
    } else if (extension == ".index" || extension == ".timeindex") {
      auto log = path;
      log.replace_extension(".log");
      Report ignored;
      std::error_code error;
      std::optional<std::set<std::size_t>> starts;
      if (extension == ".index" && fs::exists(log, error))
        starts = look_at_log(log.string(), Options{{}, false, false, true}, true, ignored);
      look_at_index(path.string(), starts ? &*starts : nullptr,
                    extension == ".index" ? index_entry_bytes : time_entry_bytes, report);
      report.json["bytes"] = fs::file_size(path, error);
    } else {
      throw Failure(Exit::usage, path.string() + " is no segment file",
                    "name a .log, .index or .timeindex, or a directory");
    }
    report.json["faults"] = report.wrong;
    wrong += report.wrong.size();
    const auto cell = [&](const char* key) {
      return report.json.contains(key) ? report.json[key].dump() : std::string("-");
    };
    table.row({path.parent_path().filename().string() + "/" + path.filename().string(), cell("bytes"), cell("batches"),
               cell("records"), cell("next_offset"), cell("entries"), report.wrong.empty() ? "whole" : "WRONG"});
    if (!common.json) {
      for (const auto& fault : report.wrong) print(paint(Colour::red, fault));
    }
    out.push_back(std::move(report.json));
  }
  if (common.json) {
    print_json(out);
  } else if (!options.quiet) {
    table.empty() ? print("No segment files there.") : table.print();
  }
  if (wrong != 0)
    throw Failure(Exit::found_wrong, fmt::format("{} faults in {} files", wrong, files.size()),
                  "a broker cuts a torn tail when it starts; restore other damage from a replica");
}

}  // namespace

void add_log(CLI::App& app, Common& common) {
  auto options = std::make_shared<Options>();
  auto* const command = app.add_subcommand("log", "Look into segment files: batches, records, CRCs, indexes");
  command->add_option("path", options->paths, ".log, .index or .timeindex files, or directories")->required();
  command->add_flag("--batches", options->batches, "List batches");
  command->add_flag("--records", options->records, "List records");
  command->add_flag("-q,--quiet", options->quiet, "Only faults; the exit code tells");
  command->add_flag("--json", common.json, "Output for programs");
  command->callback([&common, options] { look(common, *options); });
}

}  // namespace ciuic::tool
