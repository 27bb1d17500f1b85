// Completions of one endpoint, handed to whoever posted the READ. Not here: what the bytes are.
#include "transport/onesided/reader.h"

namespace ciuic::onesided {

using rdma::Fault;
using rdma::Result;

ReadQueue::ReadQueue(std::unique_ptr<rdma::Endpoint> endpoint, const Clock& clock)
    : endpoint_(std::move(endpoint)), clock_(clock) {}

ReadQueue::~ReadQueue() {
  close();
  landings_.end(std::move(endpoint_));
}

bool ReadQueue::poll() {
  if (broken_) return false;
  bool any = false;
  std::array<rdma::Completion, 32> completions;
  while (true) {
    const auto count = endpoint_->poll(completions);
    if (!count) {
      break_with(count.error());
      return true;
    }
    for (std::size_t i = 0; i < *count; ++i) {
      if (completions[i].id >= tickets_max) continue;
      auto& entry = entries_[completions[i].id];
      if (entry.state == State::abandoned) {
        entry = Entry{};
        --in_flight_;
      } else if (entry.state == State::under_way) {
        entry.state = State::done;
        entry.fault = completions[i].fault;
        --in_flight_;
      }
      any = true;
    }
    if (*count < completions.size()) return any;
  }
}

int ReadQueue::arm() {
  if (broken_) return -1;
  const int descriptor = endpoint_->arm();
  return descriptor < 0 || poll() ? -1 : descriptor;
}

Result<ReadQueue::Ticket> ReadQueue::post(const rdma::RemoteSpan& from, MutableBytes to, Clock::TimePoint deadline) {
  if (broken_) return *broken_;
  for (std::uint32_t tried = 0; tried < tickets_max; ++tried) {
    const auto ticket = next_;
    next_ = (next_ + 1) % tickets_max;
    auto& entry = entries_[ticket];
    if (entry.state != State::free) continue;
    const rdma::ReadRequest request{from, to, ticket};
    const auto posted = endpoint_->post_reads(std::span(&request, 1));
    if (!posted) {
      if (posted.error() != Fault::would_block) break_with(posted.error());
      return posted.error();
    }
    entry.state = State::under_way;
    entry.fault.reset();
    entry.deadline = deadline;
    ++in_flight_;
    return ticket;
  }
  return Fault::would_block;
}

Result<void> ReadQueue::take(Ticket ticket) {
  auto& entry = entries_[ticket];
  if (entry.state == State::under_way) {
    if (clock_.now() < entry.deadline) return Fault::would_block;
    break_with(Fault::read_timed_out);
  }
  const auto fault = entry.fault;
  entry.state = State::free;
  entry.fault.reset();
  if (!fault) return {};
  // One failed READ is the connection's end on real queue pairs; it is everywhere, so that nothing depends on luck.
  if (rdma::outcome_of(*fault) != rdma::Outcome::retry_here) break_with(*fault);
  return *fault;
}

void ReadQueue::abandon(Ticket ticket, std::unique_ptr<rdma::Landing> landing) {
  auto& entry = entries_[ticket];
  if (entry.state == State::under_way) {
    entry.state = State::abandoned;
    entry.kept = std::move(landing);
  } else {
    entry = Entry{};
  }
}

void ReadQueue::close() {
  if (!broken_) break_with(Fault::qp_in_error);
}

void ReadQueue::break_with(Fault fault) {
  if (broken_) return;
  broken_ = fault;
  endpoint_->close();
  for (auto& entry : entries_) {
    if (entry.state == State::abandoned) entry = Entry{};
    if (entry.state != State::under_way) continue;
    entry.state = State::done;
    entry.fault = fault;
  }
  in_flight_ = 0;
}

}  // namespace ciuic::onesided
