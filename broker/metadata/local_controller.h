#pragma once
#include <atomic>
#include <deque>
#include <memory>

#include "broker/log/file_io.h"
#include "broker/metadata/controller.h"
#include "broker/metadata/metadata_log.h"
#include "broker/metadata/published.h"
#include "transport/base/clock.h"
#include "transport/base/executor.h"

namespace ciuic::broker {

/// The controller of a broker that is alone: it writes KRaft records to its own metadata log.
class LocalController final : public Controller {
 public:
  struct Parts {
    const BrokerConfig* config = nullptr;
    std::string log_dir;  // where the metadata log is
    std::string host;     // what clients are told
    std::int32_t port = 0;
    kafka::Uuid directory_id;
    kafka::Uuid incarnation;
    FileIo* io = nullptr;  // all outlive the controller
    const Clock* clock = nullptr;
    Executor* executor = nullptr;
    /// Makes the broker's partitions agree with `next` before it is published; `ready` once, on any thread.
    std::function<void(MetadataPointer previous, MetadataPointer next, std::function<void(kafka::Error)> ready)> apply;
    /// Whether a partition could be created now; asked before a record says that there is one. Null: always.
    std::function<kafka::Error()> can_create;
  };
  /// Reads the metadata log (creating it), registers this broker with the address of now. Blocks; at start, before the
  /// executor runs. Partitions are not applied: the caller loads them from `image()`.
  [[nodiscard]] static ResultOf<std::unique_ptr<LocalController>, std::string> open(Parts parts);
  ~LocalController() override;

  [[nodiscard]] MetadataPointer image() const override { return image_.get(); }
  void create_topics(std::vector<NewTopic> topics, Commit commit, Callback<std::vector<CreatedTopic>> done) override;
  void delete_topics(std::vector<kafka::TopicId> topics, Callback<std::vector<kafka::Error>> done) override;
  void create_partitions(std::vector<MorePartitions> topics, Commit commit,
                         Callback<std::vector<NamedResult>> done) override;
  void alter_configs(std::vector<ConfigAlteration> changes, Commit commit,
                     Callback<std::vector<NamedResult>> done) override;
  void allocate_producer_ids(Callback<ResultOf<ProducerIdBlock, kafka::Error>> done) override;

 private:
  /// One change: looks at the image of its turn, gives the records (none: nothing to do), and is told how it went.
  struct Change {
    std::function<std::vector<Buffer>(const MetadataImage&)> decide;
    std::function<void(kafka::Error)> done;
  };
  LocalController(Parts parts, MetadataLog log, MetadataPointer image);
  void submit(Change change);
  void run_next();
  void durable(Change change, std::vector<Buffer> records, IoResult<std::int64_t> written);
  void finish(const Change& change, kafka::Error error);

  Parts parts_;
  std::shared_ptr<MetadataLog> log_;
  Published<MetadataImage> image_;
  IoQueue queue_;
  std::deque<Change> waiting_;
  bool running_ = false;
  std::shared_ptr<std::atomic<bool>> alive_ = std::make_shared<std::atomic<bool>>(true);
};

}  // namespace ciuic::broker
