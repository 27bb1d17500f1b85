// The one place that names providers. One that needs libraries a host may lack has its row too: its factory loads them.
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "transport/rdma/memory/memory.h"
#include "transport/rdma/ofi/ofi.h"
#include "transport/rdma/registry.h"
#include "transport/rdma/shm/shm.h"
#include "transport/rdma/ucx/ucx.h"
#include "transport/rdma/verbs/verbs.h"

namespace ciuic::rdma {

namespace {

constexpr std::array factories{
    ProviderFactory{"verbs", "InfiniBand, RoCE, iWARP: the network card reads broker memory",
                    [](const Clock& clock) { return make_verbs_provider(clock); }, false,
                    [](const Clock& clock) { return make_verbs_provider(clock, true); }},
    ProviderFactory{"ofi", "libfabric: its verbs, or TCP for readers that are trusted",
                    [](const Clock& clock) { return make_ofi_provider(clock); }, true},
    ProviderFactory{"ucx", "UCX, for readers that are trusted",
                    [](const Clock& clock) { return make_ucx_provider(clock); }, true},
    ProviderFactory{"shm", "same host: broker memory mapped read-only, zero copy",
                    [](const Clock& clock) -> Result<std::shared_ptr<Provider>> { return make_shm_provider(clock); }},
    ProviderFactory{"memory", "same process: the reference, for tests and embedding",
                    [](const Clock& clock) -> Result<std::shared_ptr<Provider>> {
                      return make_memory_provider(MemoryFabric::of_process(), clock);
                    }},
};

}  // namespace

std::span<const ProviderFactory> provider_factories() { return factories; }

Result<std::shared_ptr<Provider>> make_provider(std::string_view name, const Clock& clock, bool device_may_come) {
  for (const auto& factory : factories)
    if (factory.name == name)
      return device_may_come && factory.make_before_device ? factory.make_before_device(clock) : factory.make(clock);
  return Fault::unknown_provider;
}

std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return boot + "/" + std::to_string(::geteuid());
}

}  // namespace ciuic::rdma
