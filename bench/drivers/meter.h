#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>

namespace ciuic::bench {

/// What a process has used so far. Any process of the same user may be asked about.
struct Usage {
  double cpu_seconds = 0;         ///< user and system, all threads, ended ones too (its CPU clock, not ticks)
  std::uint64_t voluntary = 0;    ///< context switches to wait; of another process's living threads only
  std::uint64_t involuntary = 0;  ///< because another thread's turn had come
};
[[nodiscard]] Usage usage_of(pid_t pid);

/// Between two moments: the driver's own process and, where `watched` is not 0, the broker's. Starts when made.
class Meter {
 public:
  explicit Meter(pid_t watched);
  void restart();
  /// Memory is what it is now, also to later `read`s: for who closes its clients before the last of the cost is read.
  void note_memory();
  /// {"client": {"cpu_seconds", "voluntary", "involuntary", "resident_mib"}, "broker": {… "anonymous_mib",
  /// "registered_mib"}}. `registered_mib` is memory that readers read one-sidedly: the arena (a memfd, so RssShmem),
  /// and what a network card has pinned.
  [[nodiscard]] nlohmann::ordered_json read() const;

 private:
  pid_t watched_;
  Usage client_{};
  Usage broker_{};
  nlohmann::ordered_json client_memory_, broker_memory_;
};

}  // namespace ciuic::bench
