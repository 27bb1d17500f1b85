// A partition's producer snapshot and the text of recent batches beside it, as found at start. The first byte says
// whether the snapshot gets its checksum mended; the snapshot (two bytes of length before it), the text, then batches.
#include "broker/log/producer_state.h"
#include "tests/fuzz/support/input.h"
#include "transport/base/crc32c.h"
#include "transport/kafka/wire.h"

using namespace ciuic;
using namespace ciuic::broker;
using fuzz::must;

namespace {

/// A client's or coordinator's batch behind what was loaded, as the validator lets it through.
BatchInfo batch_of(fuzz::Input& input, kafka::Offset at) {
  BatchInfo info;
  info.base_offset = at;
  info.record_count = input.number<std::uint8_t>() + 1;
  info.last_offset = at + info.record_count - 1;
  info.producer_id = kafka::ProducerId(input.number<std::uint8_t>());
  info.producer_epoch = kafka::ProducerEpoch(input.number<std::int16_t>());
  info.base_sequence = input.number<std::int32_t>() & 0x7FFFFFFF;
  info.last_sequence = static_cast<std::int32_t>(
      (static_cast<std::uint32_t>(info.base_sequence) + static_cast<std::uint32_t>(info.record_count) - 1) &
      0x7FFFFFFF);
  info.max_timestamp = info.first_timestamp = input.number<std::int64_t>();
  const auto kind = input.number<std::uint8_t>();
  info.transactional = (kind & 1) != 0;
  if ((kind & 6) == 6) {
    info.control = info.transactional = true;
    info.marker = BatchInfo::Marker{(kind & 8) != 0, input.number<std::int32_t>()};
  }
  return info;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const bool mend = (input.number<std::uint8_t>() & 1) == 0;
  auto snapshot = to_buffer(input.piece());
  const auto text = input.piece();
  if (mend && snapshot.size() >= 6) kafka::store_be(snapshot.data() + 2, crc32c(Bytes(snapshot).subspan(6)));

  ProducerState state;
  if (!state.load_snapshot(snapshot)) must(state.empty() && !state.earliest_open_transaction());
  state.load_recent_batches(as_text(text));
  for (const auto& [id, producer] : state.producers()) {
    must(producer.batches.size() <= ProducerState::batches_remembered);
    for (const auto& batch : producer.batches)
      must(batch.first_sequence() >= -1 && batch.first_offset() <= batch.last_offset);
  }
  ProducerState again;
  must(again.load_snapshot(state.to_snapshot()));
  again.load_recent_batches(state.recent_batches_text());
  must(again.producers().size() == state.producers().size() &&
       again.earliest_open_transaction() == state.earliest_open_transaction());

  kafka::Offset at(1 << 20);
  for (int i = 0; i < 8 && !input.empty(); ++i) {
    const auto info = batch_of(input, at);
    const bool passes = info.control ? state.check_coordinator(info).has_value() : state.check_client(info).has_value();
    if (passes) (void)state.appended(info);
    at = info.last_offset + 1;
    (void)state.first_unstable(at);
    state.expire(1'700'000'000'000, 86'400'000);
  }
  state.high_watermark_moved(at);
  state.log_start_moved(at);
  return 0;
}
