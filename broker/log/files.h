#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/result.h"

namespace ciuic::broker {

class OpenLogs;

/// Why the file system refused: errno and a sentence with path and operation.
struct IoError {
  IoError() = default;
  IoError(int errno_value, std::string words) : number(errno_value), text(std::move(words)) {}
  int number = 0;
  std::string text{};
};
template <class T>
using IoResult = ResultOf<T, IoError>;

/// One open file. Blocks: call on FileIo's threads, or at start and stop. One caller at a time for writes.
class File {
 public:
  virtual ~File() = default;
  /// Reads into all of `to` from `at`; fewer bytes only at the end of the file.
  [[nodiscard]] virtual IoResult<std::size_t> read_at(std::uint64_t at, MutableBytes to) const = 0;
  /// Writes all pieces one after the other from `at`, or fails having written any prefix.
  [[nodiscard]] virtual IoResult<void> write_at(std::uint64_t at, std::span<const Bytes> pieces) = 0;
  /// What was written is on the device when it returns (fdatasync).
  [[nodiscard]] virtual IoResult<void> sync() = 0;
  [[nodiscard]] virtual IoResult<std::uint64_t> size() const = 0;
  [[nodiscard]] virtual IoResult<void> truncate(std::uint64_t bytes) = 0;
  /// A hint, never an error: start writing [from, to) back. What is clean the kernel drops when it needs the memory;
  /// until then it serves chunks that were evicted. (Dropping it ourselves cost a twelfth of produce's CPU.)
  virtual void start_writeback(std::uint64_t from, std::uint64_t to) = 0;
  /// A hint, never an error: [from, to) will be written soon, behind the end of the file. Its blocks are taken at once
  /// and not one by one, for a quarter less CPU a byte; the size stays. `truncate` to the size gives back the rest.
  virtual void reserve(std::uint64_t from, std::uint64_t to) = 0;
};

/// A file that is written by storing into memory. Unmapped at the end of the object; the file stays.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  /// What is stored here is in the kernel at once and outlives the process.
  [[nodiscard]] virtual MutableBytes bytes() const = 0;
  /// What was stored in the first `bytes` is on the device when it returns (msync). Blocks; any thread.
  [[nodiscard]] virtual IoResult<void> sync(std::uint64_t bytes) = 0;
};

enum class OpenMode { read, read_write, create };  ///< create: read and write, made if missing

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;
  std::uint64_t bytes = 0;
};

/// The file system as the log uses it: the seam where simulations put disk-full, I/O errors, short writes and crashes
/// that keep only a prefix of what was not synced. All calls block. Any thread.
class Files {
 public:
  virtual ~Files() = default;
  [[nodiscard]] virtual IoResult<std::shared_ptr<File>> open(const std::string& path, OpenMode mode) = 0;
  [[nodiscard]] virtual IoResult<std::vector<DirectoryEntry>> list(const std::string& directory) = 0;
  [[nodiscard]] virtual IoResult<void> make_directories(const std::string& path) = 0;
  [[nodiscard]] virtual IoResult<void> rename(const std::string& from, const std::string& to) = 0;
  /// Missing is success.
  [[nodiscard]] virtual IoResult<void> remove(const std::string& path) = 0;
  [[nodiscard]] virtual IoResult<void> remove_all(const std::string& path) = 0;
  [[nodiscard]] virtual IoResult<bool> exists(const std::string& path) = 0;
  [[nodiscard]] virtual IoResult<void> sync_directory(const std::string& path) = 0;
  /// Makes the file anew, `bytes` zeros with their place on the device taken. ENOTSUP where a store may fail later (a
  /// file system that copies on write, or a network's): that would be a signal, not an error.
  [[nodiscard]] virtual IoResult<std::shared_ptr<MappedFile>> make_mapped(const std::string& path,
                                                                          std::uint64_t bytes) = 0;
  /// Who bounds the number of open `.log` files; nullptr where nothing does.
  [[nodiscard]] virtual OpenLogs* open_logs() = 0;
};

/// The machine's file system. One object for the process. Keeps a quarter of the open file limit (RLIMIT_NOFILE, as it
/// is at the first use) for `.log` files: a partition's memory takes one descriptor too, a connection another.
[[nodiscard]] Files& posix_files();

/// Whole content of a small file.
[[nodiscard]] IoResult<Buffer> read_file(Files& files, const std::string& path);
enum class Durable { now, later };
/// Replaces a file by `<path>.tmp` and rename, so that the end of the process leaves the old or the new content. `now`
/// also syncs file and directory, so that the machine's end does.
[[nodiscard]] IoResult<void> replace_file(Files& files, const std::string& path, Bytes content, Durable durable);
/// Writes a file from its beginning and cuts it there.
[[nodiscard]] IoResult<void> write_file(Files& files, const std::string& path, Bytes content);

}  // namespace ciuic::broker
