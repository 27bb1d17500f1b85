#pragma once
#include <rdma/fabric.h>

#include <cstdint>

#include "transport/rdma/fault.h"

namespace ciuic::rdma::ofi {

/// The functions of libfabric that we call, found at run time. All others are inline in its headers and go through the
/// objects' own tables.
class Library {
 public:
  decltype(&::fi_freeinfo) fi_freeinfo = nullptr;
  decltype(&::fi_dupinfo) fi_dupinfo = nullptr;
  decltype(&::fi_fabric) fi_fabric = nullptr;
  decltype(&::fi_version) fi_version = nullptr;
  decltype(&::fi_strerror) fi_strerror = nullptr;

  /// Loads it once for the process; any thread. Error: no_device (missing or too old; the log says).
  [[nodiscard]] static Result<const Library*> load();
  /// Before memory is exposed: switches off the cache of registrations, for with it on the verbs provider lets peers
  /// write where they may only read. Not in processes that only read, where others may want it. False: too late, it is
  /// on for the life of this process.
  [[nodiscard]] bool without_cache() const;
  /// fi_getinfo, of which the first in a process decides about the cache. The caller frees the list.
  [[nodiscard]] int find(std::uint64_t flags, const char* node, const char* service, const fi_info& hints,
                         fi_info*& list) const;

 private:
  static Result<const Library*> load_once();
  decltype(&::fi_getinfo) fi_getinfo_ = nullptr;
};

}  // namespace ciuic::rdma::ofi
