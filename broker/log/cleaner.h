#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "broker/log/log_config.h"
#include "broker/log/segment.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// One segment as the cleaner may read it: whole, on the device, no longer changing.
struct CleanSource {
  std::shared_ptr<SegmentFiles> files;
  kafka::Offset base;
  kafka::Offset end;  ///< base of the segment behind it
  std::uint32_t bytes = 0;
  std::vector<AbortedRange> aborted{};
};
struct CleanPlan {
  std::string path;
  LogConfig config;
  std::vector<CleanSource> sources{};  ///< in order, without a hole
  kafka::Offset dirty_from;            ///< below it every key was compacted before
  std::int64_t now_ms = 0;
  std::size_t keys_max = 4'000'000;  ///< bounds the memory of one round; the next goes on
};
/// `sources[first, last)` become one segment with the base of the first. Its files carry `.cleaned`.
struct CleanGroup {
  std::size_t first = 0;
  std::size_t last = 0;
  std::shared_ptr<Segment> segment{};
};
struct CleanResult {
  std::vector<CleanGroup> groups{};
  kafka::Offset cleaned_to;
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
};

/// Writes compacted copies: of each key the last value; no aborted records; tombstones and transaction markers until
/// delete.retention.ms after they were first compacted over. Offsets never change. Blocks; synced when it returns.
[[nodiscard]] IoResult<CleanResult> clean_segments(Files& files, const CleanPlan& plan);

/// Puts the copies in the place of what they were made from, so that a crash in between is finished at start. Blocks.
[[nodiscard]] IoResult<void> swap_cleaned(Files& files, const CleanPlan& plan, const CleanResult& result);

}  // namespace ciuic::broker
