#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/rdma/provider.h"
#include "transport/rdma/ucx/objects.h"

namespace ciuic::rdma::ucx {

class UcxDomain;

/// A listener, as a region that ends knows it.
class Holders {
 public:
  /// Returns once no connection can be read by the key any more: each has said so, or is cut.
  virtual void forget(std::uint64_t key) = 0;

 protected:
  ~Holders() = default;
};

/// What the listeners and the domains of a provider share: the context, and what each key opens. Any thread.
class Seat {
 public:
  Seat(const Library& library, std::string transports) : library_(library), transports_(std::move(transports)) {}
  [[nodiscard]] Result<std::shared_ptr<const Context>> context();

  struct Exposed {
    const UcxDomain* domain = nullptr;
    std::uint64_t address = 0;
    std::uint32_t length = 0;
    Buffer packed;
  };
  /// The key that it has from now on.
  [[nodiscard]] std::uint64_t add(const Exposed& exposed);
  /// Nothing if the key is none, or another domain's.
  [[nodiscard]] std::optional<Exposed> find(std::uint64_t key, const UcxDomain& domain) const;
  /// Nobody learns the key any more, nobody reads by it.
  void revoke(std::uint64_t key);
  [[nodiscard]] std::size_t size() const;

  void join(Holders& listener);
  void leave(Holders& listener);

 private:
  const Library& library_;
  std::string transports_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Context> context_;
  std::unordered_map<std::uint64_t, Exposed> keys_;
  std::mutex listeners_mutex_;  // held while one forgets, so that none ends meanwhile
  std::vector<Holders*> listeners_;
};

/// One principal: UCX knows none, so that its keys are told to its connections alone.
class UcxDomain final : public Domain, public std::enable_shared_from_this<UcxDomain> {
 public:
  UcxDomain(std::shared_ptr<Seat> seat, std::string principal)
      : seat_(std::move(seat)), principal_(std::move(principal)) {}
  std::string_view principal() const override { return principal_; }
  bool pins_memory() const override { return true; }
  /// At most `regions_max` at a time in all domains.
  Result<Region> expose(const Exposable& memory) override;

  static constexpr std::size_t regions_max = 1U << 16;

 private:
  class Held;

  std::shared_ptr<Seat> seat_;
  std::string principal_;
};

}  // namespace ciuic::rdma::ucx
