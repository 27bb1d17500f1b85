// ciuic-broker: command line, signals, limits. Everything else is broker/server.h.
#include <fmt/core.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>

#include "broker/broker.h"
#include "broker/server.h"
#include "transport/base/log.h"

namespace {

using ciuic::broker::Overrides;

int fail(const std::string& text) {
  fmt::print(stderr, "ciuic-broker: {}\n", text);
  return 1;
}

/// 10,000 partitions keep some ten thousand files open.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);  // as far as it goes; running out later is logged where it happens
  }
}

/// The stop signals, blocked in every thread, are taken on a thread of its own. Before `wait` the broker is still
/// starting and has acknowledged nothing: the process ends at once, by that signal, as a kill would end it.
class StopSignal {
 public:
  explicit StopSignal(const sigset_t& signals) {
    std::thread([state = state_, signals] { take(*state, signals); }).detach();
  }
  /// Returns when a signal has come.
  void wait() {
    std::unique_lock lock(state_->mutex);
    state_->started = true;
    state_->changed.wait(lock, [this] { return state_->came; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool started = false;
    bool came = false;
  };

  static void take(State& state, const sigset_t& signals) {
    int which = 0;
    sigwait(&signals, &which);
    const std::lock_guard lock(state.mutex);
    if (!state.started) {
      ciuic::log::warn("broker", "stopped while starting signal=\"{}\"; nothing is lost, the next start begins anew",
                       ::strsignal(which));
      ciuic::log::flush();
      ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
      (void)::raise(which);
    }
    state.came = true;
    state.changed.notify_one();
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();  // the thread may outlive main
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"CiuicKafka broker: Kafka over TCP, one-sided reads over shared memory and RDMA."};
  std::string properties;
  std::vector<std::string> overrides;
  std::string port_file;
  std::string print;
  app.add_option("properties", properties, "server.properties; its keys are in docs/configuration.md");
  app.add_option("--override", overrides, "key=value, wins over the file; may be repeated")
      ->type_size(1)
      ->allow_extra_args(false);
  app.add_option("--port-file", port_file, "write the port listened on to this file once ready (for listeners=…:0)");
  app.add_option("--print-settings", print, "print all settings as 'markdown' and exit")
      ->check(CLI::IsMember({"markdown"}));
  app.set_version_flag("--version", fmt::format("ciuic-broker {} (Kafka protocol {})", ciuic::broker::version(),
                                                ciuic::broker::kafka_level));
  CLI11_PARSE(app, argc, argv);
  if (!print.empty()) {
    fmt::print("{}", ciuic::broker::settings_markdown());
    return 0;
  }

  Overrides keys;
  if (!properties.empty()) {
    std::ifstream file(properties);
    if (!file)
      return fail(fmt::format("{}: {}; give the path of a server.properties", properties, std::strerror(errno)));
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    auto parsed = ciuic::broker::parse_properties(text);
    if (!parsed) return fail(fmt::format("{}: {}", properties, parsed.error()));
    keys = std::move(*parsed);
  }
  for (const auto& pair : overrides) {
    const auto mark = pair.find('=');
    if (mark == std::string::npos || mark == 0) return fail(fmt::format("--override {}: write key=value", pair));
    keys[pair.substr(0, mark)] = pair.substr(mark + 1);
  }

  raise_file_limit();
  // Request bodies of some 100 KiB come and go all the time: kept on the heap, they are not mapped and faulted in anew.
  ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : {SIGTERM, SIGINT}) sigaddset(&signals, each);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread, so that all of them leave it to us

  StopSignal stop(signals);
  auto server = ciuic::broker::Server::start(keys);
  if (!server) return fail(server.error());
  if (!port_file.empty()) {
    const auto half = port_file + ".tmp";
    std::ofstream(half) << (*server)->port() << "\n";
    if (std::rename(half.c_str(), port_file.c_str()) != 0)
      return fail(fmt::format("{}: {}", port_file, std::strerror(errno)));
  }
  stop.wait();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // a second one ends it at once
  return (*server)->stop() ? 0 : 1;
}
