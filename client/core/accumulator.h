#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ciuic/producer.h"
#include "client/core/error.h"
#include "client/core/loop.h"
#include "client/core/settings.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::client::core {

struct PartitionQueue;

/// One record batch from its first record until the last callback has run.
struct ProducerBatch {
  /// A record whose sender waits to hear of it.
  struct Waiting {
    DeliveryCallback done{};
    std::int64_t timestamp = -1;
  };
  PartitionQueue* queue = nullptr;
  std::uint64_t ordinal = 0;  ///< in order of opening, over all partitions
  Clock::TimePoint created{};
  std::vector<Waiting> records{};
  std::size_t charged = 0;  ///< of buffer.memory
  bool full = false;
  std::unique_ptr<kafka::RecordBatchBuilder> builder{};  ///< until the batch is finished

  // The loop's, once taken.
  std::shared_ptr<Buffer> bytes{};  ///< as sent; not touched while in flight
  std::int32_t base_sequence = -1;
  bool in_flight = false;
  bool over = false;  ///< the callbacks have run; it is only kept until its answer comes
  Clock::TimePoint not_before{};
  std::string last_error{};
};

/// Who writes to a partition. Epochs count a partition: that is all that a broker compares them with.
struct ProducerIdentity {
  std::int64_t id = -1;
  std::int16_t epoch = -1;
};

/// A partition's batches: `waiting` under the accumulator's lock, the rest is the loop's.
struct PartitionQueue {
  std::string topic{};
  std::int32_t partition = 0;
  std::deque<std::unique_ptr<ProducerBatch>> waiting{};
  bool listed = false;

  std::deque<std::shared_ptr<ProducerBatch>>
      unacked{};  ///< taken, in the order of sequences: in flight, or to be sent again
  std::optional<ProducerIdentity> identity{};
  std::int32_t next_sequence = 0;
  bool new_epoch_wanted = false;  ///< a gap in the sequences, or a batch whose fate is unknown (KIP-360)
};

/// Records on their way from `send` to the loop: batches a partition, the memory they may take, topics as far as
/// senders must know them. One lock, held for the copy of a record or a look over the partitions. Next:
/// producer_impl.h.
class Accumulator {
 public:
  /// `wake` makes the loop look again soon; called on the sender's thread without the lock.
  Accumulator(const ProducerSettings& settings, Loop& loop, std::function<void()> wake);

  // Any thread.
  Result<void> append(const RecordToSend& record, DeliveryCallback done);
  Result<std::int32_t> partition_count(std::string_view topic, Milliseconds timeout);
  /// Waits until what was appended before is over, without lingering. Errors: timed_out.
  Result<void> flush(Milliseconds timeout);
  /// Appends and waits end with `why` from now on. The first reason stays.
  void refuse(const Error& why);
  [[nodiscard]] std::optional<Error> refused() const;
  [[nodiscard]] std::size_t buffered_bytes() const;
  [[nodiscard]] std::size_t buffered_records() const;

  // The loop's thread.
  /// Calls `each` for the partitions that have batches, lock held. It gives when it wants the next look; the earliest
  /// is given back, and senders wake the loop only for what is due before. Partitions that have nothing fall out.
  template <class Each>
  Clock::TimePoint look(Each each) {
    const std::scoped_lock lock(mutex_);
    woken_ = false;
    armed_ = Clock::TimePoint::max();
    std::erase_if(active_, [&](PartitionQueue* queue) {
      armed_ = std::min(armed_, each(*queue));
      queue->listed = !queue->waiting.empty() || !queue->unacked.empty();
      return !queue->listed;
    });
    return armed_;
  }
  /// Calls `each` for those partitions until it gives false, lock held, beginning elsewhere each time.
  template <class Each>
  void walk(Each each) {
    const std::scoped_lock lock(mutex_);
    ++turn_;
    for (std::size_t i = 0; i < active_.size(); ++i) {
      if (!each(*active_[(turn_ + i) % active_.size()])) return;
    }
  }
  /// When the first waiting batch may go; `max`: there is none. REQUIRES: inside `look` or `walk`.
  [[nodiscard]] Clock::TimePoint due(const PartitionQueue& queue) const;
  /// The first waiting batch. REQUIRES: inside `look` or `walk`, and there is one.
  [[nodiscard]] static std::shared_ptr<ProducerBatch> take(PartitionQueue& queue);
  /// A part of a batch that was taken: its last records, with a share of its memory.
  [[nodiscard]] std::shared_ptr<ProducerBatch> split_off(ProducerBatch& from, std::size_t records);
  /// What keeps batches from being written, for the senders that wait for their memory; empty: nothing does.
  void delivery_heard(std::string trouble);
  /// The batch's callbacks have run.
  void over(const ProducerBatch& batch);
  /// A builder's memory, to be used again.
  void recycle(std::unique_ptr<kafka::RecordBatchBuilder> builder);

  /// Topics to ask for: those in use and those that a sender waits for. They count as asked from here on.
  [[nodiscard]] std::vector<std::string> topics_to_ask();
  enum class Missing : std::int8_t { nothing, something, never_asked };
  [[nodiscard]] Missing missing() const;
  /// What was asked has been answered. `partitions`: 0 where `error` says why.
  void topic_heard(const std::string& name, std::int32_t partitions, std::vector<std::int32_t> available,
                   std::optional<Error> error);
  /// A refresh is over, with what went wrong; senders look again.
  void metadata_heard(std::string trouble);

 private:
  struct SenderTopic {
    std::string name{};
    std::int32_t partitions = 0;
    std::vector<std::int32_t> available{};  ///< partitions that have a leader
    std::int32_t sticky = -1;
    std::optional<Error> error{};
    std::uint64_t heard = 0;
    bool asked = false;
    std::uint32_t waiters = 0;
    std::vector<std::unique_ptr<PartitionQueue>> queues{};
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  using Lock = std::unique_lock<std::mutex>;

  Result<SenderTopic*> usable_topic(Lock& lock, std::string_view name, std::optional<std::int32_t> partition,
                                    Clock::TimePoint& deadline, Milliseconds patience);
  Result<void> wait_for_room(Lock& lock, std::size_t bytes, Clock::TimePoint& deadline);
  [[nodiscard]] std::int32_t stick(SenderTopic& topic, const kafka::RecordToWrite& record, bool& wake);
  [[nodiscard]] bool close_last(PartitionQueue& queue);
  [[nodiscard]] bool fits(const PartitionQueue& queue, const kafka::RecordToWrite& record) const;
  /// True: the wake-up is the caller's to do, without the lock.
  [[nodiscard]] bool want_look(Clock::TimePoint when);
  [[nodiscard]] bool urgent() const { return flushing_ > 0 || memory_waiters_ > 0 || refused_.has_value(); }
  void set_deadline(Clock::TimePoint& deadline, Milliseconds patience) const;

  const ProducerSettings& settings_;
  Loop& loop_;
  const std::function<void()> wake_;
  const std::size_t batch_bytes_max_;

  mutable std::mutex mutex_;
  std::condition_variable topics_changed_, room_made_, batch_over_;
  std::unordered_map<std::string, std::unique_ptr<SenderTopic>, TextHash, std::equal_to<>> topics_;
  std::vector<PartitionQueue*> active_;
  std::size_t turn_ = 0;
  std::vector<std::unique_ptr<kafka::RecordBatchBuilder>> spare_;
  std::size_t buffered_ = 0, buffered_records_ = 0;
  std::uint64_t next_ordinal_ = 0;
  std::multiset<std::uint64_t> incomplete_;  ///< ordinals; the parts of a split batch share theirs
  std::uint32_t flushing_ = 0, memory_waiters_ = 0, topic_waiters_ = 0;
  std::optional<Error> refused_{};
  std::string metadata_trouble_{}, delivery_trouble_{};
  bool woken_ = false;
  Clock::TimePoint armed_ = Clock::TimePoint::max();
  std::minstd_rand dice_;
};

}  // namespace ciuic::client::core
