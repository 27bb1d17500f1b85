// What any broker that is produced to over TCP costs at least: a process that is woken by a record, hands its bytes on
// to whoever reads, and wakes them. No log, no acknowledgement, no checksum; measured by the same code as the clients.
//   bench_relay latency rate=N seconds=N record.bytes=N …      as bench_client latency
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "bench/drivers/peer.h"
#include "bench/drivers/workloads.h"
#include "transport/base/unique_fd.h"

namespace ciuic::bench {
namespace {

constexpr std::byte writes{'w'}, reads{'r'};

template <class T>
T must(T result, const char* what) {
  if (result < 0) throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
  return result;
}

UniqueFd stream_socket() {
  UniqueFd out(must(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  return out;
}
void without_delay(const UniqueFd& socket) {
  const int on = 1;
  must(::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
}
void send_all(const UniqueFd& socket, Value bytes) {
  while (!bytes.empty())
    bytes = bytes.subspan(
        static_cast<std::size_t>(must(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), "send")));
}

/// The process in the middle. Ends with its parent.
class Relay {
 public:
  Relay() : listener_(stream_socket()) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    must(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), "bind");
    must(::listen(listener_.get(), 512), "listen");
    must(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length), "getsockname");
    address_ = address;
    process_ = must(::fork(), "fork");
    if (process_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      work();
    } catch (const std::exception& error) {
      fmt::print(stderr, "relay: {}\n", error.what());
    }
    ::_exit(1);
  }
  ~Relay() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  [[nodiscard]] pid_t process() const { return process_; }
  [[nodiscard]] UniqueFd connect(std::byte as) const {
    UniqueFd out = stream_socket();
    must(::connect(out.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_), "connect");
    without_delay(out);
    send_all(out, {&as, 1});
    return out;
  }

 private:
  [[noreturn]] void work() {
    std::vector<UniqueFd> readers, writers;
    std::vector<std::byte> bytes(1 << 16);
    while (true) {
      std::vector<pollfd> waited{{listener_.get(), POLLIN, 0}};
      for (const auto& one : writers) waited.push_back({one.get(), POLLIN, 0});
      must(::poll(waited.data(), waited.size(), -1), "poll");
      for (std::size_t i = writers.size(); i > 0; --i) {
        if (waited[i].revents == 0) continue;
        const auto got = ::recv(writers[i - 1].get(), bytes.data(), bytes.size(), 0);
        if (got <= 0) {
          writers.erase(writers.begin() + static_cast<std::ptrdiff_t>(i) - 1);
          continue;
        }
        for (const auto& one : readers) send_all(one, Value(bytes).first(static_cast<std::size_t>(got)));
      }
      if (waited[0].revents == 0) continue;
      UniqueFd peer(must(::accept(listener_.get(), nullptr, nullptr), "accept"));
      without_delay(peer);
      std::byte as{};
      must(::recv(peer.get(), &as, 1, MSG_WAITALL), "recv");
      (as == writes ? writers : readers).push_back(std::move(peer));
    }
  }

  UniqueFd listener_;
  sockaddr_in address_{};
  pid_t process_ = 0;
};

const Relay* relay = nullptr;  // main's

/// A record is its length, in four bytes, and its bytes.
class RelayWriter final : public Writer {
 public:
  void send(Value value) override {
    const auto length = static_cast<std::uint32_t>(value.size());
    frame_.resize(sizeof length + value.size());
    std::memcpy(frame_.data(), &length, sizeof length);
    std::memcpy(frame_.data() + sizeof length, value.data(), value.size());
    send_all(socket_, frame_);
  }
  void flush() override {}

 private:
  UniqueFd socket_ = relay->connect(writes);
  std::vector<std::byte> frame_;
};

class RelayReader final : public Reader {
 public:
  void rewind() override { throw std::runtime_error("a relay keeps nothing"); }
  Polled poll(Milliseconds timeout, Delivery /*delivery*/) override {
    Polled out;
    poll_values(timeout, [&out](Value value) {
      ++out.records;
      out.bytes += value.size();
    });
    return out;
  }
  void poll_values(Milliseconds timeout, const std::function<void(Value)>& each) override {
    pollfd ready{socket_.get(), POLLIN, 0};
    if (must(::poll(&ready, 1, static_cast<int>(timeout.count())), "poll") == 0) return;
    std::array<std::byte, 1 << 16> bytes;
    const auto got = must(::recv(socket_.get(), bytes.data(), bytes.size(), 0), "recv");
    if (got == 0) throw std::runtime_error("the relay ended");
    held_.insert(held_.end(), bytes.begin(), bytes.begin() + got);
    std::size_t at = 0;
    std::uint32_t length = 0;
    while (held_.size() - at >= sizeof length) {
      std::memcpy(&length, held_.data() + at, sizeof length);
      if (held_.size() - at - sizeof length < length) break;
      each(Value(held_).subspan(at + sizeof length, length));
      at += sizeof length + length;
    }
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  [[nodiscard]] std::string path() const override { return "a relay over tcp"; }

 private:
  UniqueFd socket_ = relay->connect(reads);
  std::vector<std::byte> held_;
};

}  // namespace

std::unique_ptr<Writer> open_writer(const Settings&, const std::string&) { return std::make_unique<RelayWriter>(); }
std::unique_ptr<Reader> open_reader(const Settings&, const std::string&, int, From) {
  return std::make_unique<RelayReader>();
}
std::unique_ptr<Member> open_member(const Settings&, const std::string&) {
  throw std::runtime_error("a relay knows no groups");
}
std::string library() { return ""; }

}  // namespace ciuic::bench

int main(int argc, char** argv) {
  using namespace ciuic::bench;
  const std::string workload = argc > 1 ? argv[1] : "";
  if (workload != "latency") {
    fmt::print(stderr, "'{}': latency is what a relay can be measured by\n", workload);
    return 2;
  }
  try {
    const Relay running;  // before there are threads
    relay = &running;
    auto watched = fmt::format("watch={}", running.process());
    std::vector<char*> all(argv, argv + argc);
    all.push_back(watched.data());
    Words words(static_cast<int>(all.size()), all.data(), 2);
    run_latency(words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", workload, error.what());
    return 1;
  }
  return 0;
}
