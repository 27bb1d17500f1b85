#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "broker/log/files.h"
#include "broker/log/leader_epochs.h"
#include "broker/log/log_config.h"
#include "broker/log/producer_state.h"
#include "broker/log/segment.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// Our file beside Apache's snapshot: the batches of each producer that the snapshot has no room for.
inline constexpr std::string_view recent_batches_file = "recent-batches-checkpoint";

struct OpenPlan {
  std::string path;
  LogConfig config;
  bool clean = false;            ///< the last stop was clean: files are trusted
  kafka::Offset recovery_point;  ///< everything below is on the device and whole
  kafka::Offset log_start;       ///< from the checkpoint; 0 if there is none
  std::optional<kafka::Offset> truncate_to{};
  std::int64_t now_ms = 0;
};

/// A partition's log as its files say. The last segment is the active one.
struct OpenedLog {
  std::map<kafka::Offset, std::shared_ptr<Segment>> segments;
  LeaderEpochs epochs;
  ProducerState producers;
  kafka::Offset log_start;
  kafka::Offset log_end;
  kafka::Offset flushed_end;
  kafka::Offset last_snapshot{-1};
  std::uint64_t cut_bytes = 0;  ///< torn bytes that were thrown away
};

/// Opens the log in a directory: finishes what a crash interrupted, scans what was not known to be whole (checksum of
/// every batch; a torn tail is cut and never served), rebuilds indexes, producers and epochs. Clean: reads next to
/// nothing. Blocks.
[[nodiscard]] IoResult<OpenedLog> open_log(Files& files, const OpenPlan& plan);

}  // namespace ciuic::broker
