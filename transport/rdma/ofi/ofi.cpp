// The provider: what it is made of is in the files beside.
#include "transport/rdma/ofi/ofi.h"

#include <fmt/core.h>

#include <mutex>
#include <optional>

#include "transport/base/log.h"
#include "transport/rdma/ofi/ends.h"

namespace ciuic::rdma {

namespace {

class OfiProvider final : public Provider {
 public:
  OfiProvider(const ofi::Library& library, std::string only, const Clock& clock)
      : library_(library), only_(std::move(only)), clock_(clock) {}
  std::string_view name() const override { return "ofi"; }
  const Caps& caps() const override {
    static constexpr Caps nothing{};
    const auto* const chosen = choose();
    return chosen != nullptr ? chosen->caps : nothing;
  }
  bool crosses_hosts() const override { return true; }
  Result<std::shared_ptr<Domain>> open_domain(std::string principal) override {
    const auto* const chosen = choose();
    if (chosen == nullptr) return Fault::no_device;
    return std::shared_ptr<Domain>(std::make_shared<ofi::OfiDomain>(*chosen, seat_, std::move(principal)));
  }
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) override {
    const auto* const chosen = choose();
    if (chosen == nullptr) return Fault::no_device;
    const auto listen = chosen->manner == ofi::Manner::connected ? &ofi::listen : &ofi::listen_connectionless;
    return listen(library_, *chosen, options, seat_, clock_);
  }
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                            const ConnectOptions& options) override {
    const auto* const kind = ofi::find_kind(std::string_view(address).substr(0, address.find("://")));
    if (kind != nullptr && kind->name != only_ && !ofi::is_recent_enough(library_, *kind, log::Level::warn))
      return Fault::no_device;
    return ofi::connect(library_, address, token, options, clock_);
  }

 private:
  /// For the broker's side, when it is first asked for: a client takes what the broker chose. Null: there is none.
  const ofi::Kind* choose() const {
    const std::scoped_lock lock(mutex_);
    if (chosen_) return *chosen_;
    chosen_ = nullptr;
    if (!library_.without_cache()) {
      log::error("rdma",
                 "ofi: this process has read by libfabric before, with its cache of registrations on: its memory "
                 "cannot be exposed; start the broker in a process of its own");
      return nullptr;
    }
    for (const auto& kind : ofi::all_kinds()) {
      if ((!only_.empty() && kind.name != only_) || !ofi::is_usable(library_, kind)) continue;
      if (kind.name != only_ && !ofi::is_recent_enough(library_, kind, log::Level::debug)) continue;
      log::debug("rdma", "ofi: libfabric's {}: {}", kind.name, kind.seen);
      chosen_ = &kind;
      break;
    }
    return *chosen_;
  }

  const ofi::Library& library_;
  std::string only_;
  const Clock& clock_;
  std::shared_ptr<ofi::Seat> seat_ = std::make_shared<ofi::Seat>();
  mutable std::mutex mutex_;
  mutable std::optional<const ofi::Kind*> chosen_{};
};

}  // namespace

Result<std::shared_ptr<Provider>> make_ofi_provider(const Clock& clock, std::string only) {
  const auto library = ofi::Library::load();
  if (!library) return library.error();
  return std::shared_ptr<Provider>(std::make_shared<OfiProvider>(**library, std::move(only), clock));
}

Result<OfiFinding> look_at_ofi() {
  const auto library = ofi::Library::load();
  if (!library) return library.error();
  (void)(*library)->without_cache();  // as a broker has it
  OfiFinding found;
  const auto version = (*library)->fi_version();
  found.version = fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
  for (const auto& kind : ofi::all_kinds())
    if (ofi::is_usable(**library, kind) && ofi::is_recent_enough(**library, kind, log::Level::debug))
      found.usable.push_back({std::string(kind.name), std::string(kind.seen)});
  return found;
}

}  // namespace ciuic::rdma
