#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/kafka/error_code.h"
#include "transport/kafka/messages/produce.h"

namespace ciuic::client::test {

/// A record batch as the scripted broker got it.
struct SeenBatch {
  std::int32_t partition = -1;
  std::int64_t producer_id = -1;
  std::int16_t epoch = -1;
  std::int32_t base_sequence = -1;
  std::vector<std::string> values{};
  bool operator==(const SeenBatch&) const = default;
};

/// What it answers for it.
struct Verdict {
  kafka::ErrorCode code = kafka::ErrorCode::none;
  std::int64_t base_offset = 0;
};

/// The other side, by script: one broker with one topic "data", that answers metadata and producer ids by itself and
/// asks the test about everything that is produced. Requests of a connection are answered one after the other.
class ScriptedBroker {
 public:
  using OnBatch = std::function<Verdict(const SeenBatch&)>;
  explicit ScriptedBroker(std::int32_t partitions, OnBatch on_batch);
  ScriptedBroker(const ScriptedBroker&) = delete;
  ScriptedBroker& operator=(const ScriptedBroker&) = delete;
  ~ScriptedBroker();

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::vector<SeenBatch> seen() const;
  /// Batches a Produce request, in order.
  [[nodiscard]] std::vector<std::size_t> request_sizes() const;
  /// Answers to the next InitProducerId requests, before they succeed.
  void refuse_ids(std::vector<kafka::ErrorCode> codes);
  void set_topic_error(kafka::ErrorCode code) { topic_error_.store(code); }
  [[nodiscard]] int metadata_requests() const { return metadata_requests_.load(); }
  /// From now on Produce requests are read and never answered, until `answer` is called.
  void stay_silent() { silent_.store(true); }
  void answer() { silent_.store(false); }

 private:
  void accept_all();
  void serve(int socket);
  [[nodiscard]] Buffer reply(Bytes frame);
  [[nodiscard]] kafka::ProduceResponse produce(const kafka::ProduceRequest& request);

  const std::int32_t partitions_;
  const OnBatch on_batch_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false}, silent_{false};
  std::atomic<kafka::ErrorCode> topic_error_{kafka::ErrorCode::none};
  std::atomic<int> metadata_requests_{0};
  mutable std::mutex mutex_;
  std::vector<SeenBatch> seen_;
  std::vector<std::size_t> request_sizes_;
  std::vector<kafka::ErrorCode> refusals_;
  std::thread acceptor_;
  std::vector<std::thread> servers_;
};

/// What a broker makes of sequences: the next one is taken, the last five are known again, others are out of order. A
/// new epoch begins at 0. For one partition.
class SequenceCheck {
 public:
  [[nodiscard]] Verdict operator()(const SeenBatch& batch);
  [[nodiscard]] const std::vector<std::string>& log() const { return log_; }

 private:
  std::int64_t id_ = -1;
  std::int16_t epoch_ = -1;
  std::int32_t next_ = 0;
  std::vector<std::pair<std::int32_t, std::int64_t>> last_;
  std::vector<std::string> log_;
};

}  // namespace ciuic::client::test
