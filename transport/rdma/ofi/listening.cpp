// Where to listen, for both kinds of listener.
#include "transport/rdma/ofi/listening.h"

#include "transport/base/log.h"

namespace ciuic::rdma::ofi {

Result<void> listen_somewhere(const Kind& kind, const ListenOptions& options,
                              const std::function<Result<void>(const Address&)>& at) {
  const auto addresses =
      options.address.empty() ? host_addresses() : parse_addresses(options.address).value_or(std::vector<Address>());
  if (addresses.empty() && !options.address.empty()) {
    log::error("rdma", "ofi: onesided.listen={}: no list of addresses; give ip:port, with commas between",
               options.address);
    return Fault::refused;
  }
  auto why = Fault::no_device;
  for (const auto& address : addresses) {
    const auto done = at(address);
    if (done) return {};
    why = done.error();
    if (!options.address.empty())
      log::error("rdma", "ofi: libfabric's {} cannot listen at {}: {}; {}", kind.name, address.text(), text(why),
                 remedy(why));
  }
  return why;
}

}  // namespace ciuic::rdma::ofi
