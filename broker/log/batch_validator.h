#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "broker/log/log_config.h"
#include "broker/log/producer_state.h"
#include "transport/base/bytes.h"
#include "transport/base/result.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

struct RecordError {
  std::int32_t batch_index = 0;  ///< of the record in the batch
  std::string text{};
};

/// Who appends: a client's batch is validated whole; a coordinator's may be a control batch and skips producer
/// sequences.
enum class AppendOrigin { client, coordinator };

/// A batch that may be appended. `bytes` is the caller's, or `repacked` where the topic's codec differs from it.
struct ValidBatch {
  Bytes bytes{};
  BatchInfo info{};
  std::int64_t max_timestamp = -1;  ///< of its records
};
struct BatchRefusal {
  BatchRefusal() = default;
  BatchRefusal(kafka::ErrorCode code, std::string text) : error(code, std::move(text)) {}
  kafka::Error error;
  std::vector<RecordError> records{};
};

/// Checks one batch as Apache's LogValidator does: format, size, CRC, count, offsets from 0 without a hole, keys on a
/// compacted topic, timestamps; repacks where `compression.type` asks for another codec.
/// `scratch` and `repacked` are working memory that `ValidBatch::bytes` may lie in.
[[nodiscard]] ResultOf<ValidBatch, BatchRefusal> validate_batch(Bytes records, AppendOrigin origin,
                                                                const LogConfig& config, std::int64_t now_ms,
                                                                Buffer& scratch, Buffer& repacked);

}  // namespace ciuic::broker
