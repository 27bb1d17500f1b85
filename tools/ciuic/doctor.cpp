// ciuic doctor: what this host can do for one-sided reading and for a broker, and the remedy for each thing missing.
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "tools/ciuic/cluster.h"
#include "tools/ciuic/commands.h"
#include "tools/ciuic/finding.h"
#include "transport/base/clock.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/registry.h"

namespace ciuic::tool {
namespace {

namespace fs = std::filesystem;

using State = Finding::State;

/// A number from a file of "Name:   123 kB" lines; -1 if it is not there.
std::int64_t number_in(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::strtoll(line.c_str() + key.size() + 1, nullptr, 10);
  }
  return -1;
}

std::string limit_text(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : bytes_text(limit); }

Finding providers() {
  std::string detail;
  int works = 0;
  bool across_hosts = false;
  for (const auto& factory : rdma::provider_factories()) {
    const auto made = factory.make(system_clock());
    if (!detail.empty()) detail += ", ";
    detail += fmt::format("{} ({})", factory.name, made ? std::string_view("works") : rdma::name(made.error()));
    works += made ? 1 : 0;
    across_hosts = across_hosts || (made && (*made)->crosses_hosts() && (*made)->caps().enforces_read_only);
  }
  if (works == 0) return {"providers", State::missing, detail, "without one, readers use Fetch over TCP"};
  return {"providers", across_hosts ? State::good : State::hint, detail,
          across_hosts ? "" : "one-sided reading works on this host only; consumers elsewhere use TCP"};
}

Finding memory_lock() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  constexpr rlim_t enough = 4ULL << 30;  // log.memory.bytes' default
  const bool good = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= enough;
  return {"locked memory", good ? State::good : State::hint, "RLIMIT_MEMLOCK " + limit_text(limit.rlim_cur),
          good ? ""
               : "RDMA registers the log's memory: `ulimit -l unlimited`, LimitMEMLOCK=infinity in the unit, or "
                 "memlock in /etc/security/limits.conf"};
}

Finding open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t enough = 65536;
  const bool good = limit.rlim_cur >= enough;
  return {"open files", good ? State::good : State::hint,
          fmt::format("RLIMIT_NOFILE {} (hard {})", limit.rlim_cur, limit.rlim_max),
          good ? "" : "a broker of many partitions needs more: `ulimit -n 65536`, or LimitNOFILE=65536 in the unit"};
}

Finding huge_pages() {
  const auto total = number_in("/proc/meminfo", "HugePages_Total");
  const auto free = number_in("/proc/meminfo", "HugePages_Free");
  const auto size = number_in("/proc/meminfo", "Hugepagesize");
  const auto transparent = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const bool some = total > 0 || transparent.find("[never]") == std::string::npos;
  return {"huge pages", some && !transparent.empty() ? State::good : State::hint,
          fmt::format("{} of {} reserved pages of {} KiB free; transparent: {}", free, total, size,
                      transparent.empty() ? "not in this kernel" : transparent),
          some ? "" : "`sysctl vm.nr_hugepages=2048`, or echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding huge_shared_memory() {
  const auto setting = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const bool good =
      !setting.empty() && setting.find("[never]") == std::string::npos && setting.find("[deny]") == std::string::npos;
  return {"huge shared memory", good ? State::good : State::hint, setting.empty() ? "not in this kernel" : setting,
          good ? ""
               : "the log's memory in pages of 2 MiB halves a one-sided reader's time on one host: echo advise > "
                 "/sys/kernel/mm/transparent_hugepage/shmem_enabled before the broker starts, or "
                 "tools/packaging/ciuic-kafka.tmpfiles"};
}

Finding shared_memory() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0)
    return {"/dev/shm", State::hint, "not mounted", "mount -t tmpfs tmpfs /dev/shm"};
  const auto bytes = static_cast<std::uint64_t>(info.f_frsize) * info.f_bavail;
  return {"/dev/shm", ::access("/dev/shm", W_OK) == 0 ? State::good : State::hint, bytes_text(bytes) + " free", ""};
}

Finding anonymous_files() {
  const UniqueFd fd(::memfd_create("ciuic-doctor", MFD_CLOEXEC));
  if (fd.get() < 0)
    return {"memfd", State::missing, "memfd_create is refused",
            "the log lives in memfds: allow the call in the container's seccomp profile"};
  const bool sized = ::ftruncate(fd.get(), 1 << 20) == 0;
  return {"memfd", sized ? State::good : State::missing, sized ? "works" : "cannot be sized",
          sized ? "" : "raise the container's memory limit"};
}

Finding machine() {
  utsname name{};
  ::uname(&name);
  const auto total = number_in("/proc/meminfo", "MemTotal");
  const auto free = number_in("/proc/meminfo", "MemAvailable");
  return {"machine", State::good,
          fmt::format("Linux {} {}, {} cores, {} of {} free", name.release, name.machine,
                      std::thread::hardware_concurrency(),
                      bytes_text(static_cast<std::uint64_t>(std::max<std::int64_t>(free, 0)) * 1024),
                      bytes_text(static_cast<std::uint64_t>(std::max<std::int64_t>(total, 0)) * 1024)),
          ""};
}

Finding checksum() {
#if defined(__x86_64__)
  const bool crc = __builtin_cpu_supports("sse4.2") != 0;
  const bool clmul = __builtin_cpu_supports("pclmul") != 0;
  return {"CRC32C", crc && clmul ? State::good : State::hint,
          fmt::format("SSE4.2 {}, PCLMULQDQ {}", crc ? "yes" : "no", clmul ? "yes" : "no"),
          crc && clmul
              ? ""
              : "checks run in software and cost several times as much; use another CPU model in the virtual machine"};
#else
  return {"CRC32C", State::hint, "not measured on this architecture", ""};
#endif
}

Finding broker(const Common& common) {
  Cluster cluster(common.bootstrap, std::chrono::milliseconds(std::min<std::int64_t>(common.timeout_ms, 2000)));
  try {
    const bool one_sided = offers_one_sided(cluster);
    const auto count = cluster.metadata(std::vector<std::string>{}).brokers.size();
    return {"broker", one_sided ? State::good : State::hint,
            fmt::format("{}: {} broker(s), one-sided APIs {}", common.bootstrap, count,
                        one_sided ? "offered" : "not offered"),
            one_sided ? "" : "set onesided.enable=true in the broker's server.properties"};
  } catch (const Failure& failure) {
    return {"broker", State::hint, failure.what(), failure.remedy};
  }
}

void examine(const Common& common, bool peer, const std::string& source) {
  std::vector<Finding> findings{machine(),       providers(),       memory_lock(), huge_pages(), huge_shared_memory(),
                                shared_memory(), anonymous_files(), checksum(),    open_files(), broker(common)};
  for (auto& finding : fabric_findings()) findings.push_back(std::move(finding));
  if (peer) {
    try {
      for (auto& finding : peer_findings(common, source)) findings.push_back(std::move(finding));
    } catch (const Failure& failure) {  // what was found of this host is told all the same
      findings.push_back({"peer", State::missing, failure.what(), failure.remedy});
    }
  }
  Json out = Json::array();
  std::string missing;
  for (const auto& finding : findings) {
    const auto* state = finding.state == State::good   ? "good"
                        : finding.state == State::hint ? "could be better"
                                                       : "missing";
    if (finding.state == State::missing) missing += (missing.empty() ? "" : ", ") + finding.what;
    out.push_back({{"what", finding.what}, {"state", state}, {"detail", finding.detail}, {"remedy", finding.remedy}});
    if (common.json) continue;
    const auto colour = finding.state == State::good   ? Colour::green
                        : finding.state == State::hint ? Colour::yellow
                                                       : Colour::red;
    print(fmt::format("{} {:<18} {}",
                      paint(colour, finding.state == State::good   ? "ok "
                                    : finding.state == State::hint ? "-- "
                                                                   : "NO "),
                      finding.what, finding.detail));
    if (!finding.remedy.empty()) print(fmt::format("    {}", paint(Colour::dim, finding.remedy)));
  }
  if (common.json) print_json(out);
  if (!missing.empty()) throw Failure(Exit::found_wrong, "missing: " + missing, "see the lines marked NO");
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void add_doctor(CLI::App& app, Common& common) {
  auto* const command = app.add_subcommand("doctor", "What this host can do, and what to do about the rest");
  add_common(*command, common);
  struct Options {
    bool peer = false;
    std::string source;
  };
  const auto options = std::make_shared<Options>();
  command->add_flag("--peer", options->peer,
                    "Connect to the broker (-b) over each provider and read: latency, bandwidth, or what is wrong");
  command->add_option("--source", options->source,
                      "This host's address to read from over a fabric; else the route decides");
  command->callback([&common, options] { examine(common, options->peer, options->source); });
}

}  // namespace ciuic::tool
