// Reading stored batches in place, for walking logs. Not here: checking what comes from outside (batch_validator.cpp).
#include "broker/log/stored_batch.h"

#include <zlib.h>

#include <limits>

#include "transport/base/crc32c.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {

namespace {

constexpr std::int32_t sequence_max = std::numeric_limits<std::int32_t>::max();

/// What a control batch ends; nothing for other control records (leader change, snapshots) and unreadable ones.
std::optional<BatchInfo::Marker> marker_of(Bytes bytes) {
  const auto batch = kafka::RecordBatchView::parse(bytes);
  if (!batch) return std::nullopt;
  Buffer scratch;
  auto reader = kafka::RecordReader::open(*batch, scratch, bytes.size());
  if (!reader) return std::nullopt;
  const auto record = reader->next();
  if (!record) return std::nullopt;
  const auto type = kafka::control_type(*record);
  if (type != kafka::ControlType::abort && type != kafka::ControlType::commit) return std::nullopt;
  BatchInfo::Marker marker{type == kafka::ControlType::commit, -1};
  if (record->value && record->value->size() >= 6)  // version, coordinator epoch
    marker.coordinator_epoch = kafka::load_be<std::int32_t>(record->value->data() + 2);
  return marker;
}

}  // namespace

std::optional<std::uint32_t> stored_batch_size(Bytes bytes) {
  if (bytes.size() < StoredBatch::bytes_min) return std::nullopt;
  const StoredBatch header(bytes);
  const auto magic = header.magic();
  const auto least = magic == 2 ? StoredBatch::bytes_v2 : StoredBatch::bytes_legacy;
  if (magic < 0 || magic > 2 || header.length() < static_cast<std::int32_t>(least - StoredBatch::overhead))
    return std::nullopt;
  if (header.length() > (1 << 30) - static_cast<std::int32_t>(StoredBatch::overhead)) return std::nullopt;
  if (header.base_offset() < kafka::Offset(0)) return std::nullopt;
  // Nor may the offset behind the last one wrap: nothing could follow such a batch.
  const bool whole_header = magic < 2 || bytes.size() >= StoredBatch::bytes_v2;
  const std::int64_t delta = whole_header ? header.last_offset_delta() : 0;
  if (delta < 0 || header.base_offset().value >= std::numeric_limits<std::int64_t>::max() - delta) return std::nullopt;
  return header.size();
}

bool checksum_agrees(Bytes batch) {
  const StoredBatch header(batch);
  if (header.is_v2()) return crc32c(batch.subspan(21)) == header.crc();
  std::uint32_t stored = 0;
  for (std::size_t i = 12; i < 16; ++i) stored = stored << 8 | static_cast<std::uint32_t>(batch[i]);
  const auto rest = batch.subspan(16);
  return ::crc32(0, reinterpret_cast<const Bytef*>(rest.data()), static_cast<uInt>(rest.size())) == stored;
}

BatchInfo batch_info(Bytes batch) {
  const StoredBatch header(batch);
  BatchInfo info;
  info.base_offset = header.base_offset();
  info.last_offset = header.last_offset();
  info.bytes = header.size();
  info.leader_epoch = header.leader_epoch();
  info.max_timestamp = header.max_timestamp();
  info.first_timestamp = header.log_append_time() ? header.max_timestamp() : header.base_timestamp();
  info.producer_id = header.producer_id();
  info.producer_epoch = header.producer_epoch();
  info.base_sequence = header.base_sequence();
  const auto left = sequence_max - std::max(info.base_sequence, 0);
  const auto delta = header.last_offset_delta();
  info.last_sequence = info.base_sequence < 0 ? -1 : delta <= left ? info.base_sequence + delta : delta - left - 1;
  info.record_count = header.record_count();
  info.transactional = header.transactional();
  info.control = header.control();
  if (info.control && batch.size() >= header.size()) info.marker = marker_of(batch.first(header.size()));
  return info;
}

}  // namespace ciuic::broker
