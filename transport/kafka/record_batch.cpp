#include "transport/kafka/record_batch.h"

#include <algorithm>
#include <cstring>

#include "transport/base/crc32c.h"

namespace ciuic::kafka {
namespace {

// Attributes, KIP-98.
constexpr std::int16_t append_time_bit = 8;

std::int16_t attributes_of(Bytes batch) { return load_be<std::int16_t>(batch.data() + batch_at::attributes); }

std::uint32_t compute_crc(Bytes batch) { return crc32c(batch.subspan(batch_at::attributes)); }

std::size_t field_size(const std::optional<Bytes>& field) {
  return field ? uvarint_size(zigzag(static_cast<std::int64_t>(field->size()))) + field->size() : 1;
}

void write_field(WireWriter& out, const std::optional<Bytes>& field) {
  out.varint(field ? static_cast<std::int64_t>(field->size()) : -1);
  if (field) out.bytes(*field);
}

std::size_t headers_size(std::span<const HeaderToWrite> headers) {
  std::size_t total = uvarint_size(zigzag(static_cast<std::int64_t>(headers.size())));
  for (const auto& header : headers) {
    total += uvarint_size(zigzag(static_cast<std::int64_t>(header.key.size()))) + header.key.size() +
             field_size(header.value);
  }
  return total;
}

std::size_t body_size(const RecordToWrite& record, std::int64_t timestamp_delta, std::int32_t offset_delta) {
  return 1 + uvarint_size(zigzag(timestamp_delta)) + uvarint_size(zigzag(offset_delta)) + field_size(record.key) +
         field_size(record.value) + headers_size(record.headers);
}

/// -1 for null; fails the reader where the length is below that.
std::optional<Bytes> read_field(WireReader& in) {
  const auto length = in.varint();
  if (length == -1) return std::nullopt;
  if (length < -1) {
    in.fail();
    return std::nullopt;
  }
  return in.take(static_cast<std::size_t>(length));
}

}  // namespace

std::optional<std::int8_t> magic_of(Bytes bytes) {
  if (bytes.size() <= batch_at::magic) return std::nullopt;
  return static_cast<std::int8_t>(bytes[batch_at::magic]);
}

std::optional<std::size_t> batch_size(Bytes bytes) {
  if (bytes.size() < batch_overhead_bytes) return std::nullopt;
  const auto length = load_be<std::int32_t>(bytes.data() + batch_at::length);
  // 14: the smallest entry of the oldest format.
  if (length < 14 || static_cast<std::size_t>(length) > bytes.size() - batch_overhead_bytes) return std::nullopt;
  return static_cast<std::size_t>(length) + batch_overhead_bytes;
}

ResultOf<RecordBatchView, Error> RecordBatchView::parse(Bytes bytes) {
  const auto magic = magic_of(bytes);
  if (!magic) return Error{ErrorCode::corrupt_message, "a record batch is shorter than its header"};
  if (*magic == 0 || *magic == 1) {
    return Error{ErrorCode::unsupported_for_message_format,
                 "message format v0/v1 is not accepted; use a client of Kafka 0.11 or later, or raise its api.version"};
  }
  if (*magic != 2) return Error{ErrorCode::corrupt_message, "the record batch's magic is none of Kafka's"};
  const auto size = batch_size(bytes);
  if (!size || *size < batch_header_bytes)
    return Error{ErrorCode::corrupt_message, "the record batch's length is wrong"};
  return RecordBatchView(bytes.first(*size));
}

std::optional<RecordBatchView> RecordBatchView::of_head(Bytes head) {
  const auto length = load_be<std::int32_t>(head.data() + batch_at::length);
  if (magic_of(head) != 2 || length < static_cast<std::int32_t>(batch_header_bytes - batch_overhead_bytes))
    return std::nullopt;
  return RecordBatchView(head);
}

bool RecordBatchView::crc_valid() const { return compute_crc(bytes_) == crc(); }

std::optional<HeaderView> next_header(Bytes& headers) {
  if (headers.empty()) return std::nullopt;
  WireReader in(headers);
  const auto key = read_field(in);
  const auto value = read_field(in);
  headers = in.rest();
  if (!in.ok() || !key) return std::nullopt;
  return HeaderView{as_text(*key), value};
}

ResultOf<RecordReader, Error> RecordReader::open(const RecordBatchView& batch, Buffer& scratch, std::size_t limit) {
  if (!batch.codec_known())
    return Error{ErrorCode::unsupported_compression_type, "the codec number is none of Kafka's"};
  if (batch.codec() == Codec::none) return RecordReader(batch, batch.payload());
  scratch.clear();
  if (const auto done = decompress(batch.codec(), batch.payload(), scratch, limit); !done) return done.error();
  return RecordReader(batch, scratch);
}

RecordReader::RecordReader(const RecordBatchView& batch, Bytes plain)
    : plain_(plain),
      in_(plain),
      base_offset_(batch.base_offset()),
      first_timestamp_(batch.first_timestamp()),
      append_time_(batch.log_append_time() ? batch.max_timestamp() : -1),
      left_(batch.record_count()) {}

std::optional<RecordView> RecordReader::fail(const char* what) {
  error_ = what;
  left_ = 0;
  return std::nullopt;
}

std::optional<RecordView> RecordReader::next() {
  if (left_ <= 0) {
    if (error_ == nullptr && in_.left() != 0) return fail("bytes are left over after the batch's records");
    return std::nullopt;
  }
  const auto length = in_.varint();
  if (length < 0) return fail("a record's length is negative");
  WireReader body(in_.take(static_cast<std::size_t>(length)));
  if (!in_.ok()) return fail("a record is longer than its batch");
  RecordView record;
  (void)body.number<std::int8_t>();  // attributes, unused so far
  const auto timestamp_delta = body.varlong();
  record.offset = Offset(wrapping_add(base_offset_.value, body.varint()));
  record.timestamp = append_time_ >= 0 ? append_time_ : wrapping_add(first_timestamp_, timestamp_delta);
  record.key = read_field(body);
  record.value = read_field(body);
  record.header_count = body.varint();
  record.headers = body.rest();
  if (!body.ok() || record.header_count < 0) return fail("a record is malformed");
  for (auto count = record.header_count; count > 0; --count) {
    const auto key = read_field(body);
    (void)read_field(body);
    if (!body.ok() || !key) return fail("a record's headers are malformed");
  }
  if (body.left() != 0) return fail("a record is longer than its fields");
  --left_;
  return record;
}

std::size_t RecordBatchBuilder::size_of(const RecordToWrite& record) const {
  const auto body = body_size(record, count_ == 0 ? 0 : wrapping_sub(record.timestamp, first_timestamp_), next_delta_);
  return uvarint_size(zigzag(static_cast<std::int64_t>(body))) + body;
}

void RecordBatchBuilder::add(const RecordToWrite& record, std::int32_t offset_delta) {
  if (count_ == 0) {
    first_timestamp_ = record.timestamp;
    max_timestamp_ = record.timestamp;
  }
  max_timestamp_ = std::max(max_timestamp_, record.timestamp);
  const auto timestamp_delta = wrapping_sub(record.timestamp, first_timestamp_);
  WireWriter out(plain_);
  out.varint(static_cast<std::int64_t>(body_size(record, timestamp_delta, offset_delta)));
  out.number(std::int8_t{0});
  out.varint(timestamp_delta);
  out.varint(offset_delta);
  write_field(out, record.key);
  write_field(out, record.value);
  out.varint(static_cast<std::int64_t>(record.headers.size()));
  for (const auto& header : record.headers) {
    write_field(out, as_bytes(header.key));
    write_field(out, header.value);
  }
  ++count_;
  next_delta_ = offset_delta + 1;
}

ResultOf<void, Error> RecordBatchBuilder::finish(const BatchHeader& header, Buffer& out,
                                                 std::int32_t last_offset_delta) const {
  const auto at = out.size();
  out.resize(at + batch_header_bytes);
  if (const auto done = compress(header.codec, plain_, out, header.level); !done) {
    out.resize(at);
    return done;
  }
  const MutableBytes batch = MutableBytes(out).subspan(at);
  auto* const to = batch.data();
  std::int16_t attributes = static_cast<std::int16_t>(header.codec);
  if (header.log_append_time) attributes |= append_time_bit;
  if (header.transactional) attributes |= 16;
  if (header.control) attributes |= 32;
  store_be(to + batch_at::base_offset, header.base_offset.value);
  store_be(to + batch_at::length, static_cast<std::int32_t>(batch.size() - batch_overhead_bytes));
  store_be(to + batch_at::leader_epoch, header.leader_epoch.value);
  to[batch_at::magic] = std::byte{2};
  store_be(to + batch_at::attributes, attributes);
  store_be(to + batch_at::last_offset_delta, std::max(last_offset_delta, next_delta_ - 1));
  store_be(to + batch_at::first_timestamp, first_timestamp_);
  store_be(to + batch_at::max_timestamp, max_timestamp_);
  store_be(to + batch_at::producer_id, header.producer_id.value);
  store_be(to + batch_at::producer_epoch, header.producer_epoch.value);
  store_be(to + batch_at::base_sequence, header.base_sequence);
  store_be(to + batch_at::record_count, count_);
  set_crc(batch);
  return {};
}

void RecordBatchBuilder::clear() {
  plain_.clear();
  count_ = 0;
  next_delta_ = 0;
  first_timestamp_ = -1;
  max_timestamp_ = -1;
}

void set_base_offset(MutableBytes batch, Offset offset) {
  store_be(batch.data() + batch_at::base_offset, offset.value);
}

void set_leader_epoch(MutableBytes batch, LeaderEpoch epoch) {
  store_be(batch.data() + batch_at::leader_epoch, epoch.value);
}

void set_log_append_time(MutableBytes batch, std::int64_t timestamp_ms) {
  store_be(batch.data() + batch_at::attributes, static_cast<std::int16_t>(attributes_of(batch) | append_time_bit));
  store_be(batch.data() + batch_at::max_timestamp, timestamp_ms);
  set_crc(batch);
}

void set_create_time(MutableBytes batch, std::int64_t max_timestamp_ms) {
  const auto attributes = attributes_of(batch);
  if ((attributes & append_time_bit) == 0 &&
      load_be<std::int64_t>(batch.data() + batch_at::max_timestamp) == max_timestamp_ms) {
    return;
  }
  store_be(batch.data() + batch_at::attributes, static_cast<std::int16_t>(attributes & ~append_time_bit));
  store_be(batch.data() + batch_at::max_timestamp, max_timestamp_ms);
  set_crc(batch);
}

void set_crc(MutableBytes batch) { store_be(batch.data() + batch_at::crc, compute_crc(batch)); }

std::optional<ControlType> control_type(const RecordView& record) {
  if (!record.key || record.key->size() < 4) return std::nullopt;
  return static_cast<ControlType>(load_be<std::int16_t>(record.key->data() + 2));
}

void append_end_transaction_marker(Buffer& out, const BatchHeader& header, ControlType type,
                                   std::int32_t coordinator_epoch, std::int64_t timestamp_ms) {
  Buffer key;
  Buffer value;
  WireWriter key_out(key);
  key_out.number(std::int16_t{0});
  key_out.number(static_cast<std::int16_t>(type));
  WireWriter value_out(value);
  value_out.number(std::int16_t{0});
  value_out.number(coordinator_epoch);
  BatchHeader marked = header;
  marked.control = true;
  marked.transactional = true;
  marked.codec = Codec::none;
  RecordBatchBuilder builder;
  builder.add({timestamp_ms, Bytes(key), Bytes(value), {}});
  (void)builder.finish(marked, out);  // without a codec nothing can fail
}

}  // namespace ciuic::kafka
