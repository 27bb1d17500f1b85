#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/result.h"
#include "transport/kafka/compression.h"
#include "transport/kafka/types.h"
#include "transport/kafka/wire.h"

/// Record batches, magic 2 (KIP-98; Kafka's "Record Batch" documentation). A batch on the wire, in a segment file and
/// in a chunk is the same bytes. The fields before the CRC (base offset, length, leader epoch, magic) are not covered
/// by it, so a broker may set offset and epoch in place.
namespace ciuic::kafka {

/// Positions of the header's fields from the batch's first byte.
namespace batch_at {
inline constexpr std::size_t base_offset = 0, length = 8, leader_epoch = 12, magic = 16, crc = 17, attributes = 21,
                             last_offset_delta = 23, first_timestamp = 27, max_timestamp = 35, producer_id = 43,
                             producer_epoch = 51, base_sequence = 53, record_count = 57, records = 61;
}
inline constexpr std::size_t batch_header_bytes = 61;
/// Offset and length: what must be there to know how long a batch is (any magic).
inline constexpr std::size_t batch_overhead_bytes = 12;

/// One batch that somebody else owns. Every getter reads the bytes: a changed batch shows at once.
class RecordBatchView {
 public:
  /// Takes the batch at the front of `bytes`, if a whole one with magic 2 is there. No CRC is computed.
  /// Errors: CORRUPT_MESSAGE (cut short, or its length is impossible), UNSUPPORTED_FOR_MESSAGE_FORMAT (magic 0 or 1).
  [[nodiscard]] static ResultOf<RecordBatchView, Error> parse(Bytes bytes);
  /// A batch of which the header alone is at hand: fields can be asked for, `bytes`, `payload` and `crc_valid` not.
  /// REQUIRES: `head` is `batch_header_bytes` long. Nothing: it is none of magic 2, or says an impossible length.
  [[nodiscard]] static std::optional<RecordBatchView> of_head(Bytes head);

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] Offset base_offset() const { return Offset(at<std::int64_t>(batch_at::base_offset)); }
  /// Of a batch from outside the sum may wrap: check `last_offset_delta` and `base_offset` before use.
  [[nodiscard]] Offset last_offset() const { return Offset(wrapping_add(base_offset().value, last_offset_delta())); }
  [[nodiscard]] Offset next_offset() const { return Offset(wrapping_add(last_offset().value, 1)); }
  [[nodiscard]] LeaderEpoch leader_epoch() const { return LeaderEpoch(at<std::int32_t>(batch_at::leader_epoch)); }
  [[nodiscard]] std::uint32_t crc() const { return at<std::uint32_t>(batch_at::crc); }
  [[nodiscard]] std::int16_t attributes() const { return at<std::int16_t>(batch_at::attributes); }
  [[nodiscard]] std::int32_t last_offset_delta() const { return at<std::int32_t>(batch_at::last_offset_delta); }
  [[nodiscard]] std::int64_t first_timestamp() const { return at<std::int64_t>(batch_at::first_timestamp); }
  [[nodiscard]] std::int64_t max_timestamp() const { return at<std::int64_t>(batch_at::max_timestamp); }
  [[nodiscard]] ProducerId producer_id() const { return ProducerId(at<std::int64_t>(batch_at::producer_id)); }
  [[nodiscard]] ProducerEpoch producer_epoch() const {
    return ProducerEpoch(at<std::int16_t>(batch_at::producer_epoch));
  }
  [[nodiscard]] std::int32_t base_sequence() const { return at<std::int32_t>(batch_at::base_sequence); }
  [[nodiscard]] std::int32_t record_count() const { return at<std::int32_t>(batch_at::record_count); }
  /// May be a number that is no codec: check `codec_known` first where the batch comes from outside.
  [[nodiscard]] Codec codec() const { return static_cast<Codec>(attributes() & 7); }
  [[nodiscard]] bool codec_known() const { return (attributes() & 7) <= 4; }
  [[nodiscard]] bool log_append_time() const { return (attributes() & 8) != 0; }
  [[nodiscard]] bool transactional() const { return (attributes() & 16) != 0; }
  [[nodiscard]] bool control() const { return (attributes() & 32) != 0; }
  [[nodiscard]] bool delete_horizon_set() const { return (attributes() & 64) != 0; }
  /// The records, compressed or not.
  [[nodiscard]] Bytes payload() const { return bytes_.subspan(batch_header_bytes); }
  [[nodiscard]] bool crc_valid() const;

 private:
  explicit RecordBatchView(Bytes bytes) : bytes_(bytes) {}
  template <class T>
  [[nodiscard]] T at(std::size_t position) const {
    return load_be<T>(bytes_.data() + position);
  }
  Bytes bytes_;
};

/// Magic of the batch or message set entry at the front; nothing if fewer than 17 bytes are there.
[[nodiscard]] std::optional<std::int8_t> magic_of(Bytes bytes);
/// Bytes of the batch at the front by its length field (any magic); nothing if it is not wholly there or under 14
/// bytes.
[[nodiscard]] std::optional<std::size_t> batch_size(Bytes bytes);

struct HeaderView {
  std::string_view key;
  std::optional<Bytes> value;  // nothing: null
};

/// One record; its spans lie in the bytes it was read from.
struct RecordView {
  Offset offset{};
  std::int64_t timestamp = -1;
  std::optional<Bytes> key{};    // nothing: null
  std::optional<Bytes> value{};  // nothing: null (a tombstone in a compacted topic)
  std::int32_t header_count = 0;
  Bytes headers{};  // still encoded; see `next_header`
};
/// Takes the next header off the front of `headers`; nothing when it is empty (they were checked when the record was
/// read).
[[nodiscard]] std::optional<HeaderView> next_header(Bytes& headers);

/// Walks the records of one batch. For a compressed batch it unpacks into `scratch` first, so records are valid while
/// `scratch` is neither changed nor destroyed; for an uncompressed one while the batch's bytes are.
///   for (auto r = RecordReader::open(batch, scratch, limit); …) while (auto record = reader.next()) …
class RecordReader {
 public:
  /// Errors: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE (unpacks to more than `limit`), UNSUPPORTED_COMPRESSION_TYPE.
  [[nodiscard]] static ResultOf<RecordReader, Error> open(const RecordBatchView& batch, Buffer& scratch,
                                                          std::size_t limit);

  /// The next record, or nothing at the end or at the first malformed one: then `error()` says so.
  [[nodiscard]] std::optional<RecordView> next();
  [[nodiscard]] const char* error() const { return error_; }
  /// The records' bytes unpacked.
  [[nodiscard]] Bytes plain() const { return plain_; }

 private:
  RecordReader(const RecordBatchView& batch, Bytes plain);
  std::optional<RecordView> fail(const char* what);

  Bytes plain_;
  WireReader in_;
  Offset base_offset_;
  std::int64_t first_timestamp_;
  std::int64_t append_time_;  // -1: each record has its own
  std::int32_t left_;
  const char* error_ = nullptr;
};

/// A header to write.
struct HeaderToWrite {
  std::string_view key;
  std::optional<Bytes> value;
};
struct RecordToWrite {
  std::int64_t timestamp = -1;
  std::optional<Bytes> key{};
  std::optional<Bytes> value{};
  std::span<const HeaderToWrite> headers{};
};

/// What a batch's header says beside its records.
struct BatchHeader {
  Offset base_offset{0};
  LeaderEpoch leader_epoch{-1};
  Codec codec = Codec::none;
  int level = default_level;
  bool log_append_time = false;
  bool transactional = false;
  bool control = false;
  ProducerId producer_id{-1};
  ProducerEpoch producer_epoch{-1};
  std::int32_t base_sequence = -1;
};

/// Builds one batch. Reusable: `clear` keeps the memory.
class RecordBatchBuilder {
 public:
  /// Bytes that `record` would add before compression.
  [[nodiscard]] std::size_t size_of(const RecordToWrite& record) const;
  /// Appends a record at the next offset, or at `offset_delta` from the base (rising; compaction leaves gaps).
  void add(const RecordToWrite& record) { add(record, next_delta_); }
  void add(const RecordToWrite& record, std::int32_t offset_delta);
  [[nodiscard]] std::int32_t record_count() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  /// Bytes so far, header included, before compression.
  [[nodiscard]] std::size_t size() const { return batch_header_bytes + plain_.size(); }
  /// Appends the finished batch to `out`. The last offset is that of the last record, or `last_offset_delta` if more.
  /// Errors: those of `compress`.
  [[nodiscard]] ResultOf<void, Error> finish(const BatchHeader& header, Buffer& out,
                                             std::int32_t last_offset_delta = -1) const;
  void clear();

 private:
  Buffer plain_;
  std::int32_t count_ = 0;
  std::int32_t next_delta_ = 0;
  std::int64_t first_timestamp_ = -1;
  std::int64_t max_timestamp_ = -1;
};

/// Changes of a batch in place. REQUIRES: `batch` is one whole batch with magic 2.
void set_base_offset(MutableBytes batch, Offset offset);
void set_leader_epoch(MutableBytes batch, LeaderEpoch epoch);
/// LogAppendTime: sets the attribute and the maximum timestamp, and recomputes the CRC.
void set_log_append_time(MutableBytes batch, std::int64_t timestamp_ms);
/// CreateTime: clears the attribute if it is set, sets the maximum timestamp; recomputes the CRC if anything changed.
void set_create_time(MutableBytes batch, std::int64_t max_timestamp_ms);
void set_crc(MutableBytes batch);

/// Control records (KIP-98): the key is version and type.
enum class ControlType : std::int16_t {
  abort = 0,
  commit = 1,
  leader_change = 2,
  snapshot_header = 3,
  snapshot_footer = 4,
  kraft_version = 5,
  kraft_voters = 6
};
[[nodiscard]] std::optional<ControlType> control_type(const RecordView& record);
/// Appends a batch of one transaction marker.
void append_end_transaction_marker(Buffer& out, const BatchHeader& header, ControlType type,
                                   std::int32_t coordinator_epoch, std::int64_t timestamp_ms);

}  // namespace ciuic::kafka
