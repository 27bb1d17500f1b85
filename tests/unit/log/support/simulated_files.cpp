// A file system in memory with crashes and faults, for simulations of the log.
#include "tests/unit/log/support/simulated_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ciuic::broker::testing {

namespace {

IoError failed(const char* call, const std::string& path, int number) {
  return {number, std::string(call) + " " + path + ": " + std::strerror(number)};
}

void apply(Buffer& data, const SimulatedFiles::Node::Change& change, std::size_t bytes) {
  if (change.cut) {
    data.resize(change.at);
    return;
  }
  if (bytes == 0) return;
  if (data.size() < change.at + bytes) data.resize(change.at + bytes);
  std::copy_n(change.bytes.begin(), bytes, data.begin() + static_cast<std::ptrdiff_t>(change.at));
}

}  // namespace

class SimulatedFile final : public File {
 public:
  SimulatedFile(SimulatedFiles& files, std::string path, std::shared_ptr<SimulatedFiles::Node> node)
      : files_(files), path_(std::move(path)), node_(std::move(node)) {}

  IoResult<std::size_t> read_at(std::uint64_t at, MutableBytes to) const override {
    if (at >= node_->data.size()) return std::size_t{0};
    const auto count = std::min<std::size_t>(to.size(), node_->data.size() - at);
    std::copy_n(node_->data.begin() + static_cast<std::ptrdiff_t>(at), count, to.begin());
    return count;
  }

  IoResult<void> write_at(std::uint64_t at, std::span<const Bytes> pieces) override {
    for (const auto piece : pieces) {
      auto fits = piece.size();
      int error = 0;
      if (files_.failing_write_ && files_.writes_ >= *files_.failing_write_) {
        fits /= 2;
        error = EIO;
      }
      const auto grows = at + fits > node_->data.size() ? at + fits - node_->data.size() : 0;
      if (error == 0 && files_.capacity_ && files_.used_ + grows > *files_.capacity_) {
        const auto room = *files_.capacity_ > files_.used_ ? *files_.capacity_ - files_.used_ : 0;
        fits -= std::min<std::uint64_t>(fits, grows - room);
        error = ENOSPC;
      }
      ++files_.writes_;
      SimulatedFiles::Node::Change change{false, at, to_buffer(piece.first(fits))};
      const auto before = node_->data.size();
      apply(node_->data, change, fits);
      files_.used_ += node_->data.size() - before;
      node_->since_sync.push_back(std::move(change));
      if (error != 0) return failed("write", path_, error);
      at += piece.size();
    }
    return {};
  }

  IoResult<void> sync() override {
    if (files_.failing_sync_) return failed("fdatasync", path_, EIO);
    ++files_.syncs_;
    for (const auto& change : node_->since_sync) apply(node_->durable, change, change.bytes.size());
    node_->since_sync.clear();
    return {};
  }
  IoResult<std::uint64_t> size() const override { return std::uint64_t{node_->data.size()}; }
  IoResult<void> truncate(std::uint64_t bytes) override {
    if (bytes < node_->data.size()) files_.used_ -= node_->data.size() - bytes;
    node_->data.resize(bytes);
    node_->since_sync.push_back({true, bytes});
    return {};
  }
  void start_writeback(std::uint64_t, std::uint64_t) override {}
  void reserve(std::uint64_t, std::uint64_t) override {}

 private:
  SimulatedFiles& files_;
  std::string path_;
  std::shared_ptr<SimulatedFiles::Node> node_;
};

IoResult<std::shared_ptr<File>> SimulatedFiles::open(const std::string& path, OpenMode mode) {
  auto at = files_.find(path);
  if (at == files_.end()) {
    if (mode != OpenMode::create) return failed("open", path, ENOENT);
    if (!directories_.contains(path.substr(0, path.rfind('/')))) return failed("open", path, ENOENT);
    at = files_.emplace(path, std::make_shared<Node>()).first;
  }
  return std::shared_ptr<File>(std::make_shared<SimulatedFile>(*this, path, at->second));
}

IoResult<std::vector<DirectoryEntry>> SimulatedFiles::list(const std::string& directory) {
  if (!directories_.contains(directory)) return failed("opendir", directory, ENOENT);
  std::vector<DirectoryEntry> entries;
  const auto inside = [&](const std::string& path) {
    return path.starts_with(directory + "/") && path.find('/', directory.size() + 1) == std::string::npos;
  };
  for (const auto& [path, node] : files_)
    if (inside(path)) entries.push_back({path.substr(directory.size() + 1), false, node->data.size()});
  for (const auto& path : directories_)
    if (inside(path)) entries.push_back({path.substr(directory.size() + 1), true, 0});
  return entries;
}

IoResult<void> SimulatedFiles::make_directories(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    directories_.insert(path.substr(0, at));
  directories_.insert(path);
  return {};
}

IoResult<void> SimulatedFiles::rename(const std::string& from, const std::string& to) {
  if (const auto at = files_.find(from); at != files_.end()) {
    files_[to] = at->second;
    files_.erase(from);
    return {};
  }
  if (!directories_.contains(from)) return failed("rename", from, ENOENT);
  const auto moved = [&](const std::string& path) { return to + path.substr(from.size()); };
  std::map<std::string, std::shared_ptr<Node>> files;
  for (auto& [path, node] : files_) files[path.starts_with(from + "/") ? moved(path) : path] = node;
  files_ = std::move(files);
  std::set<std::string> directories;
  for (const auto& path : directories_)
    directories.insert(path == from || path.starts_with(from + "/") ? moved(path) : path);
  directories_ = std::move(directories);
  return {};
}

IoResult<void> SimulatedFiles::remove(const std::string& path) {
  if (const auto at = files_.find(path); at != files_.end()) {
    used_ -= at->second->data.size();
    files_.erase(at);
  }
  return {};
}

IoResult<void> SimulatedFiles::remove_all(const std::string& path) {
  std::erase_if(files_, [&](const auto& one) { return one.first == path || one.first.starts_with(path + "/"); });
  std::erase_if(directories_, [&](const auto& one) { return one == path || one.starts_with(path + "/"); });
  return {};
}

IoResult<bool> SimulatedFiles::exists(const std::string& path) {
  return files_.contains(path) || directories_.contains(path);
}

IoResult<void> SimulatedFiles::sync_directory(const std::string&) { return {}; }

class SimulatedMapping final : public MappedFile {
 public:
  explicit SimulatedMapping(std::shared_ptr<SimulatedFiles::Node> node) : node_(std::move(node)) {}
  MutableBytes bytes() const override { return node_->data; }
  IoResult<void> sync(std::uint64_t bytes) override {
    node_->durable.assign(node_->data.begin(), node_->data.begin() + static_cast<std::ptrdiff_t>(bytes));
    return {};
  }

 private:
  std::shared_ptr<SimulatedFiles::Node> node_;
};

IoResult<std::shared_ptr<MappedFile>> SimulatedFiles::make_mapped(const std::string& path, std::uint64_t bytes) {
  if (auto gone = remove(path); !gone) return gone.error();
  if (capacity_ && used_ + bytes > *capacity_) return failed("fallocate", path, ENOSPC);
  auto node = std::make_shared<Node>();
  node->data.resize(bytes);
  node->mapped = true;
  used_ += bytes;
  files_[path] = node;
  return std::shared_ptr<MappedFile>(std::make_shared<SimulatedMapping>(std::move(node)));
}

void SimulatedFiles::lose_unsynced(std::mt19937_64& random) {
  used_ = 0;
  for (auto& [path, node] : files_) {
    if (node->mapped) {
      constexpr std::size_t page = 4096;
      for (std::size_t at = 0; at < node->data.size(); at += page)
        if (at >= node->durable.size() && random() % 2 == 0)
          std::fill_n(node->data.begin() + static_cast<std::ptrdiff_t>(at), std::min(page, node->data.size() - at),
                      std::byte{});
      used_ += node->data.size();
      continue;
    }
    auto kept = node->durable;
    const auto whole = random() % (node->since_sync.size() + 1);
    for (std::size_t i = 0; i < whole; ++i) apply(kept, node->since_sync[i], node->since_sync[i].bytes.size());
    if (whole < node->since_sync.size() && random() % 2 == 0) {
      const auto& torn = node->since_sync[whole];
      if (!torn.cut) apply(kept, torn, random() % (torn.bytes.size() + 1));
    }
    node->data = kept;
    node->durable = std::move(kept);
    node->since_sync.clear();
    used_ += node->data.size();
  }
}

void SimulatedFiles::damage(const std::string& path, std::uint64_t at, Bytes with) {
  auto& data = files_.at(path)->data;
  if (data.size() < at + with.size()) data.resize(at + with.size());
  std::copy(with.begin(), with.end(), data.begin() + static_cast<std::ptrdiff_t>(at));
}

Buffer SimulatedFiles::content(const std::string& path) const {
  const auto at = files_.find(path);
  return at == files_.end() ? Buffer{} : at->second->data;
}

bool SimulatedIo::run_one(std::mt19937_64& random) {
  if (waiting_.empty()) return false;
  auto at = waiting_.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(random() % waiting_.size()));
  auto job = std::move(at->second.front());
  at->second.pop_front();
  if (at->second.empty()) waiting_.erase(at);
  job();
  return true;
}

}  // namespace ciuic::broker::testing
