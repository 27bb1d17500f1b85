// The RDMA half of `ciuic doctor`: what sysfs, rdma_cm and the GPU's driver say of this host's cards, put into words.
#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tools/ciuic/finding.h"
#include "transport/device/cuda_facts.h"
#include "transport/rdma/ofi/ofi.h"
#include "transport/rdma/ucx/ucx.h"
#include "transport/rdma/verbs/verbs.h"

namespace ciuic::tool {
namespace {

namespace fs = std::filesystem;
using State = Finding::State;

const fs::path devices_folder = "/sys/class/infiniband";

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& one : fs::directory_iterator(folder, error)) found.push_back(one.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

/// Each device's ports: state, link layer, rate.
Finding ports() {
  std::vector<std::string> found;
  bool active = false;
  for (const auto& device : entries(devices_folder)) {
    for (const auto& port : entries(device / "ports")) {
      const auto state = first_line(port / "state");
      active = active || state.find("ACTIVE") != std::string::npos;
      found.push_back(fmt::format("{} port {}: {}, {}, {}", device.filename().string(), port.filename().string(), state,
                                  first_line(port / "link_layer"), first_line(port / "rate")));
    }
  }
  if (found.empty())
    return {"RDMA devices", State::hint, "none under /sys/class/infiniband",
            "install the NIC's driver and rdma-core, or make a soft device: rdma link add rxe0 type rxe netdev eth0"};
  return {"RDMA devices", active ? State::good : State::missing, joined(found),
          active ? "" : "no port is active: check cable, switch, and for InfiniBand the subnet manager"};
}

Finding device_files() {
  const bool connection_manager = ::access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0;
  bool verbs = false;
  for (const auto& file : entries("/dev/infiniband"))
    verbs = verbs || (file.filename().string().starts_with("uverbs") && ::access(file.c_str(), R_OK | W_OK) == 0);
  if (connection_manager && verbs) return {"device files", State::good, "/dev/infiniband: rdma_cm and uverbs", ""};
  const bool there = fs::exists("/dev/infiniband");
  return {"device files", State::missing,
          there ? "/dev/infiniband lacks rdma_cm or uverbs, or this user may not open them" : "no /dev/infiniband",
          "in a container pass the devices in (docker: --device /dev/infiniband; Kubernetes: the RDMA device plug-in's "
          "resource, docs/fabric.md); on a host: modprobe rdma_ucm ib_uverbs"};
}

std::string library_file(const char* name) {
  void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) return "";
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return name;
  std::error_code error;
  const auto real = fs::canonical(map->l_name, error);
  return error ? std::string(map->l_name) : real.filename().string();
}

Finding libraries() {
  const auto verbs = library_file("libibverbs.so.1"), connections = library_file("librdmacm.so.1");
  const bool both = !verbs.empty() && !connections.empty();
  return {
      "rdma-core", both ? State::good : State::hint,
      both ? verbs + ", " + connections : "libibverbs or librdmacm is not on this host",
      both ? "" : "install rdma-core with librdmacm1 and ibverbs-providers; without it readers of other hosts use TCP"};
}

/// What `ofi` would read by, and what that is known to enforce.
Finding libfabric() {
  const auto found = rdma::look_at_ofi();
  if (!found)
    return {"libfabric", State::hint, "not on this host",
            "install libfabric1 where onesided.providers names ofi; verbs and shm do without"};
  std::vector<std::string> words;
  for (const auto& [name, text] : found->usable) words.push_back(name + ": " + text);
  const auto file = library_file("libfabric.so.1");
  if (words.empty())
    return {"libfabric", State::hint,
            fmt::format("{} ({}), and none of its providers that we use", file, found->version),
            "is FI_PROVIDER set in the environment to what `ofi` does not use (docs/fabric.md)?"};
  // What is first is chosen, and own verbs alone enforces all.
  const auto& chosen = found->usable.front().name;
  return {"libfabric", State::good, fmt::format("{} ({}); {}", file, found->version, joined(words)),
          chosen == "verbs" ? ""
                            : fmt::format("a broker offers ofi over {} with rdma.trusted.readers=true only",
                                          chosen == "tcp" ? "TCP" : chosen)};
}

/// What `ucx` would read by.
Finding ucx() {
  const auto version = rdma::look_at_ucx();
  if (!version)
    return {"ucx", State::hint, "not on this host, or older than 1.13",
            "install libucx0 where onesided.providers names ucx; verbs and shm do without"};
  const char* const transports = std::getenv("UCX_TLS");
  return {
      "ucx", State::good,
      fmt::format("{} ({}); UCX_TLS={}", library_file("libucp.so.0"), *version,
                  transports != nullptr ? transports : "(not set: UCX chooses)"),
      "a broker offers it with rdma.trusted.readers=true only: it keeps nobody from reading and writing the broker"};
}

/// What a broker with an empty onesided.listen offers, and a reader here connects from.
Finding addresses() {
  const auto found = rdma::verbs_addresses();
  if (!found || found->empty())
    return {"fabric addresses", State::missing,
            found ? "no address of this host belongs to an RDMA device" : std::string(rdma::text(found.error())),
            "give the RDMA interface an IP address (InfiniBand: IPoIB); rdma_cm finds a device by it"};
  std::vector<std::string> words;
  for (const auto& [address, device] : *found) words.push_back(address + " on " + device);
  return {"fabric addresses", State::good, joined(words),
          found->size() > 1 ? "the route to the broker decides; onesided.source and onesided.listen override it" : ""};
}

/// RoCE's GIDs: rdma_cm takes the v2 one of the address that the route chose.
Finding gids() {
  std::vector<std::string> found;
  bool roce = false, second = false;
  for (const auto& device : entries(devices_folder)) {
    for (const auto& port : entries(device / "ports")) {
      if (first_line(port / "link_layer") != "Ethernet") continue;
      roce = true;
      for (const auto& gid : entries(port / "gids")) {
        const auto index = gid.filename().string();
        const auto type = first_line(port / "gid_attrs" / "types" / index);
        if (type != "RoCE v2") continue;
        second = true;
        found.push_back(fmt::format("{} {} {} ({})", device.filename().string(), index, first_line(gid),
                                    first_line(port / "gid_attrs" / "ndevs" / index)));
      }
    }
  }
  if (!roce) return {"RoCE GIDs", State::good, "no RoCE port", ""};
  return {"RoCE GIDs", second ? State::good : State::hint, second ? "v2: " + joined(found) : "no RoCE v2 GID",
          second ? ""
                 : "RoCE v1 is not routed: give the interface an IP address, and see default_roce_mode under "
                   "/sys/kernel/config/rdma_cm"};
}

Finding frame_size() {
  std::vector<std::string> found;
  bool small = false;
  for (const auto& device : entries(devices_folder)) {
    const auto ports = entries(device / "ports");
    const bool roce = std::any_of(ports.begin(), ports.end(),
                                  [](const auto& port) { return first_line(port / "link_layer") == "Ethernet"; });
    if (!roce) continue;  // InfiniBand's MTU is the subnet manager's
    for (const auto& net : entries(device / "device" / "net")) {
      const auto mtu = first_line(net / "mtu");
      small = small || std::strtol(mtu.c_str(), nullptr, 10) < 4200;
      found.push_back(net.filename().string() + " " + mtu);
    }
    if (const auto parent = first_line(device / "parent"); !parent.empty()) {
      const auto mtu = first_line(fs::path("/sys/class/net") / parent / "mtu");
      small = small || std::strtol(mtu.c_str(), nullptr, 10) < 4200;
      found.push_back(parent + " " + mtu);
    }
  }
  if (found.empty()) return {"MTU", State::good, "no network interface of an RDMA device found", ""};
  return {"MTU", small ? State::hint : State::good, joined(found),
          small ? "RoCE carries 4096 bytes a packet from an MTU of 4200 on: set 9000 on hosts and switches alike" : ""};
}

/// What a card counts when packets are lost or pressed for room.
Finding counters() {
  struct Row {
    const char* name;
    const char* meaning;
  };
  static constexpr std::array<Row, 9> rows{{{"out_of_sequence", "packets overtook or were lost"},
                                            {"packet_seq_err", "the peer saw a gap"},
                                            {"local_ack_timeout_err", "a request was repeated for want of an answer"},
                                            {"retry_exceeded_err", "a connection ended for want of answers"},
                                            {"port_rcv_errors", "damaged packets"},
                                            {"symbol_error", "a bad cable or plug"},
                                            {"link_downed", "the link went down"},
                                            {"rx_icrc_encapsulated", "damaged RoCE packets"},
                                            {"np_cnp_sent", "congestion was marked (ECN works)"}}};
  std::vector<std::string> found;
  for (const auto& device : entries(devices_folder))
    for (const auto& port : entries(device / "ports"))
      for (const auto& [name, meaning] : rows)
        for (const char* const folder : {"counters", "hw_counters"}) {
          const auto value = first_line(port / folder / name);
          if (value.empty() || value == "0") continue;
          found.push_back(fmt::format("{} {} {} ({})", device.filename().string(), name, value, meaning));
        }
  if (found.empty()) return {"fabric errors", State::good, "none counted", ""};
  return {"fabric errors", State::hint, joined(found),
          "see whether they grow while readers run; RoCE wants priority flow control or ECN on every switch between "
          "(docs/fabric.md)"};
}

/// GPU memory as what batches land in, by its driver's own word.
Finding gpus() {
  const auto facts = device::cuda_facts();
  if (!facts && first_line("/proc/driver/nvidia/version").empty())
    return {"GPU", State::good, "none of NVIDIA's: batches land in host memory", ""};
  if (!facts)
    return {"GPU", State::hint, facts.error().text,
            "batches land in host memory until nvidia-smi works; a container needs --gpus and "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility"};
  std::ifstream modules("/proc/modules");
  bool peer_memory = false;
  for (std::string line; std::getline(modules, line);) peer_memory = peer_memory || line.starts_with("nvidia_peermem");
  bool reached = true, pinned = true;
  std::vector<std::string> found{fmt::format("driver of CUDA {}.{}", facts->driver / 1000, facts->driver % 1000 / 10)};
  for (const auto& gpu : facts->gpus) {
    reached = reached && (gpu.dma_buf || peer_memory);
    pinned = pinned && gpu.read_only_register;
    found.push_back(fmt::format("{}: {}, {}", gpu.name,
                                gpu.dma_buf   ? "dma-buf"
                                : peer_memory ? "nvidia_peermem"
                                              : "no dma-buf",
                                gpu.read_only_register ? "read-only pins" : "no read-only pins"));
  }
  std::vector<std::string> remedies;
  if (!reached)
    remedies.emplace_back(
        "cards reach GPU memory by dma-buf (NVIDIA's open kernel modules, Linux 5.12) or nvidia_peermem");
  if (!pinned)
    remedies.emplace_back("a driver without read-only pins copies slower from a broker on this host: update it");
  if (!facts->kernels)
    remedies.emplace_back("this build has no GPU kernels, the host checks batches: build with clang-14");
  return {"GPU", remedies.empty() ? State::good : State::hint, joined(found), joined(remedies)};
}

Finding iommu() {
  const bool on = !entries("/sys/class/iommu").empty();
  const auto line = first_line("/proc/cmdline");
  const bool passes = line.find("iommu=pt") != std::string::npos;
  return {"IOMMU", !on || passes ? State::good : State::hint, on ? passes ? "on, passed through" : "on" : "off",
          on && !passes ? "translation costs cards bandwidth, and between card and GPU ACS sends it through the root "
                          "port: iommu=pt on the kernel's command line"
                        : ""};
}

}  // namespace

std::vector<Finding> fabric_findings() {
  std::vector<Finding> all{ports(), libfabric(), ucx(), gpus()};
  // The rest only says something where there is a device.
  if (entries(devices_folder).empty()) return all;
  for (auto* const look : {device_files, libraries, addresses, gids, frame_size, counters, iommu})
    all.push_back(look());
  return all;
}

}  // namespace ciuic::tool
