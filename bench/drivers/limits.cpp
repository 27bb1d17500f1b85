// What this machine could do at most: memory, checksum, sockets, shared memory, without any of Kafka's work around it.
//   bench_limits memcpy bytes=N          from N bytes to N others, in pieces of 1 MiB
//   bench_limits memcpy_reused bytes=N   from N bytes into one buffer of 1 MiB, as a reader copies out
//   bench_limits crc32c bytes=N          the product's CRC32C over N bytes
//   bench_limits shm bytes=N             CRC32C over N bytes that another process wrote into a memfd, second sight
//   bench_limits tcp bytes=N sockets=M   M plain TCP streams over loopback, N bytes together, writes of 1 MiB
//   bench_limits file bytes=N path=F     reads F from the disk (its pages are dropped first), 1 MiB at a time
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "bench/drivers/words.h"
#include "transport/base/crc32c.h"
#include "transport/base/unique_fd.h"

namespace {

using ciuic::UniqueFd;
using ciuic::bench::Words;
constexpr std::size_t piece = 1 << 20;

template <class T>
T must(T result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  return result;
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

/// Memory whose pages are there: the first touch is none of the limit's business.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    data_ = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (data_ == MAP_FAILED) throw std::runtime_error("bytes=: more than this machine has");
    std::memset(data_, 0x5a, bytes);
  }
  ~Memory() { ::munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

struct Measured {
  double seconds = 0;
  double cpu_seconds = 0;         ///< of who reads or receives
  double sender_cpu_seconds = 0;  ///< tcp: of who sends
};

Measured timed(const std::function<void()>& work) {
  const auto cpu = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  return {wall.count(), cpu_seconds() - cpu, 0};
}

/// `each(at, n)` for every piece of `bytes`, once before the clock starts.
Measured over_pieces(std::size_t bytes, const std::function<void(std::size_t, std::size_t)>& each) {
  const auto all = [&] {
    for (std::size_t at = 0; at < bytes; at += piece) each(at, std::min(piece, bytes - at));
  };
  all();
  return timed(all);
}

std::uint32_t checked = 0;  // keeps the sums from being optimized away

Measured memory_copy(std::size_t bytes, bool reused) {
  const Memory from(bytes), to(reused ? piece : bytes);
  return over_pieces(
      bytes, [&](std::size_t at, std::size_t n) { std::memcpy(to.data() + (reused ? 0 : at), from.data() + at, n); });
}

Measured checksum(const std::byte* data, std::size_t bytes) {
  return over_pieces(bytes, [&](std::size_t at, std::size_t n) { checked ^= ciuic::crc32c({data + at, n}); });
}

Measured shared_memory(std::size_t bytes) {
  const UniqueFd memory(must(::memfd_create("ciuic-bench", MFD_CLOEXEC), "memfd_create"));
  must(::ftruncate(memory.get(), static_cast<off_t>(bytes)), "ftruncate");
  const auto writer = must(::fork(), "fork");
  if (writer == 0) {
    void* mine = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (mine == MAP_FAILED) ::_exit(1);
    std::memset(mine, 0x5a, bytes);
    ::_exit(0);
  }
  int status = 0;
  must(::waitpid(writer, &status, 0), "waitpid");
  if (status != 0) throw std::runtime_error("bytes=: more shared memory than this machine has");
  void* ours = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, memory.get(), 0);
  if (ours == MAP_FAILED) throw std::runtime_error("mmap");
  const auto out = checksum(static_cast<const std::byte*>(ours), bytes);
  ::munmap(ours, bytes);
  return out;
}

Measured tcp_streams(std::size_t bytes, std::size_t sockets) {
  if (sockets == 0) throw std::runtime_error("sockets=0: 1 or more");
  const UniqueFd listener(must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  must(::bind(listener.get(), plain, length), "bind");
  must(::listen(listener.get(), static_cast<int>(sockets)), "listen");
  must(::getsockname(listener.get(), plain, &length), "getsockname");
  std::vector<UniqueFd> senders, receivers;
  for (std::size_t i = 0; i < sockets; ++i) {
    senders.emplace_back(must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
    must(::connect(senders.back().get(), plain, length), "connect");
    receivers.emplace_back(must(::accept(listener.get(), nullptr, nullptr), "accept"));
  }
  const auto share = bytes / sockets;
  std::vector<double> sender_cpu(sockets), receiver_cpu(sockets);
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Memory>> buffers;
  for (std::size_t i = 0; i < 2 * sockets; ++i) buffers.push_back(std::make_unique<Memory>(piece));
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < sockets; ++i) {
    threads.emplace_back([&, i] {
      const auto& from = *buffers[2 * i];
      const auto before = cpu_seconds();
      for (std::size_t left = share; left > 0;) {
        const auto n = ::send(senders[i].get(), from.data(), std::min(left, piece), MSG_NOSIGNAL);
        if (n <= 0) break;  // the receiver tells it, by what is missing
        left -= static_cast<std::size_t>(n);
      }
      sender_cpu[i] = cpu_seconds() - before;
    });
    threads.emplace_back([&, i] {
      const auto& to = *buffers[2 * i + 1];
      const auto before = cpu_seconds();
      for (std::size_t left = share; left > 0;) {
        const auto n = ::recv(receivers[i].get(), to.data(), std::min(left, piece), 0);
        if (n <= 0) {
          fmt::print(stderr, "tcp: {} bytes did not come\n", left);
          ::_exit(1);
        }
        left -= static_cast<std::size_t>(n);
      }
      receiver_cpu[i] = cpu_seconds() - before;
    });
  }
  for (auto& thread : threads) thread.join();
  Measured out;
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const auto one : sender_cpu) out.sender_cpu_seconds += one;
  for (const auto one : receiver_cpu) out.cpu_seconds += one;
  return out;
}

Measured file_from_disk(std::size_t bytes, const std::string& path) {
  const UniqueFd file(must(::open(path.c_str(), O_RDONLY | O_CLOEXEC), path.c_str()));
  must(::fdatasync(file.get()), "fdatasync");
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  const Memory to(piece);
  return timed([&] {
    for (std::size_t at = 0; at < bytes;) {
      const auto n = must(::pread(file.get(), to.data(), piece, static_cast<off_t>(at)), "pread");
      if (n == 0) throw std::runtime_error(path + ": shorter than bytes=");
      at += static_cast<std::size_t>(n);
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    Words words(argc, argv, 2);
    const std::size_t bytes = words.number("bytes");
    if (bytes == 0) throw std::runtime_error("bytes=0: 1 or more");
    Measured found;
    if (what == "memcpy" || what == "memcpy_reused") {
      words.all_used();
      found = memory_copy(bytes, what == "memcpy_reused");
    } else if (what == "crc32c") {
      words.all_used();
      const Memory from(bytes);
      found = checksum(from.data(), bytes);
    } else if (what == "shm") {
      words.all_used();
      found = shared_memory(bytes);
    } else if (what == "tcp") {
      const auto sockets = words.number("sockets", 1);
      words.all_used();
      found = tcp_streams(bytes, sockets);
    } else if (what == "file") {
      const auto path = words.text("path");
      words.all_used();
      found = file_from_disk(bytes, path);
    } else {
      fmt::print(stderr, "'{}': memcpy, memcpy_reused, crc32c, shm, tcp or file\n", what);
      return 2;
    }
    const nlohmann::ordered_json out{{"what", what},
                                     {"bytes", bytes},
                                     {"seconds", found.seconds},
                                     {"cpu_seconds", found.cpu_seconds},
                                     {"sender_cpu_seconds", found.sender_cpu_seconds}};
    fmt::print("{}\n", out.dump());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", what, error.what());
    return 1;
  }
  return 0;
}
