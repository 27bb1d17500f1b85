// Which segments keep their .log open. Not here: opening them (segment.cpp), how many may be (files.cpp).
#include "broker/log/open_logs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "broker/log/segment.h"

namespace ciuic::broker {

OpenLogs::OpenLogs(std::size_t limit) : limit_(std::max<std::size_t>(limit, 1)) {}

void OpenLogs::opened(std::weak_ptr<SegmentFiles> files) {
  std::vector<std::shared_ptr<SegmentFiles>> too_many;
  {
    const std::scoped_lock lock(mutex_);
    ring_.push_back(std::move(files));
    while (ring_.size() > limit_) {
      auto oldest = ring_.front().lock();
      ring_.pop_front();
      if (!oldest || !oldest->is_open()) continue;
      if (oldest->was_used())
        ring_.push_back(std::move(oldest));
      else
        too_many.push_back(std::move(oldest));
    }
  }
  for (const auto& one : too_many) one->close_files();  // a job that is at it holds the file itself
}

}  // namespace ciuic::broker
