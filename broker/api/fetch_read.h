#pragma once
#include <memory>
#include <vector>

#include "broker/api/fetch_sessions.h"
#include "broker/api/handler.h"

namespace ciuic::broker::api {

/// What one partition had to give.
struct FetchAnswer {
  ErrorCode error = ErrorCode::none;
  ReadResult read;
  EpochEnd diverging;  // leader epoch -1: none
};

struct FetchLimits {
  std::int32_t min_bytes = 1;
  std::int32_t max_bytes = 0;
  std::int32_t max_wait_ms = 0;
  kafka::Isolation isolation = kafka::Isolation::read_uncommitted;
};

/// Reads the partitions; waits until `min_bytes` are there, one has an error, or max_wait_ms went by. Answers are in
/// the partitions' order and within max_bytes, whole batches, at least one batch if there is any.
Awaitable<std::vector<FetchAnswer>> read_partitions(RequestContext& context,
                                                    const std::vector<FetchPartition>& partitions, FetchLimits limits);

}  // namespace ciuic::broker::api
