#pragma once
#include <memory>
#include <string>
#include <utility>

#include "transport/rdma/stripes.h"

namespace ciuic::testing {

using namespace ciuic::rdma;  // NOLINT: a test support header

/// Any provider, whose connections are two wherever there is a second token.
class StripedProvider final : public Provider {
 public:
  explicit StripedProvider(std::shared_ptr<Provider> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  const Caps& caps() const override { return caps_; }
  bool crosses_hosts() const override { return inner_->crosses_hosts(); }
  Result<std::shared_ptr<Domain>> open_domain(std::string principal) override {
    return inner_->open_domain(std::move(principal));
  }
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) override { return inner_->listen(options); }
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                            const ConnectOptions& options) override {
    auto first = inner_->connect(address, token, options);
    if (!first || !options.second) return first;
    auto second = inner_->connect(address, *options.second, options);
    if (!second) return second;
    const auto any = [](const RemoteSpan&) { return true; };
    return stripe({Lane{std::move(*first), any}, Lane{std::move(*second), any}});
  }

 private:
  std::shared_ptr<Provider> inner_;
  Caps caps_ = [this] {
    auto caps = inner_->caps();
    caps.maps_remote = false;
    return caps;
  }();
};
inline std::shared_ptr<Provider> make_striped(std::shared_ptr<Provider> inner) {
  return std::make_shared<StripedProvider>(std::move(inner));
}

}  // namespace ciuic::testing
