// CPU, context switches and memory of processes, by the kernel's clocks and /proc. Not syscalls: perf counts those.
#include "bench/drivers/meter.h"

#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

namespace ciuic::bench {
namespace {

/// The numbers of a /proc status file by name, without their units.
std::map<std::string, std::uint64_t> status_of(const std::filesystem::path& path) {
  std::map<std::string, std::uint64_t> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto digit = line.find_first_of("0123456789", colon);
    if (digit != std::string::npos) out[line.substr(0, colon)] = std::strtoull(line.c_str() + digit, nullptr, 10);
  }
  return out;
}

nlohmann::ordered_json memory_of(pid_t pid) {
  auto status = status_of("/proc/" + std::to_string(pid) + "/status");
  const auto mib = [&](const char* name) { return static_cast<double>(status[name]) / 1024; };
  return {{"resident_mib", mib("VmRSS")},
          {"anonymous_mib", mib("RssAnon")},
          {"registered_mib", mib("RssShmem") + mib("VmPin")}};
}

nlohmann::ordered_json since(const Usage& before, pid_t pid, const nlohmann::ordered_json& memory) {
  const auto now = usage_of(pid);
  // A thread that ended took its switches along: then less is counted, never a wrapped number.
  const auto grown = [](std::uint64_t to, std::uint64_t from) { return to > from ? to - from : 0; };
  nlohmann::ordered_json out{{"cpu_seconds", now.cpu_seconds - before.cpu_seconds},
                             {"voluntary", grown(now.voluntary, before.voluntary)},
                             {"involuntary", grown(now.involuntary, before.involuntary)}};
  out.update(memory.is_null() ? memory_of(pid) : memory);
  return out;
}

}  // namespace

Usage usage_of(pid_t pid) {
  Usage out;
  clockid_t clock = 0;
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0)
    throw std::runtime_error("process " + std::to_string(pid) + " is gone");
  out.cpu_seconds = static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  if (pid == ::getpid()) {
    rusage own{};
    ::getrusage(RUSAGE_SELF, &own);
    out.voluntary = static_cast<std::uint64_t>(own.ru_nvcsw);
    out.involuntary = static_cast<std::uint64_t>(own.ru_nivcsw);
    return out;
  }
  std::error_code ended;  // a thread may end between the listing and the look
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", ended)) {
    auto status = status_of(task.path() / "status");
    out.voluntary += status["voluntary_ctxt_switches"];
    out.involuntary += status["nonvoluntary_ctxt_switches"];
  }
  return out;
}

Meter::Meter(pid_t watched) : watched_(watched) { restart(); }

void Meter::restart() {
  client_ = usage_of(::getpid());
  if (watched_ != 0) broker_ = usage_of(watched_);
}

void Meter::note_memory() {
  client_memory_ = memory_of(::getpid());
  if (watched_ != 0) broker_memory_ = memory_of(watched_);
}

nlohmann::ordered_json Meter::read() const {
  nlohmann::ordered_json out;
  if (watched_ != 0) out["broker"] = since(broker_, watched_, broker_memory_);
  out["client"] = since(client_, ::getpid(), client_memory_);
  return out;
}

}  // namespace ciuic::bench
