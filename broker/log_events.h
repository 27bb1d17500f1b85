#pragma once
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "broker/log/log_observer.h"
#include "broker/shard.h"

namespace ciuic::broker {

/// What the logs report, passed on: to exposure, and to fetches that wait at a partition's end.
class LogEvents final : public LogObserver {
 public:
  explicit LogEvents(std::size_t shards) : waiting_(shards) {}
  /// Before any log is opened. May be null.
  void set_next(LogObserver* next) { next_ = next; }

  /// Calls `wake` once, at the next change of the partition's watermarks, or when it closes. On its executor, as
  /// `forget`.
  using Ticket = std::shared_ptr<std::function<void()>>;
  void watch(const Partition& partition, Ticket wake);
  void forget(const Partition& partition, const Ticket& wake);

  void chunk_opened(Partition& partition, const std::shared_ptr<Chunk>& chunk) override;
  void chunk_sealed(Partition& partition, const std::shared_ptr<Chunk>& chunk) override;
  void chunk_wanted_back(Partition& partition, const std::shared_ptr<Chunk>& chunk, Task done) override;
  void committed(Partition& partition, const Committed& position) override;
  void layout_changed(Partition& partition, LayoutChange change) override;

 private:
  void wake_all(const Partition& partition);
  LogObserver* next_ = nullptr;
  // By shard, so that no lock is needed: a partition's entry is touched on its own shard alone.
  std::vector<std::unordered_map<const Partition*, std::vector<Ticket>>> waiting_;
};

}  // namespace ciuic::broker
