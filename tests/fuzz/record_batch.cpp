// Concatenated record batches as they come from a producer, a segment file or a chunk.
#include "transport/kafka/record_batch.h"

#include <cstdlib>

using namespace ciuic;

namespace {

constexpr std::size_t unpacked_bytes_max = 1 << 20;

/// Exactly what the records take is enough, and a byte less is not.
void hold_limit(const kafka::RecordBatchView& batch, std::size_t unpacked) {
  Buffer scratch;
  if (!kafka::RecordReader::open(batch, scratch, unpacked)) std::abort();
  if (unpacked == 0) return;
  const auto refused = kafka::RecordReader::open(batch, scratch, unpacked - 1);
  if (refused || refused.error().code != kafka::ErrorCode::message_too_large) std::abort();
  if (scratch.size() > unpacked - 1) std::abort();
}

void walk(const kafka::RecordBatchView& batch) {
  (void)batch.crc_valid();
  (void)batch.next_offset();
  Buffer scratch;
  auto reader = kafka::RecordReader::open(batch, scratch, unpacked_bytes_max);
  if (scratch.size() > unpacked_bytes_max) std::abort();
  if (!reader) return;
  if (batch.codec() != kafka::Codec::none) hold_limit(batch, scratch.size());
  std::size_t seen = 0;
  while (const auto record = reader->next()) {
    auto headers = record->headers;
    std::int32_t count = 0;
    for (; const auto header = kafka::next_header(headers); ++count) seen += header->key.size();
    if (count != record->header_count) std::abort();
    seen += (record->key ? record->key->size() : 0) + (record->value ? record->value->size() : 0);
    (void)kafka::control_type(*record);
  }
  if (seen > reader->plain().size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  while (!bytes.empty()) {
    (void)kafka::magic_of(bytes);
    const auto step = kafka::batch_size(bytes);
    if (const auto batch = kafka::RecordBatchView::parse(bytes)) {
      if (step != batch->size()) std::abort();
      walk(*batch);
    }
    if (!step) break;
    bytes = bytes.subspan(*step);
  }
  return 0;
}
