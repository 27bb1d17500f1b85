#pragma once
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ciuic/producer.h"
#include "client/core/accumulator.h"
#include "client/core/cluster.h"
#include "client/core/settings.h"
#include "transport/base/fork_guard.h"
#include "transport/kafka/messages/produce.h"

/// How a producer works. Senders' threads put records into the accumulator's batches; the loop's thread looks over the
/// partitions, takes what is due, and sends it, one request with one batch a partition, to each leader. Files:
/// producer.cpp (the public calls), producer_send.cpp (looking, requests, metadata), producer_answer.cpp (what becomes
/// of a batch: written, again, split, given up).
///
/// Order. A partition's taken batches stand in `unacked` in the order of their sequences. After a failure the first of
/// them goes alone until it is written, then the next; fresh batches only when none is left to be sent again. A broker
/// that sees a follower before its elder refuses it, and it takes its turn. Sequences are given once; only when a batch
/// is lost to us with its fate unknown, or the broker says that there is a gap, the partition waits until nothing is in
/// flight, takes the next epoch and counts from 0 (KIP-360).
namespace ciuic::client {

class Producer::Impl {
 public:
  explicit Impl(core::ProducerSettings settings);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] bool in_forked_child() const { return fork_.in_child(); }
  Result<void> send(const RecordToSend& record, DeliveryCallback done);
  Result<void> flush(Milliseconds timeout);
  Result<void> close(Milliseconds timeout);
  Result<std::int32_t> partition_count(std::string_view topic, Milliseconds timeout);
  [[nodiscard]] std::vector<Metric> metrics() const;

 private:
  using Batch = std::shared_ptr<core::ProducerBatch>;
  using Batches = std::vector<Batch>;
  using Answered = kafka::ProduceResponse::PartitionProduceResponse;
  struct Node {
    std::int32_t in_flight = 0;
    bool pumping = false;
    Clock::TimePoint not_before{};
  };
  struct Counters {
    std::atomic<std::int64_t> records{0}, bytes{0}, batches{0}, requests{0}, failed_records{0}, retries{0}, splits{0},
        new_epochs{0};
  };

  // producer_send.cpp, on the loop.
  void look();
  void again();
  void arm(Clock::TimePoint when);
  [[nodiscard]] Clock::TimePoint look_at(core::PartitionQueue& queue, Clock::TimePoint now, Batches& expired) const;
  [[nodiscard]] Clock::TimePoint sendable_at(const core::PartitionQueue& queue) const;
  [[nodiscard]] Clock::TimePoint look_at_metadata(bool leaderless, bool busy);
  [[nodiscard]] Clock::TimePoint look_at_identity(bool busy);
  core::Co<void> refresh();
  core::Co<void> ask_identity();
  core::Co<void> pump(std::int32_t id);
  [[nodiscard]] Batches drain(std::int32_t id);
  [[nodiscard]] bool ready_identity(core::PartitionQueue& queue);
  core::Co<void> exchange(std::int32_t id, std::shared_ptr<core::Connection> connection, Batches batches);
  [[nodiscard]] kafka::ProduceRequest request_of(const Batches& batches) const;

  // producer_answer.cpp, on the loop.
  void answered(const Batches& batches, const kafka::ProduceResponse& response);
  void written(const Batch& batch, std::int64_t base_offset, std::int64_t append_time);
  void failed(const Batch& batch, const Error& error);
  void retry(const Batch& batch, const Error& error);
  void give_up(const Batch& batch, const Error& error);
  void expire(const Batch& batch);
  [[nodiscard]] bool split(const Batch& batch);
  void fail_all(const Error& error);
  void fatal(Error error);
  void remove(const Batch& batch);
  /// The callbacks with `error`, or with what was written.
  void tell(core::ProducerBatch& batch, const Error* error, std::int64_t base_offset, std::int64_t append_time);
  void finish(core::ProducerBatch& batch) const;
  void stamp(core::ProducerBatch& batch) const;
  void count_anew(core::PartitionQueue& queue, core::ProducerIdentity identity);

  const core::ProducerSettings settings_;
  const ForkGuard fork_{};
  core::Loop loop_;
  core::Cluster cluster_;
  core::Accumulator accumulator_;
  Counters counters_;
  std::mutex close_mutex_;
  bool closed_ = false;

  // The loop's.
  std::map<std::int32_t, Node> nodes_;
  std::optional<core::ProducerIdentity> identity_{};
  std::string trouble_{};  ///< what last kept us from sending
  std::set<Clock::TimePoint>
      timers_;  ///< under way: they cannot be called back, so none is added behind one that is there
  Clock::TimePoint next_refresh_{}, next_identity_{};
  bool refreshing_ = false, asking_identity_ = false, look_posted_ = false, ended_ = false;
};

namespace core {
/// Sequences count to the largest int32 and go on from 0, as Kafka's DefaultRecordBatch.incrementSequence.
[[nodiscard]] constexpr std::int32_t sequence_after(std::int32_t sequence, std::size_t records) {
  return static_cast<std::int32_t>((static_cast<std::uint64_t>(sequence) + records) % (std::uint64_t{1} << 31));
}
}  // namespace core

}  // namespace ciuic::client
