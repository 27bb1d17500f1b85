#pragma once
#include <deque>
#include <functional>
#include <mutex>

#include "broker/metadata/controller.h"

namespace ciuic::broker {

/// Hands out producer ids from blocks of the controller's. Any thread; the lock is held for a few instructions, on a
/// path taken once a producer.
class ProducerIds {
 public:
  using Callback = std::function<void(ResultOf<kafka::ProducerId, kafka::Error>)>;
  explicit ProducerIds(Controller& controller) : controller_(controller) {}
  /// Calls back on any thread, maybe inside the call.
  void next(Callback done);

 private:
  Controller& controller_;
  std::mutex mutex_;
  std::int64_t next_ = 0;
  std::int64_t end_ = 0;
  bool asking_ = false;
  std::deque<Callback> waiting_;
};

}  // namespace ciuic::broker
