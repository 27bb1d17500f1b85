#pragma once
#include <cstdint>
#include <optional>

#include "broker/log/producer_state.h"
#include "transport/base/bytes.h"
#include "transport/kafka/record_batch.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// A stored batch's records unpack to at most this: the largest `max.decompressed.batch.bytes` that ever let one in.
inline constexpr std::size_t stored_batch_unpacked_max = 1ULL << 30;

/// The fields of a batch's header that walking a log needs, read in place: no check, no copy, no records. Batches of
/// formats 0 and 1 in old segments are walked as well (one entry a message; its offset is its last).
/// REQUIRES: at least `bytes_min` bytes; for magic 2 `bytes_v2` (see `whole_batch`).
class StoredBatch {
 public:
  static constexpr std::uint32_t overhead =
      kafka::batch_overhead_bytes;                // base offset and length, which length does not count
  static constexpr std::uint32_t bytes_min = 17;  // up to magic
  static constexpr std::uint32_t bytes_legacy = 26;
  static constexpr std::uint32_t bytes_v2 = kafka::batch_header_bytes;

  explicit StoredBatch(Bytes bytes) : at_(bytes.data()) {}

  [[nodiscard]] kafka::Offset base_offset() const {
    return kafka::Offset(get<std::int64_t>(kafka::batch_at::base_offset));
  }
  [[nodiscard]] std::int32_t length() const { return get<std::int32_t>(kafka::batch_at::length); }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(length()) + overhead; }
  [[nodiscard]] kafka::LeaderEpoch leader_epoch() const {
    return kafka::LeaderEpoch(is_v2() ? get<std::int32_t>(kafka::batch_at::leader_epoch) : -1);
  }
  [[nodiscard]] std::int8_t magic() const { return get<std::int8_t>(kafka::batch_at::magic); }
  [[nodiscard]] bool is_v2() const { return magic() >= 2; }
  [[nodiscard]] std::uint32_t crc() const { return get<std::uint32_t>(kafka::batch_at::crc); }
  [[nodiscard]] std::int16_t attributes() const {
    return is_v2() ? get<std::int16_t>(kafka::batch_at::attributes) : std::int16_t{0};
  }
  [[nodiscard]] std::int32_t last_offset_delta() const {
    return is_v2() ? get<std::int32_t>(kafka::batch_at::last_offset_delta) : 0;
  }
  [[nodiscard]] kafka::Offset last_offset() const { return base_offset() + last_offset_delta(); }
  [[nodiscard]] std::int64_t base_timestamp() const {
    return is_v2() ? get<std::int64_t>(kafka::batch_at::first_timestamp) : max_timestamp();
  }
  [[nodiscard]] std::int64_t max_timestamp() const {
    return is_v2() ? get<std::int64_t>(kafka::batch_at::max_timestamp) : magic() == 1 ? get<std::int64_t>(18) : -1;
  }
  [[nodiscard]] kafka::ProducerId producer_id() const {
    return kafka::ProducerId(is_v2() ? get<std::int64_t>(kafka::batch_at::producer_id) : -1);
  }
  [[nodiscard]] kafka::ProducerEpoch producer_epoch() const {
    return kafka::ProducerEpoch(is_v2() ? get<std::int16_t>(kafka::batch_at::producer_epoch) : std::int16_t{-1});
  }
  [[nodiscard]] std::int32_t base_sequence() const {
    return is_v2() ? get<std::int32_t>(kafka::batch_at::base_sequence) : -1;
  }
  [[nodiscard]] std::int32_t record_count() const {
    return is_v2() ? get<std::int32_t>(kafka::batch_at::record_count) : 1;
  }
  [[nodiscard]] int compression() const { return attributes() & 7; }
  [[nodiscard]] bool log_append_time() const { return (attributes() & 8) != 0; }
  [[nodiscard]] bool transactional() const { return (attributes() & 16) != 0; }
  [[nodiscard]] bool control() const { return (attributes() & 32) != 0; }

 private:
  template <class T>
  [[nodiscard]] T get(std::size_t at) const {
    return kafka::load_be<T>(at_ + at);
  }
  const std::byte* at_;
};

/// Size of the batch at the start of `bytes` if its header is there and makes sense (the rest of it may be missing);
/// nothing where a log cannot go on from here. The bound keeps a lying length from costing memory.
[[nodiscard]] std::optional<std::uint32_t> stored_batch_size(Bytes bytes);
/// True if the checksum over the whole batch agrees. REQUIRES: `stored_batch_size` said so and all bytes are there.
[[nodiscard]] bool checksum_agrees(Bytes batch);
/// Everything the log keeps of a batch. For a control batch its record is read too (never compressed).
[[nodiscard]] BatchInfo batch_info(Bytes batch);

}  // namespace ciuic::broker
