#pragma once
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "broker/exposure/exposure.h"
#include "broker/log/partition.h"
#include "tests/sim/support/model.h"
#include "transport/kafka/messages/ciuic_onesided.h"
#include "transport/onesided/reader.h"

namespace ciuic::sim {

/// The broker as a client reaches it: null while it is down.
struct BrokerSide {
  broker::Exposure* exposure = nullptr;
  std::shared_ptr<broker::Partition> log{};
  kafka::TopicId topic{};
};

/// A consumer of one partition: the real read loop, driven as client/core drives it, with every delivered batch held
/// against the model. Answers come when the world runs the executor, maybe never.
class SimClient {
 public:
  SimClient(std::shared_ptr<rdma::Provider> provider, const Clock& clock, std::mt19937_64& dice, Model& model,
            std::string principal, std::uint64_t connection, kafka::Isolation isolation, onesided::ReaderLimits limits);
  ~SimClient();

  /// Does one thing. Nothing: all is well. Else what went wrong, for good.
  std::optional<std::string> step(const BrokerSide& broker);
  /// The broker died or stopped: every answer under way is lost, and so is the connection.
  void broker_gone();
  void seek(kafka::Offset to);

  [[nodiscard]] kafka::Offset position() const { return position_; }
  [[nodiscard]] kafka::Isolation isolation() const { return isolation_; }
  [[nodiscard]] std::uint64_t connection() const { return connection_; }
  [[nodiscard]] std::uint64_t batches_one_sided() const { return one_sided_; }
  [[nodiscard]] std::uint64_t batches_fetched() const { return fetched_; }

 private:
  enum class Path { none, connecting, connected };
  template <class Response>
  std::function<void(Response)> answer_to(std::function<void(Response)> use);
  void connect(const BrokerSide& broker);
  void ask_grant(const BrokerSide& broker);
  void renew(const BrokerSide& broker);
  void wait(const BrokerSide& broker);
  void fetch(const BrokerSide& broker);
  void drop_connection();
  void deliver(std::span<const Bytes> batches, const std::vector<onesided::GrantedAborted>& aborted);
  void read(const BrokerSide& broker);
  void act(rdma::Fault fault);
  void fail(std::string what) {
    if (!wrong_) wrong_ = std::move(what) + " at offset " + std::to_string(position_.value);
  }

  std::shared_ptr<rdma::Provider> provider_;
  const Clock& clock_;
  std::mt19937_64& dice_;
  Model& model_;
  std::string principal_;
  std::uint64_t connection_;
  kafka::Isolation isolation_;
  onesided::ReaderLimits limits_;
  kafka::Offset position_{0};
  std::optional<std::string> wrong_;

  std::shared_ptr<int> life_ = std::make_shared<int>(0);  // of the connection: answers of an earlier one are not heard
  Path path_ = Path::none;
  std::int64_t session_ = 0;
  std::unique_ptr<onesided::ReadQueue> queue_;
  std::unique_ptr<onesided::Reader> reader_;
  bool has_grant_ = false;
  bool asking_ = false, renewing_ = false, waiting_ = false, fetching_ = false, use_fetch_ = false;
  Clock::TimePoint not_before_{};
  Clock::TimePoint renew_at_{};
  std::int32_t lease_ms_ = 0;
  std::uint64_t slot_version_ = 0;
  std::set<std::int64_t> aborting_;  // producers whose aborted transaction is being skipped
  std::deque<onesided::GrantedAborted> aborted_ahead_;
  std::uint64_t one_sided_ = 0, fetched_ = 0;
};

}  // namespace ciuic::sim
