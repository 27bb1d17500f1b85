#include "broker/api/producer_ids.h"

namespace ciuic::broker {

void ProducerIds::next(Callback done) {
  std::int64_t id = -1;
  bool ask = false;
  {
    const std::lock_guard lock(mutex_);
    if (next_ < end_) {
      id = next_++;
    } else {
      waiting_.push_back(std::move(done));
      ask = !std::exchange(asking_, true);
    }
  }
  if (id >= 0) return done(kafka::ProducerId(id));
  if (!ask) return;
  controller_.allocate_producer_ids([this](const ResultOf<ProducerIdBlock, kafka::Error>& block) {
    std::deque<Callback> waiting;
    {
      const std::lock_guard lock(mutex_);
      asking_ = false;
      if (block) {
        next_ = block->first;
        end_ = block->first + block->count;
      }
      waiting = std::move(waiting_);
      waiting_.clear();
    }
    for (auto& callback : waiting) {
      if (block) {
        next(std::move(callback));
      } else {
        callback(block.error());
      }
    }
  });
}

}  // namespace ciuic::broker
