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
  std::vector<RecordError> records{};  ///< the first of them, at most `record_errors_max`
  bool unpacks_beyond = false;         ///< to more than `unpacked_bytes_max`; nothing behind that was looked at
};
/// A batch can hold millions of records, and words about each would be a multiple of it.
inline constexpr std::size_t record_errors_max = 1000;

/// Checks one batch as Apache's LogValidator does: format, size, CRC, count, offsets from 0 without a hole, keys on a
/// compacted topic, timestamps; repacks where `compression.type` asks for another codec.
/// A client's records may unpack to `unpacked_bytes_max`. `scratch` is working memory, `repacked` is too and
/// `ValidBatch::bytes` may lie in it. Any thread.
[[nodiscard]] ResultOf<ValidBatch, BatchRefusal> validate_batch(Bytes records, AppendOrigin origin,
                                                                const LogConfig& config, std::size_t unpacked_bytes_max,
                                                                std::int64_t now_ms, Buffer& scratch, Buffer& repacked);

}  // namespace ciuic::broker
