// What a record batch must be before it may enter the log. Not here: sequences and transactions (producer_state.cpp).
#include "broker/log/batch_validator.h"

#include <fmt/format.h>

#include <algorithm>

#include "broker/log/stored_batch.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {

namespace {

using kafka::ErrorCode;

std::optional<BatchRefusal> refuse_header(const kafka::RecordBatchView& batch, const StoredBatch& header,
                                          AppendOrigin origin) {
  const auto refuse = [](ErrorCode code, std::string text) { return BatchRefusal(code, std::move(text)); };
  if (!batch.codec_known())
    return refuse(ErrorCode::unsupported_compression_type,
                  fmt::format("Unknown compression type id: {}", batch.attributes() & 7));
  const std::int64_t span = std::int64_t{header.last_offset_delta()} + 1;
  if (span <= 0)
    return refuse(ErrorCode::invalid_record,
                  fmt::format("Batch has an invalid offset range: last offset delta {}", header.last_offset_delta()));
  if (batch.record_count() <= 0)
    return refuse(ErrorCode::invalid_record,
                  fmt::format("Invalid reported count for record batch: {}", batch.record_count()));
  if (span != batch.record_count())
    return refuse(
        ErrorCode::invalid_record,
        fmt::format("Inconsistent batch offset range of {} records and record count {}", span, batch.record_count()));
  if (origin != AppendOrigin::client) return std::nullopt;
  if (batch.control()) return refuse(ErrorCode::invalid_record, "Clients are not allowed to write control records");
  if (batch.producer_id() >= kafka::ProducerId(0) && batch.base_sequence() < 0)
    return refuse(ErrorCode::invalid_record,
                  fmt::format("Invalid sequence number {} in record batch with producerId {}", batch.base_sequence(),
                              batch.producer_id().value));
  if (batch.transactional() && batch.producer_id() < kafka::ProducerId(0))
    return refuse(ErrorCode::invalid_record, "A transactional record batch must have a producer id");
  if (batch.log_append_time())
    return refuse(ErrorCode::invalid_timestamp,
                  "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime.");
  return std::nullopt;
}

std::optional<std::string> refuse_timestamp(std::int64_t timestamp, const LogConfig& config, std::int64_t now_ms) {
  if (config.timestamp_type != TimestampType::create_time || timestamp == -1) return std::nullopt;
  const bool before =
      timestamp < now_ms && now_ms - std::max<std::int64_t>(timestamp, 0) > config.timestamp_before_max_ms;
  const bool after = timestamp > now_ms && timestamp - now_ms > config.timestamp_after_max_ms;
  if (!before && !after && timestamp >= 0) return std::nullopt;
  const auto low = config.timestamp_before_max_ms > now_ms ? 0 : now_ms - config.timestamp_before_max_ms;
  const auto high = config.timestamp_after_max_ms > std::numeric_limits<std::int64_t>::max() - now_ms
                        ? std::numeric_limits<std::int64_t>::max()
                        : now_ms + config.timestamp_after_max_ms;
  return fmt::format("Timestamp {} of message is out of range. The timestamp should be within [{}, {}]", timestamp, low,
                     high);
}

struct RecordsSeen {
  std::int64_t max_timestamp = -1;
  Bytes plain{};
};

ResultOf<RecordsSeen, BatchRefusal> walk_records(const kafka::RecordBatchView& batch, const LogConfig& config,
                                                 std::size_t unpacked_bytes_max, std::int64_t now_ms, Buffer& scratch) {
  auto reader = kafka::RecordReader::open(batch, scratch, unpacked_bytes_max);
  if (!reader) {
    if (reader.error().code != ErrorCode::message_too_large)
      return BatchRefusal(reader.error().code, reader.error().text);
    BatchRefusal refusal(
        ErrorCode::message_too_large,
        fmt::format("The record batch of {} bytes unpacks to more than {} bytes (max.decompressed.batch.bytes); "
                    "produce smaller batches or raise it",
                    batch.size(), unpacked_bytes_max));
    refusal.unpacks_beyond = true;
    return refusal;
  }
  RecordsSeen seen;
  std::vector<RecordError> wrong;
  std::size_t wrong_count = 0;
  const auto note = [&](std::int32_t at, std::string text) {
    if (++wrong_count <= record_errors_max) wrong.push_back({at, std::move(text)});
  };
  auto code = ErrorCode::invalid_record;
  std::int32_t index = 0;
  while (const auto record = reader->next()) {
    if (record->offset - batch.base_offset() != index)
      return BatchRefusal(ErrorCode::invalid_record, fmt::format("Inner record {} has offset {}, expected {}", index,
                                                                 record->offset - batch.base_offset(), index));
    if (config.cleanup_compact && !record->key) {
      note(index, "Compacted topic cannot accept message without key.");
    } else if (auto text = refuse_timestamp(record->timestamp, config, now_ms)) {
      if (wrong.empty()) code = ErrorCode::invalid_timestamp;
      note(index, std::move(*text));
    }
    seen.max_timestamp = std::max(seen.max_timestamp, record->timestamp);
    ++index;
  }
  if (reader->error() != nullptr) return BatchRefusal(ErrorCode::invalid_record, reader->error());
  if (index != batch.record_count())
    return BatchRefusal(ErrorCode::invalid_record,
                        fmt::format("Record batch says {} records and has {}", batch.record_count(), index));
  if (!wrong.empty()) {
    BatchRefusal refusal(
        code, fmt::format("One or more records have been rejected due to {} record errors in total", wrong_count));
    refusal.records = std::move(wrong);
    return refusal;
  }
  seen.plain = reader->plain();
  return seen;
}

std::optional<kafka::Codec> wanted_codec(const LogConfig& config) {
  if (config.compression_type == LogCompression::producer) return std::nullopt;
  return static_cast<kafka::Codec>(config.compression_type);
}

int level_for(kafka::Codec codec, const LogConfig& config) {
  switch (codec) {
    case kafka::Codec::gzip:
      return config.compression_gzip_level;
    case kafka::Codec::lz4:
      return config.compression_lz4_level;
    case kafka::Codec::zstd:
      return config.compression_zstd_level;
    case kafka::Codec::none:
    case kafka::Codec::snappy:
      break;
  }
  return kafka::default_level;
}

/// The same batch with its records packed by another codec. Length and attributes change; the CRC is made anew.
ResultOf<void, BatchRefusal> repack(const kafka::RecordBatchView& batch, Bytes plain, kafka::Codec codec, int level,
                                    Buffer& out) {
  const auto head = batch.bytes().first(kafka::batch_header_bytes);
  out.assign(head.begin(), head.end());
  if (codec == kafka::Codec::none) {
    out.insert(out.end(), plain.begin(), plain.end());
  } else if (auto packed = kafka::compress(codec, plain, out, level); !packed) {
    return BatchRefusal(packed.error().code, packed.error().text);
  }
  kafka::store_be(out.data() + kafka::batch_at::length,
                  static_cast<std::int32_t>(out.size() - kafka::batch_overhead_bytes));
  kafka::store_be(out.data() + kafka::batch_at::attributes,
                  static_cast<std::int16_t>((batch.attributes() & ~7) | static_cast<int>(codec)));
  kafka::set_crc(out);
  return {};
}

}  // namespace

ResultOf<ValidBatch, BatchRefusal> validate_batch(Bytes records, AppendOrigin origin, const LogConfig& config,
                                                  std::size_t unpacked_bytes_max, std::int64_t now_ms, Buffer& scratch,
                                                  Buffer& repacked) {
  if (const auto magic = kafka::magic_of(records); magic && (*magic == 0 || *magic == 1))
    return BatchRefusal(
        ErrorCode::invalid_record,
        fmt::format("Record batch has message format {}, only format 2 is taken: set the client's message "
                    "or API version to Kafka 0.11 or newer",
                    *magic));
  const auto batch = kafka::RecordBatchView::parse(records);
  if (!batch) {
    const auto whole = kafka::batch_size(records);
    return BatchRefusal(whole ? ErrorCode::invalid_record : ErrorCode::corrupt_message, batch.error().text);
  }
  if (batch->size() != records.size())
    return BatchRefusal(ErrorCode::invalid_record,
                        "Produce requests must contain exactly one record batch a partition");
  if (batch->size() > static_cast<std::size_t>(std::max(config.max_message_bytes, 0)))
    return BatchRefusal(
        ErrorCode::message_too_large,
        fmt::format("The record batch size is {} bytes, which exceeds the maximum configured value of {} "
                    "(max.message.bytes)",
                    batch->size(), config.max_message_bytes));
  if (!batch->crc_valid())
    return BatchRefusal(ErrorCode::corrupt_message,
                        fmt::format("Record is corrupt: stored crc {} does not agree with its bytes", batch->crc()));
  const StoredBatch header(batch->bytes());
  if (auto refusal = refuse_header(*batch, header, origin)) return *refusal;

  ValidBatch valid;
  valid.bytes = batch->bytes();
  valid.max_timestamp = batch->max_timestamp();
  if (origin == AppendOrigin::client) {
    const auto seen = walk_records(*batch, config, unpacked_bytes_max, now_ms, scratch);
    if (!seen) return seen.error();
    valid.max_timestamp = seen->max_timestamp;
    if (const auto codec = wanted_codec(config); codec && *codec != batch->codec()) {
      if (auto done = repack(*batch, seen->plain, *codec, level_for(*codec, config), repacked); !done)
        return done.error();
      valid.bytes = repacked;
      if (repacked.size() > static_cast<std::size_t>(config.max_message_bytes))
        return BatchRefusal(ErrorCode::message_too_large,
                            fmt::format("The record batch is {} bytes after it was packed by compression.type, which "
                                        "exceeds {} (max.message.bytes)",
                                        repacked.size(), config.max_message_bytes));
    }
  }
  valid.info = batch_info(valid.bytes);
  return valid;
}

}  // namespace ciuic::broker
