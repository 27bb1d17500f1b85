#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "broker/log/files.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// An empty file of this name in a partition's directory: the operator goes on without what is missing.
inline constexpr std::string_view accept_loss_file = "accept-loss";
/// Our note of it while files are left: holes below the offset in it are known.
inline constexpr std::string_view accepted_loss_file = "accepted-loss-checkpoint";

/// What a log directory's checkpoints say of a partition, 0 where they say nothing.
struct CheckpointedOffsets {
  kafka::Offset recovery_point;
  kafka::Offset log_start;
  kafka::Offset high_watermark;
};

struct LossQuestion {
  std::string path;  ///< of the partition's directory
  CheckpointedOffsets checkpointed;
  bool clean = false;      ///< the last stop was
  bool compacted = false;  ///< by the topic's configuration: holes are rightful
};
struct Loss {
  std::string what;         ///< words: which files are missing, and what proves it
  kafka::Offset known_end;  ///< records up to here were there
  bool nothing_left = false;
};
struct LossAnswer {
  std::optional<Loss> loss{};
  std::optional<kafka::Offset> stray_segment{};  ///< base of an empty last one that no broker made
};

/// Whether files of a partition are missing that held records, as checkpoints, index files, snapshots and the
/// leader-epoch file prove; never on suspicion: what a crash, retention or compaction leaves behind is no loss. Reads
/// only, and of a partition that is whole next to nothing: the index entry and the batches at the end of each segment.
/// Belongs to the start, before anything of the partition is changed. Blocks.
[[nodiscard]] IoResult<LossAnswer> find_loss(Files& files, const LossQuestion& question);

}  // namespace ciuic::broker
