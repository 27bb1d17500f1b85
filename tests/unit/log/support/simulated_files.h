#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "broker/log/file_io.h"
#include "broker/log/files.h"
#include "broker/log/open_logs.h"

namespace ciuic::broker::testing {

/// A file system in memory that can lose what was not synced, run full, and fail. Names, renames and removals are
/// durable at once (a journal orders them); contents are durable only as far as they were synced. One thread.
class SimulatedFiles final : public Files {
 public:
  IoResult<std::shared_ptr<File>> open(const std::string& path, OpenMode mode) override;
  IoResult<std::vector<DirectoryEntry>> list(const std::string& directory) override;
  IoResult<void> make_directories(const std::string& path) override;
  IoResult<void> rename(const std::string& from, const std::string& to) override;
  IoResult<void> remove(const std::string& path) override;
  IoResult<void> remove_all(const std::string& path) override;
  IoResult<bool> exists(const std::string& path) override;
  IoResult<void> sync_directory(const std::string& path) override;
  IoResult<std::shared_ptr<MappedFile>> make_mapped(const std::string& path, std::uint64_t bytes) override;
  OpenLogs* open_logs() override { return &open_logs_; }

  /// The machine stops: of each file's writes since its last sync only a prefix stays, its last one possibly cut. Of a
  /// mapped file each page stays or is zero again.
  void lose_unsynced(std::mt19937_64& random);
  /// Writes beyond this many bytes in all fail with ENOSPC, having written what fitted.
  void set_capacity(std::optional<std::uint64_t> bytes) { capacity_ = bytes; }
  /// The n-th write from now (0: the next) fails with EIO after a prefix.
  void fail_write(std::uint64_t n) { failing_write_ = writes_ + n; }
  void fail_sync() { failing_sync_ = true; }
  void heal() {
    failing_write_.reset();
    failing_sync_ = false;
    capacity_.reset();
  }
  /// Overwrites bytes behind everyone's back (bit rot, a torn write).
  void damage(const std::string& path, std::uint64_t at, Bytes with);
  [[nodiscard]] Buffer content(const std::string& path) const;
  [[nodiscard]] std::uint64_t writes() const { return writes_; }
  [[nodiscard]] std::uint64_t syncs() const { return syncs_; }  ///< of files, mapped ones left out

  struct Node {
    Buffer data;
    Buffer durable;
    struct Change {
      bool cut = false;
      std::uint64_t at = 0;
      Buffer bytes{};
    };
    std::vector<Change> since_sync;
    bool mapped = false;
  };

 private:
  friend class SimulatedFile;
  OpenLogs open_logs_{3};  // so few that what runs here always meets closed ones
  std::map<std::string, std::shared_ptr<Node>> files_;
  std::set<std::string> directories_{"/"};
  std::uint64_t used_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t syncs_ = 0;
  std::optional<std::uint64_t> capacity_;
  std::optional<std::uint64_t> failing_write_;
  bool failing_sync_ = false;
};

/// FileIo that runs a job only when told to, of a queue chosen by the caller's dice.
class SimulatedIo final : public FileIo {
 public:
  explicit SimulatedIo(Files& files) : files_(files) {}
  IoQueue make_queue() override { return next_++; }
  void take(IoQueue queue, IoKind, Task job) override { waiting_[queue].push_back(std::move(job)); }
  Files& files() override { return files_; }

  [[nodiscard]] bool idle() const { return waiting_.empty(); }
  /// Runs the first job of a random queue; false if there is none.
  bool run_one(std::mt19937_64& random);
  void drop_all() { waiting_.clear(); }

 private:
  Files& files_;
  IoQueue next_ = 1;
  std::map<IoQueue, std::deque<Task>> waiting_;
};

}  // namespace ciuic::broker::testing
