#pragma once
#include <memory>

#include "ciuic/result.h"
#include "ciuic/types.h"

/// Record batches where they lie: in the broker's memory (one-sided, same host), or in the buffer that the socket was
/// read into. Nothing is copied, nothing is allocated a batch.
namespace ciuic::client {

namespace core {
class Delivery;
}

/// One record batch (Kafka's magic 2), checked, as a view. A copy of the view keeps what it needs: the memory is not
/// unmapped and, while the consumer lives and its broker answers, the lease on it is renewed. `in_force()` tells
/// whether the bytes are still guaranteed; it turns false when a lease ran out (the broker was unreachable for its
/// length). Look at it after use, as a view into another process's memory can only be vouched for afterwards; `copy()`
/// does, and ends the dependence. Views over TCP are always in force. Any thread may use and drop views.
class RecordBatch {
 public:
  RecordBatch() = default;
  RecordBatch(const RecordBatch& other);
  RecordBatch(RecordBatch&& other) noexcept;
  RecordBatch& operator=(RecordBatch other) noexcept;
  ~RecordBatch();

  [[nodiscard]] const std::string& topic() const;
  [[nodiscard]] std::int32_t partition() const;
  [[nodiscard]] std::int64_t base_offset() const;
  [[nodiscard]] std::int64_t last_offset() const;
  /// Records below this were not asked for (the position lay inside the batch); `RecordReader` passes over them.
  [[nodiscard]] std::int64_t first_wanted_offset() const { return wanted_; }
  [[nodiscard]] std::int32_t leader_epoch() const;
  [[nodiscard]] std::int32_t record_count() const;   ///< of the whole batch
  [[nodiscard]] const char* compression() const;     ///< "none", "gzip", "snappy", "lz4", "zstd"
  [[nodiscard]] std::int64_t max_timestamp() const;  ///< ms since 1970; -1: none
  /// The batch, header included, as on the wire. Empty where the CPU cannot look: `device_bytes`, or a `copy`.
  [[nodiscard]] Bytes bytes() const { return in_device_ ? Bytes{} : bytes_; }
  /// The same in a device's memory, where batches land in such (`Consumer::land_in`): all writes of it are done.
  struct DeviceBytes {
    std::uint64_t address = 0;
    std::size_t size = 0;
  };
  [[nodiscard]] DeviceBytes device_bytes() const {
    return in_device_ ? DeviceBytes{reinterpret_cast<std::uintptr_t>(bytes_.data()), bytes_.size()} : DeviceBytes{};
  }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }  ///< bytes, wherever they lie
  [[nodiscard]] bool in_force() const;
  /// The bytes lie in the broker's memory.
  [[nodiscard]] bool in_place() const;
  /// The same batch in host memory of its own. Errors: data_loss if the lease had run out: the bytes cannot be vouched
  /// for; fatal if the device that they lie in failed.
  [[nodiscard]] Result<RecordBatch> copy() const;

 private:
  friend class core::Delivery;
  RecordBatch(core::Delivery* delivery, Bytes bytes, const std::byte* head, std::int64_t wanted);
  core::Delivery* delivery_ = nullptr;
  Bytes bytes_{};
  const std::byte* head_ = nullptr;  // the header, where the CPU may look
  std::int64_t wanted_ = 0;
  bool in_device_ = false;
};

struct Header {
  std::string_view key{};
  std::optional<Bytes> value{};  ///< nothing: null
};

enum class TimestampType : std::int8_t { create_time = 0, log_append_time = 1 };

/// One record; its spans lie in the batch, or in the reader's buffer where the batch is compressed.
struct Record {
  std::int64_t offset = -1;
  std::int64_t timestamp = -1;
  TimestampType timestamp_type = TimestampType::create_time;
  std::optional<Bytes> key{};    ///< nothing: null
  std::optional<Bytes> value{};  ///< nothing: null (a tombstone)
  std::span<const Header> headers{};
};

/// Walks the records of batches, one batch after the other, unpacking into one buffer that is used again. What a batch
/// of many megabytes took is given back when the next one is opened.
///     if (auto opened = reader.open(batch)) while (const Record* record = reader.next()) …
class RecordReader {
 public:
  RecordReader();
  RecordReader(RecordReader&&) noexcept;
  RecordReader& operator=(RecordReader&&) noexcept;
  ~RecordReader();
  /// Keeps `batch` until the next open. Errors: invalid_state (it lies in a device: `copy` it), corrupt (records do not
  /// unpack); with Kafka's code MESSAGE_TOO_LARGE where they unpack to more than `max.decompressed.batch.bytes` of the
  /// consumer that the batch came from.
  [[nodiscard]] Result<void> open(const RecordBatch& batch);
  /// The next record, or nullptr at the end or at a malformed one: then `error()` is there. Valid until `next` (the
  /// struct and its headers) and `open` (the bytes).
  [[nodiscard]] const Record* next();
  [[nodiscard]] const Error* error() const;
  /// All records' bytes unpacked, as the batch's payload before compression.
  [[nodiscard]] Bytes plain() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ciuic::client
