#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "broker/log/partition.h"
#include "transport/base/clock.h"
#include "transport/base/executor.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

struct CoordinatorRecord {
  Buffer key{};
  std::optional<Buffer> value{};  ///< nothing: a tombstone
};

/// What reading a coordinator's log back gives, in log order.
class GroupReplay {
 public:
  virtual ~GroupReplay() = default;
  /// `producer` is set where the record belongs to a transaction: it counts when that ends with a commit.
  virtual void record(Bytes key, std::optional<Bytes> value, std::optional<kafka::ProducerId> producer) = 0;
  virtual void transaction_ended(kafka::ProducerId producer, bool committed) = 0;
};

/// Where a coordinator's state is kept: one partition of a compacted topic. Owned by `executor`; every call is made and
/// every callback runs there, never inside the call.
class GroupLog {
 public:
  virtual ~GroupLog() = default;
  [[nodiscard]] virtual Executor& executor() = 0;
  /// Appends all of them; `done` once they are acknowledged (or the first error). Successes come in the order of calls.
  virtual void append(std::vector<CoordinatorRecord> records, std::function<void(kafka::ErrorCode)> done) = 0;
  /// Reads everything from the start to the high watermark of now. `replay` lives until `done`.
  virtual void replay(std::shared_ptr<GroupReplay> replay, std::function<void(kafka::ErrorCode)> done) = 0;
};

/// Over a real partition. Many records are cut into several batches below max.message.bytes.
class PartitionGroupLog final : public GroupLog, public std::enable_shared_from_this<PartitionGroupLog> {
 public:
  PartitionGroupLog(std::shared_ptr<Partition> partition, const Clock& clock)
      : partition_(std::move(partition)), clock_(clock) {}
  Executor& executor() override { return partition_->executor(); }
  void append(std::vector<CoordinatorRecord> records, std::function<void(kafka::ErrorCode)> done) override;
  void replay(std::shared_ptr<GroupReplay> replay, std::function<void(kafka::ErrorCode)> done) override;

 private:
  struct Reading;
  void read_on(const std::shared_ptr<Reading>& reading);

  std::shared_ptr<Partition> partition_;
  const Clock& clock_;
};

}  // namespace ciuic::broker
