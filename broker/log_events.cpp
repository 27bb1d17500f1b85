#include "broker/log_events.h"

#include <algorithm>

namespace ciuic::broker {

void LogEvents::watch(const Partition& partition, Ticket wake) {
  waiting_[Shard::current()->index()][&partition].push_back(std::move(wake));
}

void LogEvents::forget(const Partition& partition, const Ticket& wake) {
  auto& here = waiting_[Shard::current()->index()];
  const auto found = here.find(&partition);
  if (found == here.end()) return;
  auto& tickets = found->second;
  tickets.erase(std::remove(tickets.begin(), tickets.end(), wake), tickets.end());
  if (tickets.empty()) here.erase(found);
}

void LogEvents::wake_all(const Partition& partition) {
  const auto* const shard = Shard::current();
  if (shard == nullptr) return;  // at start, before any client
  auto& here = waiting_[shard->index()];
  const auto found = here.find(&partition);
  if (found == here.end()) return;
  const auto tickets = std::move(found->second);
  here.erase(found);
  for (const auto& wake : tickets) (*wake)();
}

void LogEvents::chunk_opened(Partition& partition, const std::shared_ptr<Chunk>& chunk) {
  if (next_ != nullptr) next_->chunk_opened(partition, chunk);
}
void LogEvents::chunk_sealed(Partition& partition, const std::shared_ptr<Chunk>& chunk) {
  if (next_ != nullptr) next_->chunk_sealed(partition, chunk);
}
void LogEvents::chunk_wanted_back(Partition& partition, const std::shared_ptr<Chunk>& chunk, Task done) {
  if (next_ != nullptr) {
    next_->chunk_wanted_back(partition, chunk, std::move(done));
  } else {
    done();
  }
}
void LogEvents::committed(Partition& partition, const Committed& position) {
  if (next_ != nullptr) next_->committed(partition, position);
  wake_all(partition);
}
void LogEvents::layout_changed(Partition& partition, LayoutChange change) {
  if (next_ != nullptr) next_->layout_changed(partition, change);
  if (change == LayoutChange::partition_closed || change == LayoutChange::truncated) wake_all(partition);
}

}  // namespace ciuic::broker
