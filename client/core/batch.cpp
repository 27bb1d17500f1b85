// Views of batches and the walk over their records.
#include "ciuic/batch.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "client/core/delivery.h"
#include "client/core/error.h"
#include "transport/kafka/record_batch.h"
#include "transport/kafka/wire.h"

namespace ciuic::client {

using core::Delivery;
using core::failure;

namespace {
/// A header field, read straight from the bytes: they were checked when handed out, but after a lease ran out they may
/// be anything, and must still be safe to look at.
template <class T>
T field(const std::byte* head, std::size_t at, T none) {
  return head == nullptr ? none : kafka::load_be<T>(head + at);
}
}  // namespace

RecordBatch::RecordBatch(Delivery* delivery, Bytes bytes, const std::byte* head, std::int64_t wanted)
    : delivery_(delivery),
      bytes_(bytes),
      head_(head),
      wanted_(wanted),
      in_device_(delivery->source().device != nullptr) {
  delivery_->keep();
}
RecordBatch::RecordBatch(const RecordBatch& other)
    : delivery_(other.delivery_),
      bytes_(other.bytes_),
      head_(other.head_),
      wanted_(other.wanted_),
      in_device_(other.in_device_) {
  if (delivery_ != nullptr) delivery_->keep();
}
RecordBatch::RecordBatch(RecordBatch&& other) noexcept
    : delivery_(std::exchange(other.delivery_, nullptr)),
      bytes_(std::exchange(other.bytes_, {})),
      head_(std::exchange(other.head_, nullptr)),
      wanted_(other.wanted_),
      in_device_(std::exchange(other.in_device_, false)) {}
RecordBatch& RecordBatch::operator=(RecordBatch other) noexcept {
  std::swap(delivery_, other.delivery_);
  std::swap(bytes_, other.bytes_);
  std::swap(head_, other.head_);
  std::swap(wanted_, other.wanted_);
  std::swap(in_device_, other.in_device_);
  return *this;
}
RecordBatch::~RecordBatch() {
  if (delivery_ != nullptr) delivery_->drop();
}

const std::string& RecordBatch::topic() const {
  static const std::string none;
  return delivery_ == nullptr ? none : delivery_->source().at->topic;
}
std::int32_t RecordBatch::partition() const { return delivery_ == nullptr ? -1 : delivery_->source().at->partition; }
std::int64_t RecordBatch::base_offset() const { return field<std::int64_t>(head_, kafka::batch_at::base_offset, -1); }
std::int64_t RecordBatch::last_offset() const {
  return bytes_.empty() ? -1 : base_offset() + field<std::int32_t>(head_, kafka::batch_at::last_offset_delta, 0);
}
std::int32_t RecordBatch::leader_epoch() const { return field<std::int32_t>(head_, kafka::batch_at::leader_epoch, -1); }
std::int32_t RecordBatch::record_count() const { return field<std::int32_t>(head_, kafka::batch_at::record_count, 0); }
const char* RecordBatch::compression() const {
  static constexpr std::array names{"none", "gzip", "snappy", "lz4", "zstd"};
  const auto codec = static_cast<std::size_t>(field<std::int16_t>(head_, kafka::batch_at::attributes, 0) & 7);
  return codec < names.size() ? names[codec] : "unknown";
}
std::int64_t RecordBatch::max_timestamp() const {
  return field<std::int64_t>(head_, kafka::batch_at::max_timestamp, -1);
}
bool RecordBatch::in_force() const { return delivery_ == nullptr || delivery_->in_force(); }
bool RecordBatch::in_place() const { return delivery_ != nullptr && delivery_->source().in_place; }

Result<RecordBatch> RecordBatch::copy() const {
  if (delivery_ == nullptr) return RecordBatch();
  auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes_.size());
  if (const auto& area = delivery_->source().device) {
    const device::Span from{reinterpret_cast<std::uintptr_t>(bytes_.data()), bytes_.size()};
    if (const auto done = area->copy_out({memory.get(), bytes_.size()}, from); !done)
      return failure(Trouble::fatal,
                     topic() + ": copying a batch out of " + area->device_name() + " failed: " + done.error().text);
  } else {
    std::memcpy(memory.get(), bytes_.data(), bytes_.size());
  }
  if (!in_force())
    return failure(Trouble::data_loss,
                   topic() + ": the lease on this batch ran out before it was copied; read it again");
  const Bytes bytes(memory.get(), bytes_.size());
  Delivery::Source source;
  source.at = delivery_->source().at;
  source.unpacked_bytes_max = delivery_->source().unpacked_bytes_max;
  source.memory = std::move(memory);
  auto* const own = Delivery::make(std::move(source));
  auto batch = Delivery::view(own, bytes, bytes.data(), wanted_);
  own->drop();
  return batch;
}

struct RecordReader::State {
  RecordBatch batch{};
  Buffer scratch{};
  std::optional<kafka::RecordReader> walk{};
  TimestampType timestamp_type = TimestampType::create_time;
  Record record{};
  std::vector<Header> headers{};
  std::optional<Error> error{};
};

RecordReader::RecordReader() : state_(std::make_unique<State>()) {}
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader& RecordReader::operator=(RecordReader&&) noexcept = default;
RecordReader::~RecordReader() = default;

Result<void> RecordReader::open(const RecordBatch& batch) {
  auto& state = *state_;
  state.walk.reset();
  state.error.reset();
  constexpr std::size_t scratch_kept_max = 4U << 20;
  const auto release = [&state] {
    if (state.scratch.capacity() > scratch_kept_max) Buffer().swap(state.scratch);
  };
  release();
  state.batch = batch;
  if (batch.bytes().empty() && batch.size() > 0)
    return failure(Trouble::invalid_state, batch.topic() +
                                               ": the batch lies in a device's memory, where the CPU cannot look; "
                                               "copy() brings it to the host");
  if (batch.bytes().empty()) return {};
  const auto view = kafka::RecordBatchView::parse(batch.bytes());
  if (!view)
    return failure(Trouble::corrupt, batch.topic() + ": the batch changed after it was read: its lease ran out");
  state.timestamp_type = view->log_append_time() ? TimestampType::log_append_time : TimestampType::create_time;
  const auto most = Delivery::unpacked_bytes_max(batch);
  auto walk = kafka::RecordReader::open(*view, state.scratch, most);
  if (!walk) {
    release();
    const auto where =
        batch.topic() + "-" + std::to_string(batch.partition()) + " at offset " + std::to_string(batch.base_offset());
    if (walk.error().code != kafka::ErrorCode::message_too_large)
      return failure(Trouble::corrupt, where + ": the records do not unpack: " +
                                           std::string(kafka::name(walk.error().code)) + " " + walk.error().text);
    auto error = failure(Trouble::corrupt, where + ": a batch of " + std::to_string(batch.bytes().size()) +
                                               " bytes unpacks to more than " + std::to_string(most) +
                                               " bytes (max.decompressed.batch.bytes); raise it, or seek to offset " +
                                               std::to_string(batch.last_offset() + 1) + " to pass over the batch");
    error.kafka_code = static_cast<std::int16_t>(walk.error().code);
    return error;
  }
  state.walk.emplace(std::move(*walk));
  return {};
}

const Record* RecordReader::next() {
  auto& state = *state_;
  while (state.walk) {
    const auto record = state.walk->next();
    if (!record) {
      if (state.walk->error() != nullptr)
        state.error = failure(Trouble::corrupt, state.batch.topic() + ": a malformed record: " + state.walk->error());
      state.walk.reset();
      return nullptr;
    }
    if (record->offset.value < state.batch.first_wanted_offset()) continue;
    auto& out = state.record;
    out.offset = record->offset.value;
    out.timestamp = record->timestamp;
    out.timestamp_type = state.timestamp_type;
    out.key = record->key;
    out.value = record->value;
    state.headers.clear();
    auto headers = record->headers;
    while (const auto header = kafka::next_header(headers)) state.headers.push_back({header->key, header->value});
    out.headers = state.headers;
    return &out;
  }
  return nullptr;
}

const Error* RecordReader::error() const { return state_->error ? &*state_->error : nullptr; }
Bytes RecordReader::plain() const { return state_->walk ? state_->walk->plain() : Bytes{}; }

}  // namespace ciuic::client
