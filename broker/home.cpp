#include "broker/home.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "broker/settings/settings.h"
#include "transport/base/log.h"

namespace ciuic::broker {
namespace {

struct Meta {
  bool present = false;
  std::string cluster_id;
  kafka::Uuid directory_id;
};

/// `present` stays false where there is no file.
ResultOf<Meta, std::string> read_meta(Files& files, const std::string& path, std::int32_t node_id) {
  const auto there = files.exists(path);
  if (!there) return there.error().text;
  if (!*there) return Meta{};
  const auto text = read_file(files, path);
  if (!text) return text.error().text;
  const auto keys = parse_properties(as_text(*text));
  constexpr auto remedy = "restore the file from a copy, or use an empty directory";
  if (!keys) return fmt::format("{}: {}; {}", path, keys.error(), remedy);
  const auto value = [&](const char* key) {
    const auto found = keys->find(key);
    return found == keys->end() ? std::string() : found->second;
  };
  for (const auto* key : {"version", "node.id", "cluster.id"})
    if (value(key).empty()) return fmt::format("{}: {} is missing; {}", path, key, remedy);
  if (value("version") != "1")
    return fmt::format("{}: version={} is not known, 1 is; {}", path, value("version"), remedy);
  if (value("node.id") != std::to_string(node_id)) {
    return fmt::format(
        "{}: node.id={} but the broker is configured with node.id={}; use the directory's id, or another directory",
        path, value("node.id"), node_id);
  }
  const auto directory_id = kafka::Uuid::parse(value("directory.id"));
  // Apache's older directories have none.
  if (!value("directory.id").empty() && !directory_id)
    return fmt::format("{}: directory.id={} is no id of a directory; {}", path, value("directory.id"), remedy);
  return Meta{true, value("cluster.id"), directory_id.value_or(kafka::Uuid::random())};
}

/// Two entries that are one directory, or lie in each other: each would take the other's files for its own.
std::optional<std::string> overlap(const std::vector<std::string>& directories) {
  std::vector<std::filesystem::path> real;
  for (const auto& directory : directories) {
    std::error_code problem;
    auto path = std::filesystem::weakly_canonical(directory + "/", problem);
    real.push_back(problem ? std::filesystem::path(directory) : path.parent_path() / path.filename());
    if (!real.back().has_filename()) real.back() = real.back().parent_path();
  }
  for (std::size_t i = 0; i < real.size(); ++i) {
    for (std::size_t j = 0; j < real.size(); ++j) {
      if (i == j ||
          std::mismatch(real[i].begin(), real[i].end(), real[j].begin(), real[j].end()).first != real[i].end())
        continue;
      return fmt::format("log.dirs: {} and {} {}; name directories that lie beside each other", directories[i],
                         directories[j],
                         real[i] == real[j] ? "are the same directory" : "overlap, the second lies in the first");
    }
  }
  return std::nullopt;
}

}  // namespace

ResultOf<Home, std::string> open_home(Files& files, const std::vector<std::string>& directories, std::int32_t node_id) {
  Home home;
  std::vector<Meta> metas;
  if (auto wrong = overlap(directories)) return std::move(*wrong);
  for (const auto& directory : directories) {
    if (const auto made = files.make_directories(directory); !made)
      return fmt::format("log.dirs={}: {}", directory, made.error().text);
    const auto lock_path = directory + "/.lock";
    UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!lock) return fmt::format("{}: {}; make the directory writable for this user", lock_path, std::strerror(errno));
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      return fmt::format(
          "log.dirs={}: another broker uses it (its .lock is held); stop that one, or use another directory",
          directory);
    }
    home.locks.push_back(std::move(lock));
    auto meta = read_meta(files, directory + "/meta.properties", node_id);
    if (!meta) return meta.error();
    if (meta->present) {
      if (!home.cluster_id.empty() && home.cluster_id != meta->cluster_id) {
        return fmt::format("log.dirs={}: belongs to cluster {}, the others to {}", directory, meta->cluster_id,
                           home.cluster_id);
      }
      home.cluster_id = meta->cluster_id;
    }
    metas.push_back(std::move(*meta));
  }
  if (home.cluster_id.empty()) {
    home.cluster_id = kafka::Uuid::random().to_string();
    log::info("broker", "empty log directories formatted cluster_id={}", home.cluster_id);
  }
  for (std::size_t i = 0; i < directories.size(); ++i) {
    if (!metas[i].present) {
      metas[i] = {true, home.cluster_id, kafka::Uuid::random()};
      const auto text = fmt::format("#\nversion=1\ncluster.id={}\nnode.id={}\ndirectory.id={}\n", home.cluster_id,
                                    node_id, metas[i].directory_id.to_string());
      if (const auto written = replace_file(files, directories[i] + "/meta.properties", as_bytes(text), Durable::now);
          !written)
        return written.error().text;
    }
    home.directory_ids.push_back(metas[i].directory_id);
  }
  return home;
}

}  // namespace ciuic::broker
