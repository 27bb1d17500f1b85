// The provider: what it is made of is in the files beside.
#include "transport/rdma/ucx/ucx.h"

#include <mutex>

#include "transport/rdma/ucx/ends.h"

namespace ciuic::rdma {

namespace {

class UcxProvider final : public Provider {
 public:
  UcxProvider(const ucx::Library& library, std::string transports, const Clock& clock)
      : library_(library),
        transports_(std::move(transports)),
        clock_(clock),
        seat_(std::make_shared<ucx::Seat>(library_, transports_)) {}
  std::string_view name() const override { return "ucx"; }
  const Caps& caps() const override { return ucx::caps; }
  bool crosses_hosts() const override { return true; }
  Result<std::shared_ptr<Domain>> open_domain(std::string principal) override {
    const auto opened = seat_->context();
    if (!opened) return opened.error();
    return std::shared_ptr<Domain>(std::make_shared<ucx::UcxDomain>(seat_, std::move(principal)));
  }
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) override {
    return ucx::listen(options, seat_, clock_);
  }
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                            const ConnectOptions& options) override {
    std::shared_ptr<const ucx::Context> context;
    {
      const std::scoped_lock lock(mutex_);
      if (!reading_) {
        auto opened = ucx::Context::open(library_, ucx::Side::reading, transports_);
        if (!opened) return opened.error();
        reading_ = std::move(*opened);
      }
      context = reading_;
    }
    return ucx::connect(std::move(context), address, token, options, clock_);
  }

 private:
  const ucx::Library& library_;
  std::string transports_;
  const Clock& clock_;
  std::shared_ptr<ucx::Seat> seat_;
  std::mutex mutex_;
  std::shared_ptr<const ucx::Context> reading_;
};

}  // namespace

Result<std::shared_ptr<Provider>> make_ucx_provider(const Clock& clock, std::string transports) {
  const auto library = ucx::Library::load();
  if (!library) return library.error();
  return std::shared_ptr<Provider>(std::make_shared<UcxProvider>(**library, std::move(transports), clock));
}

Result<std::string> look_at_ucx() {
  const auto library = ucx::Library::load();
  if (!library) return library.error();
  return std::string((*library)->get_version_string());
}

}  // namespace ciuic::rdma
