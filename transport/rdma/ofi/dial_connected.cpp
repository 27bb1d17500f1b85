// A client's connected endpoint (FI_EP_MSG): the token in the connection request, and the end by an event.
#include <endian.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/log.h"
#include "transport/rdma/ofi/line.h"
#include "transport/rdma/ofi/protocol.h"

namespace ciuic::rdma::ofi {

namespace {

class ConnectedLine final : public Line {
 public:
  using Line::Line;
  Result<void> dial(const Dial& dial);

  std::optional<Fault> over() override;
  void cut() override {
    if (endpoint_) (void)fi_shutdown(endpoint_.get(), 0);
  }
  void end() override { endpoint_.reset(); }
  int arm() override;
  void leave_to_parent() override {
    (void)endpoint_.release();
    (void)completions_.release();
    (void)events_.release();
    leave_base();
  }
  fid_cq& completions() const override { return *completions_; }
  fid_ep* endpoint() const override { return endpoint_.get(); }

 private:
  [[nodiscard]] Result<Event> await_connection(const Dial& dial);

  // The endpoint ends before what it uses.
  Owned<fid_eq> events_;
  Owned<fid_cq> completions_;
  Owned<fid_ep> endpoint_;
};

Result<Event> ConnectedLine::await_connection(const Dial& dial) {
  const int descriptor = descriptor_of(events_->fid);
  while (true) {
    if (auto event = next_event(dial.library, *events_)) {
      if (event->type == FI_CONNECTED) return std::move(*event);
      log::debug("rdma", "ofi: no connection, event {}: {}", event->type, dial.library.fi_strerror(event->error));
      const auto answer = parse<Welcome>(event->data);
      if (!answer || be64toh(answer->magic_number) != magic)
        return event->error == ENODEV ? Fault::device_lost : Fault::address_unreachable;
      return fault_of(static_cast<Status>(be32toh(answer->status)));
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(dial.deadline - dial.clock.now()).count();
    if (left <= 0) return Fault::address_unreachable;
    fid_t queue = &events_->fid;
    if (fi_trywait(device_->fabric.get(), &queue, 1) != 0) continue;
    pollfd ready{descriptor, POLLIN, 0};
    (void)::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, 100)));
  }
}

Result<void> ConnectedLine::dial(const Dial& dial) {
  auto events = open_event_queue(*device_);
  if (!events) return events.error();
  events_ = std::move(*events);
  auto completions = open_completions(*domain_, completions_for(caps_of(*device_).reads_outstanding_max));
  if (!completions) return completions.error();
  completions_ = std::move(*completions);
  if (const auto done = watch({descriptor_of(completions_->fid), descriptor_of(events_->fid)}); !done)
    return done.error();
  auto endpoint = open_endpoint(*domain_, *device_->info, *events_, *completions_);
  if (!endpoint) return endpoint.error();
  endpoint_ = std::move(*endpoint);

  Hello hello{htobe64(magic), htobe32(version), 0, {}};
  std::memcpy(hello.token, dial.token.bytes.data(), sizeof hello.token);
  if (const int error = fi_connect(endpoint_.get(), device_->info->dest_addr, &hello, sizeof hello); error != 0)
    return fault_of(error);
  const auto answer = await_connection(dial);
  if (!answer) return answer.error();
  const auto welcome = parse<Welcome>(answer->data);
  if (!welcome || be64toh(welcome->magic_number) != magic || be32toh(welcome->version_number) != version)
    return Fault::incompatible;
  return {};
}

std::optional<Fault> ConnectedLine::over() {
  while (true) {
    const auto event = next_event(device_->library, *events_);
    if (!event) return std::nullopt;
    // An interface that changes its address, as bonded ones do, keeps its connections.
    if (event->error == EADDRNOTAVAIL) continue;
    return event->error == ENODEV ? Fault::device_lost : Fault::peer_gone;
  }
}

int ConnectedLine::arm() {
  std::array<fid_t, 2> queues{&completions_->fid, &events_->fid};
  return fi_trywait(device_->fabric.get(), queues.data(), static_cast<int>(queues.size())) == 0 ? news_.get() : -1;
}

}  // namespace

Result<std::unique_ptr<Line>> dial_connected(const Dial& dial) {
  auto device = open_device(dial.library, dial.kind, Side::connecting, dial.address, dial.source);
  if (!device) return device.error();
  auto domain = open_domain(**device);
  if (!domain) return domain.error();
  auto line = std::make_unique<ConnectedLine>(std::move(*device), std::move(*domain));
  if (const auto done = line->dial(dial); !done) return done.error();
  return std::unique_ptr<Line>(std::move(line));
}

}  // namespace ciuic::rdma::ofi
