#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/support/faulty_provider.h"
#include "tests/conformance/support/striped_provider.h"
#include "transport/rdma/memory/memory.h"
#include "transport/rdma/ofi/ofi.h"
#include "transport/rdma/registry.h"
#include "transport/rdma/ucx/ucx.h"

namespace ciuic::testing {

/// A provider the suite runs over. Joining is a row of the registry; decorated ones prove the decorator transparent.
struct Subject {
  std::string name;
  std::shared_ptr<Provider> (*make)(const Clock& clock);
  std::string listen{};  ///< ListenOptions::address
  std::string source{};  ///< ConnectOptions::source
  /// Soft-iWARP: a refusal flushes the reader and says no reason, queue pairs' rights are not enforced, a READ under
  /// way goes on after deregistration, and its library makes no sixteenth queue pair.
  bool soft_iwarp = false;
  /// A READ that the broker's side refuses ends flushed, and says no reason.
  bool silent_refusals = false;
  /// For readers that are trusted: it declares that a hostile one could write.
  bool trusted_readers = false;
  /// A reader that is killed amid a READ can end the broker's process.
  bool falls_with_a_killed_reader = false;
  /// Connections that are two, as one.
  bool striped = false;
};
/// As a test's parameter is shown.
inline void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

/// Verbs need a device: `tools/rdma-vm/run` brings two (RDMA_VM_ADDR0, RDMA_VM_ADDR1), and so may a host that has some.
/// `verbs` stays inside one device, `verbs_wire` goes from one to the other.
inline std::vector<Subject> all_subjects() {
  std::vector<Subject> all{
      {"memory", [](const Clock& clock) { return make_provider("memory", clock).value(); }},
      {"shm", [](const Clock& clock) { return make_provider("shm", clock).value(); }},
      {"memory_decorated",
       [](const Clock& clock) {
         return make_faulty(make_provider("memory", clock).value(), std::make_shared<FaultState>());
       }},
      {"shm_decorated",
       [](const Clock& clock) {
         return make_faulty(make_provider("shm", clock).value(), std::make_shared<FaultState>());
       }},
  };
  Subject striped{"memory_striped",
                  [](const Clock& clock) { return make_striped(make_provider("memory", clock).value()); }};
  striped.striped = true;
  all.push_back(striped);
  // libfabric's TCP works wherever the library is.
  if (make_ofi_provider(system_clock())) {
    Subject tcp{"ofi_tcp", [](const Clock& clock) { return make_ofi_provider(clock, "tcp").value(); }, "127.0.0.1:0"};
    tcp.silent_refusals = tcp.trusted_readers = true;
    all.push_back(tcp);
    tcp.name = "ofi_tcp_rdm";
    tcp.make = [](const Clock& clock) { return make_ofi_provider(clock, "tcp;ofi_rxm").value(); };
    all.push_back(tcp);
  }
  // So does UCX's.
  if (make_ucx_provider(system_clock())) {
    Subject tcp{"ucx_tcp", [](const Clock& clock) { return make_ucx_provider(clock, "tcp").value(); }, "127.0.0.1:0"};
    tcp.trusted_readers = tcp.falls_with_a_killed_reader = true;
    all.push_back(tcp);
  }
  const char* const here = std::getenv("RDMA_VM_ADDR0");
  const char* const there = std::getenv("RDMA_VM_ADDR1");
  if (here == nullptr || there == nullptr) return all;
  const auto verbs = [](const Clock& clock) { return make_provider("verbs", clock).value(); };
  const char* const device = std::getenv("RDMA_VM");
  const bool soft_iwarp = device != nullptr && std::string_view(device) == "siw";
  all.push_back({"verbs", verbs, there, "", soft_iwarp, soft_iwarp});
  all.push_back({"verbs_wire", verbs, there, here, soft_iwarp, soft_iwarp});
  // `--rails 2`: by both pairs of devices.
  const char* const second_here = std::getenv("RDMA_VM_ADDR2");
  const char* const second_there = std::getenv("RDMA_VM_ADDR3");
  if (second_here != nullptr && second_there != nullptr) {
    Subject rails{
        "verbs_rails", verbs,     there + std::string(",") + second_there, here + std::string(",") + second_here,
        soft_iwarp,    soft_iwarp};
    rails.striped = true;
    all.push_back(rails);
  }
  const auto ofi = [](const Clock& clock) { return make_ofi_provider(clock, "verbs").value(); };
  if (make_ofi_provider(system_clock())) {
    all.push_back({"ofi_verbs_wire", ofi, there, here, soft_iwarp, soft_iwarp});
    Subject rdm = all.back();
    rdm.name = "ofi_verbs_rdm";
    rdm.make = [](const Clock& clock) { return make_ofi_provider(clock, "verbs;ofi_rxm").value(); };
    rdm.trusted_readers = true;
    all.push_back(rdm);
  }
  return all;
}

/// A folder under the system's temporary one, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ciuic-conformance-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
    ::chmod(path_.c_str(), 0711);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ciuic::testing
