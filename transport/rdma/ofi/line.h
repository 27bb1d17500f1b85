#pragma once
#include <memory>
#include <string>

#include "transport/base/clock.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/ofi/domain.h"

namespace ciuic::rdma::ofi {

/// What a client's endpoint reads by, and what says that the broker will serve it no more. One thread at a time.
class Line {
 public:
  Line(std::shared_ptr<Device> device, Owned<fid_domain> domain)
      : device_(std::move(device)), domain_(std::move(domain)) {}
  virtual ~Line() = default;
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  /// Why it is over, if it is.
  [[nodiscard]] virtual std::optional<Fault> over() = 0;
  /// The broker hears that we read no more, and what is under way ends: with completions, or `endpoint` is null and
  /// nothing lands any more.
  virtual void cut() = 0;
  /// Nothing lands any more.
  virtual void end() = 0;
  /// As Endpoint::arm.
  [[nodiscard]] virtual int arm() = 0;
  /// In a forked child.
  virtual void leave_to_parent() = 0;

  [[nodiscard]] const Device& device() const { return *device_; }
  [[nodiscard]] fid_domain& domain() const { return *domain_; }
  [[nodiscard]] virtual fid_cq& completions() const = 0;
  /// Null once it has ended.
  [[nodiscard]] virtual fid_ep* endpoint() const = 0;
  /// Whom to read from.
  [[nodiscard]] fi_addr_t peer() const { return peer_; }

 protected:
  void leave_base() {
    (void)domain_.release();
    device_->leave_to_parent();
  }
  /// Readable when one of the descriptors is. Errors: resources_exhausted.
  [[nodiscard]] Result<void> watch(std::initializer_list<int> descriptors);

  std::shared_ptr<Device> device_;
  Owned<fid_domain> domain_;
  fi_addr_t peer_ = 0;
  UniqueFd news_;
};

/// Completions that a line has room for, with so many READs outstanding.
[[nodiscard]] constexpr std::size_t completions_for(std::size_t reads) { return reads + 16; }
/// What the device makes of a kind's limits.
[[nodiscard]] Caps caps_of(const Device& device);

/// READs over a line.
[[nodiscard]] std::unique_ptr<Endpoint> read_by(std::unique_ptr<Line> line, const Clock& clock);

struct Dial {
  const Library& library;
  const Kind& kind;
  Address address;
  std::optional<Address> source;
  Token token;
  const Clock& clock;
  Clock::TimePoint deadline;
};
/// By FI_EP_MSG; by FI_EP_RDM. Errors: those of Provider::connect.
[[nodiscard]] Result<std::unique_ptr<Line>> dial_connected(const Dial& dial);
[[nodiscard]] Result<std::unique_ptr<Line>> dial_connectionless(const Dial& dial);

}  // namespace ciuic::rdma::ofi
