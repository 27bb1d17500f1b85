#pragma once
#include <functional>
#include <future>
#include <memory>

#include "ciuic/batch.h"
#include "ciuic/result.h"
#include "ciuic/types.h"

namespace ciuic::client {

/// A record to send; its bytes are copied by `send`.
struct RecordToSend {
  std::string_view topic{};
  std::optional<std::int32_t> partition{};  ///< nothing: the partitioner chooses
  std::optional<Bytes> key{};               ///< nothing: null
  std::optional<Bytes> value{};             ///< nothing: null (a tombstone)
  std::optional<std::int64_t> timestamp{};  ///< ms since 1970; nothing: now
  std::span<const Header> headers{};
};

/// Where a record was written.
struct Written {
  std::int32_t partition = -1;
  std::int64_t offset = -1;     ///< -1: acks=0, or a duplicate whose offset the broker no longer knows
  std::int64_t timestamp = -1;  ///< the broker's for LogAppendTime topics, else the record's
};

/// Runs on the producer's own thread: be short, do not block in it, do not call `flush` or `close` from it.
using DeliveryCallback = std::function<void(const Result<Written>&)>;

/// Writes records in batches. Any thread may send. With enable.idempotence (the default) a record is written exactly
/// once and in order a partition, over retries, lost answers and leader moves.
class Producer {
 public:
  /// Errors: invalid_config.
  [[nodiscard]] static Result<Producer> open(const Config& config);
  Producer(Producer&&) noexcept;
  Producer& operator=(Producer&&) noexcept;
  /// Closes without waiting for what is unsent: call `flush` before. In a forked child it does nothing.
  ~Producer();

  /// Queues the record. Blocks up to max.block.ms for topic metadata and for room in buffer.memory. `done` runs exactly
  /// once if the result is a success, never otherwise. Errors: invalid_argument (no such partition), queue_full,
  /// timed_out, broker (MESSAGE_TOO_LARGE above max.request.size, unknown topic, authorization), fatal.
  Result<void> send(const RecordToSend& record, DeliveryCallback done = {});
  /// The same with a future.
  [[nodiscard]] Result<std::future<Result<Written>>> send_future(const RecordToSend& record);
  /// Sends what is queued without lingering and waits until every callback has run. Errors: timed_out.
  Result<void> flush(Milliseconds timeout = Milliseconds(120000));
  /// Flushes, then ends. What is not sent in time fails with timed_out. Idempotent.
  Result<void> close(Milliseconds timeout = Milliseconds(120000));

  /// Partitions of a topic now.
  [[nodiscard]] Result<std::int32_t> partition_count(std::string_view topic,
                                                     Milliseconds timeout = Milliseconds(30000));
  [[nodiscard]] std::vector<Metric> metrics() const;

 private:
  class Impl;
  explicit Producer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ciuic::client
