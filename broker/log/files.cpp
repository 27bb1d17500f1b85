// The machine's file system behind the Files seam. Not here: which file means what (segment.cpp, checkpoints.cpp).
#include "broker/log/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "broker/log/open_logs.h"
#include "transport/base/unique_fd.h"

namespace ciuic::broker {

namespace {

IoError failed(const char* call, const std::string& path, int number) {
  return {number, std::string(call) + " " + path + ": " + std::strerror(number)};
}

class PosixFile final : public File {
 public:
  PosixFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  IoResult<std::size_t> read_at(std::uint64_t at, MutableBytes to) const override {
    std::size_t done = 0;
    while (done < to.size()) {
      const auto n = ::pread(fd_.get(), to.data() + done, to.size() - done, static_cast<off_t>(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed("read", path_, errno);
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

  IoResult<void> write_at(std::uint64_t at, std::span<const Bytes> pieces) override {
    constexpr std::size_t vectors_max = 64;
    std::size_t piece = 0;
    std::size_t skip = 0;
    while (piece < pieces.size()) {
      ::iovec vectors[vectors_max];
      std::size_t count = 0;
      for (auto i = piece; i < pieces.size() && count < vectors_max; ++i) {
        const auto bytes = i == piece ? pieces[i].subspan(skip) : pieces[i];
        vectors[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
      }
      auto n = ::pwritev(fd_.get(), vectors, static_cast<int>(count), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed("write", path_, errno);
      at += static_cast<std::uint64_t>(n);
      for (auto left = static_cast<std::size_t>(n); piece < pieces.size();) {
        const auto rest = pieces[piece].size() - skip;
        if (left < rest) {
          skip += left;
          break;
        }
        left -= rest;
        skip = 0;
        ++piece;
      }
      if (n == 0 && piece < pieces.size()) return failed("write", path_, EIO);
    }
    return {};
  }

  IoResult<void> sync() override {
    if (::fdatasync(fd_.get()) != 0) return failed("fdatasync", path_, errno);
    return {};
  }
  IoResult<std::uint64_t> size() const override {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) return failed("stat", path_, errno);
    return static_cast<std::uint64_t>(status.st_size);
  }
  IoResult<void> truncate(std::uint64_t bytes) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) return failed("truncate", path_, errno);
    return {};
  }
  void start_writeback(std::uint64_t from, std::uint64_t to) override {
    ::sync_file_range(fd_.get(), static_cast<off64_t>(from), static_cast<off64_t>(to - from), SYNC_FILE_RANGE_WRITE);
  }
  void reserve(std::uint64_t from, std::uint64_t to) override {
    static_cast<void>(
        ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from), static_cast<off_t>(to - from)));
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

class PosixMappedFile final : public MappedFile {
 public:
  PosixMappedFile(std::string path, void* at, std::size_t bytes)
      : path_(std::move(path)), memory_(static_cast<std::byte*>(at), bytes) {}
  ~PosixMappedFile() override { ::munmap(memory_.data(), memory_.size()); }
  PosixMappedFile(const PosixMappedFile&) = delete;
  PosixMappedFile& operator=(const PosixMappedFile&) = delete;
  MutableBytes bytes() const override { return memory_; }
  IoResult<void> sync(std::uint64_t bytes) override {
    if (::msync(memory_.data(), bytes, MS_SYNC) != 0) return failed("msync", path_, errno);
    return {};
  }

 private:
  std::string path_;
  MutableBytes memory_;
};

/// File systems that write a file's blocks where they lie once they are there.
bool overwrites_in_place(int fd) {
  constexpr long xfs_magic = 0x58465342;  // "XFSB"; linux/magic.h of Debian 12 lacks it
  struct statfs status {};
  if (::fstatfs(fd, &status) != 0) return false;
  const auto type = static_cast<long>(status.f_type);
  return type == EXT4_SUPER_MAGIC || type == xfs_magic || type == TMPFS_MAGIC;
}

std::size_t logs_open_max() {
  ::rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  return static_cast<std::size_t>(std::min<::rlim_t>(limit.rlim_cur, 1U << 20)) / 4;
}

class PosixFiles final : public Files {
 public:
  OpenLogs* open_logs() override { return &open_logs_; }

  IoResult<std::shared_ptr<File>> open(const std::string& path, OpenMode mode) override {
    const int flags = mode == OpenMode::read ? O_RDONLY : mode == OpenMode::read_write ? O_RDWR : O_RDWR | O_CREAT;
    UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0644));
    if (!fd) return failed("open", path, errno);
    return std::shared_ptr<File>(std::make_shared<PosixFile>(path, std::move(fd)));
  }

  IoResult<std::vector<DirectoryEntry>> list(const std::string& directory) override {
    const std::unique_ptr<::DIR, int (*)(::DIR*)> dir(::opendir(directory.c_str()), ::closedir);
    if (!dir) return failed("opendir", directory, errno);
    std::vector<DirectoryEntry> entries;
    errno = 0;
    while (const auto* entry = ::readdir(dir.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      struct stat status {};
      if (::fstatat(::dirfd(dir.get()), entry->d_name, &status, 0) != 0) {
        if (errno != ENOENT) return failed("stat", directory + "/" + name, errno);
      } else {
        entries.push_back({name, S_ISDIR(status.st_mode), static_cast<std::uint64_t>(status.st_size)});
      }
      errno = 0;
    }
    if (errno != 0) return failed("readdir", directory, errno);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }

  IoResult<void> make_directories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return failed("mkdir", path, error.value());
    return {};
  }
  IoResult<void> rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return failed("rename", from, errno);
    return {};
  }
  IoResult<void> remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return failed("unlink", path, errno);
    return {};
  }
  IoResult<void> remove_all(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return failed("remove", path, error.value());
    return {};
  }
  IoResult<bool> exists(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return failed("stat", path, errno);
  }
  IoResult<void> sync_directory(const std::string& path) override {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return failed("open", path, errno);
    if (::fsync(fd.get()) != 0) return failed("fsync", path, errno);
    return {};
  }
  IoResult<std::shared_ptr<MappedFile>> make_mapped(const std::string& path, std::uint64_t bytes) override {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) return failed("open", path, errno);
    if (!overwrites_in_place(fd.get())) return failed("map", path, ENOTSUP);
    if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) return failed("fallocate", path, errno);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) return failed("mmap", path, errno);
    return std::shared_ptr<MappedFile>(std::make_shared<PosixMappedFile>(path, at, bytes));
  }

 private:
  OpenLogs open_logs_{logs_open_max()};
};

}  // namespace

Files& posix_files() {
  static PosixFiles files;
  return files;
}

IoResult<Buffer> read_file(Files& files, const std::string& path) {
  auto file = files.open(path, OpenMode::read);
  if (!file) return file.error();
  const auto size = (*file)->size();
  if (!size) return size.error();
  Buffer content(*size);
  const auto got = (*file)->read_at(0, content);
  if (!got) return got.error();
  content.resize(*got);
  return content;
}

IoResult<void> write_file(Files& files, const std::string& path, Bytes content) {
  auto file = files.open(path, OpenMode::create);
  if (!file) return file.error();
  if (auto cut = (*file)->truncate(0); !cut) return cut;
  if (content.empty()) return {};
  return (*file)->write_at(0, std::span(&content, 1));
}

IoResult<void> replace_file(Files& files, const std::string& path, Bytes content, Durable durable) {
  const auto draft = path + ".tmp";
  if (auto written = write_file(files, draft, content); !written) return written;
  if (durable == Durable::now) {
    auto file = files.open(draft, OpenMode::read_write);
    if (!file) return file.error();
    if (auto synced = (*file)->sync(); !synced) return synced;
  }
  if (auto renamed = files.rename(draft, path); !renamed || durable == Durable::later) return renamed;
  return files.sync_directory(path.substr(0, path.rfind('/')));
}

}  // namespace ciuic::broker
