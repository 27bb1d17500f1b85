#pragma once
#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/provider.h"

namespace ciuic::rdma {

/// READs through libfabric, by one of its providers (kinds.cpp has the list, best first): connected endpoints
/// (FI_EP_MSG) of `verbs` and `tcp`, endpoints without connections (FI_EP_RDM) of others. libfabric's own FI_PROVIDER
/// narrows the choice. Addresses are `verbs://ip:port`: the client uses what the broker chose.
///
/// Who enforces what is the libfabric provider's affair: `caps()` says what was seen of the one chosen
/// (docs/fabric.md, kinds.cpp). `verbs` enforces all, on the regions' rights alone. `tcp` is libfabric's software: the
/// broker's CPU serves its READs, and it trusts whoever was admitted. Endpoints without connections trust whoever
/// reaches them.
///
/// libfabric is loaded at run time: programs work on hosts without it. Errors: no_device (no library). Whether one of
/// its providers is usable is found out by `caps`, `open_domain` and `listen` (no_device). A process that connected by
/// it before cannot listen any more (library.h). `only`: that one of libfabric's providers, however
/// old the library.
[[nodiscard]] Result<std::shared_ptr<Provider>> make_ofi_provider(const Clock& clock, std::string only = {});

struct OfiFinding {
  std::string version;  ///< of the library
  struct Usable {
    std::string name;  ///< as libfabric calls it
    std::string text;  ///< what it enforces, for people
  };
  std::vector<Usable> usable;  ///< best first
};
/// What there is on this host. Errors: no_device (no library).
[[nodiscard]] Result<OfiFinding> look_at_ofi();

}  // namespace ciuic::rdma
