#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/ciuic/output.h"

namespace ciuic::tool {

class Cluster;

/// One thing that `ciuic doctor` looked at.
struct Finding {
  enum class State { good, hint, missing };
  std::string what;
  State state;
  std::string detail;
  std::string remedy;
};

/// The file's first line; empty if there is none.
[[nodiscard]] std::string first_line(const std::string& path);
/// RDMA cards, their ports and addresses, what they count, and what stands in the way of using them
/// (doctor_fabric.cpp).
[[nodiscard]] std::vector<Finding> fabric_findings();
/// Have the brokers the one-sided APIs, and are they on? Throws Failure.
[[nodiscard]] bool offers_one_sided(Cluster& cluster);
/// Connects to the broker behind `common.bootstrap` over each provider that both sides have, and reads
/// (doctor_peer.cpp).
[[nodiscard]] std::vector<Finding> peer_findings(const Common& common, const std::string& source);

}  // namespace ciuic::tool
