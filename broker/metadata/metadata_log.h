#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "broker/log/files.h"
#include "transport/base/result.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// The metadata log of a broker that is alone: `__cluster_metadata-0/00000000000000000000.log` in Apache's format, one
/// batch a change, synced before it counts. Blocks; one caller at a time.
class MetadataLog {
 public:
  /// Opens or creates it in `log_dir`, cuts a torn tail, and hands every record's value and offset to `replay` (false:
  /// it is damaged). Errors: words that name the file and what is wrong with it.
  [[nodiscard]] static ResultOf<MetadataLog, std::string> open(Files& files, const std::string& log_dir,
                                                               const std::function<bool(Bytes, std::int64_t)>& replay);
  /// Appends the records as one batch: all or none survive a crash. Answers the last one's offset.
  [[nodiscard]] IoResult<std::int64_t> append(const std::vector<Buffer>& records, std::int64_t timestamp_ms);
  [[nodiscard]] std::int64_t next_offset() const { return next_offset_; }

 private:
  MetadataLog(std::shared_ptr<File> file, std::uint64_t bytes, std::int64_t next_offset, kafka::LeaderEpoch epoch)
      : file_(std::move(file)), bytes_(bytes), next_offset_(next_offset), epoch_(epoch) {}
  std::shared_ptr<File> file_;
  std::uint64_t bytes_;
  std::int64_t next_offset_;
  kafka::LeaderEpoch epoch_;
};

}  // namespace ciuic::broker
