// The provider: what it is made of is in the files beside.
#include "transport/rdma/verbs/verbs.h"

#include "transport/rdma/verbs/ends.h"

namespace ciuic::rdma {

namespace verbs {

const Caps& verbs_caps() {
  // Devices take messages of 8 MiB and more; shorter READs make a retry after a lost packet cheap.
  static constexpr Caps caps{.enforces_bounds = true,
                             .enforces_read_only = true,
                             .enforces_revocation = true,
                             .maps_remote = false,
                             .read_bytes_max = 1U << 20,
                             .reads_outstanding_max = 128};
  return caps;
}

}  // namespace verbs

namespace {

class VerbsProvider final : public Provider {
 public:
  VerbsProvider(const verbs::Library& library, const Clock& clock) : library_(library), clock_(clock) {}
  std::string_view name() const override { return "verbs"; }
  const Caps& caps() const override { return verbs::verbs_caps(); }
  bool crosses_hosts() const override { return true; }
  Result<std::shared_ptr<Domain>> open_domain(std::string principal) override {
    return std::shared_ptr<Domain>(std::make_shared<verbs::VerbsDomain>(library_, rails_, std::move(principal)));
  }
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) override {
    return verbs::listen(library_, options, rails_, clock_);
  }
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                            const ConnectOptions& options) override {
    return verbs::connect(library_, address, token, options, clock_);
  }

 private:
  const verbs::Library& library_;
  const Clock& clock_;
  std::shared_ptr<verbs::Rails> rails_ = std::make_shared<verbs::Rails>();
};

}  // namespace

Result<std::vector<VerbsAddress>> verbs_addresses() {
  const auto library = verbs::Library::load();
  if (!library) return library.error();
  const auto channel = verbs::make_channel(**library);
  if (!channel) return channel.error();
  std::vector<VerbsAddress> found;
  for (auto address : host_addresses()) {
    const auto id = verbs::make_id(**library, **channel);
    if (!id) return id.error();
    if ((*library)->rdma_bind_addr(id->get(), address.get()) != 0 || (*id)->verbs == nullptr) continue;
    auto text = address.text();
    text.resize(text.rfind(':'));
    found.push_back({std::move(text), (*library)->ibv_get_device_name((*id)->verbs->device)});
  }
  return found;
}

Result<std::shared_ptr<Provider>> make_verbs_provider(const Clock& clock, bool device_may_come) {
  const auto library = verbs::Library::load();
  if (!library) return library.error();
  // Whether the kernel has any of it: an event channel is the first thing that fails without.
  if (const auto channel = verbs::make_channel(**library); !channel && !device_may_come) return channel.error();
  return std::shared_ptr<Provider>(std::make_shared<VerbsProvider>(**library, clock));
}

}  // namespace ciuic::rdma
