#pragma once
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

namespace ciuic::broker {

class SegmentFiles;

/// Bounds how many segments keep their `.log` open: ten thousand partitions that are all written must leave descriptors
/// for memory and connections. What is closed here opens again at its next use. Any thread.
class OpenLogs {
 public:
  /// `limit`: at least 1.
  explicit OpenLogs(std::size_t limit);
  /// `files` has just opened its log. Closes logs that were not used since they were last looked at (the clock
  /// algorithm), until no more than the limit are open. REQUIRES: the caller holds no lock of a SegmentFiles.
  void opened(std::weak_ptr<SegmentFiles> files);

 private:
  std::size_t limit_;
  std::mutex mutex_;
  // In the order of opening or of the last look; may still name some that were closed elsewhere.
  std::deque<std::weak_ptr<SegmentFiles>> ring_;
};

}  // namespace ciuic::broker
