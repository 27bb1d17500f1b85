// librdkafka as a driver's library, by the calls its documentation names as the fastest: batches of messages from the
// consumer's queue, delivery reports only of failures.
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench/drivers/peer.h"

namespace ciuic::bench {
namespace {

constexpr std::size_t messages_a_call = 4096;

rd_kafka_t* open_client(rd_kafka_type_t type, const Settings& settings, void* opaque,
                        void (*delivered)(rd_kafka_t*, const rd_kafka_message_t*, void*)) {
  std::array<char, 512> error{};
  auto* conf = rd_kafka_conf_new();
  for (const auto& [key, value] : settings) {
    if (rd_kafka_conf_set(conf, key.c_str(), value.c_str(), error.data(), error.size()) != RD_KAFKA_CONF_OK)
      throw std::runtime_error(error.data());
  }
  rd_kafka_conf_set_opaque(conf, opaque);
  if (delivered != nullptr) rd_kafka_conf_set_dr_msg_cb(conf, delivered);
  auto* client = rd_kafka_new(type, conf, error.data(), error.size());
  if (client == nullptr) throw std::runtime_error(error.data());
  return client;
}

[[noreturn]] void fail(rd_kafka_resp_err_t error) { throw std::runtime_error(rd_kafka_err2str(error)); }

class TheirWriter final : public Writer {
 public:
  TheirWriter(Settings settings, const std::string& topic) {
    settings.emplace_back("delivery.report.only.error", "true");
    client_ = open_client(RD_KAFKA_PRODUCER, settings, this, [](rd_kafka_t*, const rd_kafka_message_t*, void* self) {
      ++static_cast<TheirWriter*>(self)->failed_;
    });
    topic_ = rd_kafka_topic_new(client_, topic.c_str(), nullptr);
    if (topic_ == nullptr) fail(rd_kafka_last_error());
    reports_ = std::thread([this] {
      while (!ending_) rd_kafka_poll(client_, 50);
    });
  }
  ~TheirWriter() override {
    ending_ = true;
    reports_.join();
    rd_kafka_topic_destroy(topic_);
    rd_kafka_destroy(client_);
  }
  TheirWriter(const TheirWriter&) = delete;
  TheirWriter& operator=(const TheirWriter&) = delete;
  void send(Value value) override {
    if (rd_kafka_produce(topic_, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK,
                         const_cast<std::byte*>(value.data()), value.size(), nullptr, 0, nullptr) != 0)
      fail(rd_kafka_last_error());
  }
  void flush() override {
    if (const auto error = rd_kafka_flush(client_, 120'000); error != RD_KAFKA_RESP_ERR_NO_ERROR) fail(error);
    if (failed_ > 0) throw std::runtime_error(std::to_string(failed_) + " records were not written");
  }

 private:
  rd_kafka_t* client_ = nullptr;
  rd_kafka_topic_t* topic_ = nullptr;
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<bool> ending_{false};
  std::thread reports_;
};

class TheirReader final : public Reader {
 public:
  TheirReader(const Settings& settings, std::string topic, int partitions, From from)
      : topic_(std::move(topic)), partitions_(partitions) {
    client_ = open_client(RD_KAFKA_CONSUMER, settings, nullptr, nullptr);
    rd_kafka_poll_set_consumer(client_);
    queue_ = rd_kafka_queue_get_consumer(client_);
    assign(from == From::beginning ? RD_KAFKA_OFFSET_BEGINNING : RD_KAFKA_OFFSET_END);
  }
  ~TheirReader() override {
    rd_kafka_queue_destroy(queue_);
    rd_kafka_consumer_close(client_);
    rd_kafka_destroy(client_);
  }
  TheirReader(const TheirReader&) = delete;
  TheirReader& operator=(const TheirReader&) = delete;
  void rewind() override { assign(RD_KAFKA_OFFSET_BEGINNING); }
  Polled poll(Milliseconds timeout, Delivery delivery) override {
    Polled out;
    take(timeout, [&](Value value) {
      ++out.records;
      out.bytes += value.size();
      if (value.empty() || delivery == Delivery::views) return;
      if (delivery == Delivery::records) {
        touched_ += std::to_integer<std::uint64_t>(value.front());
        return;
      }
      if (buffer_.size() < value.size()) buffer_.resize(value.size());
      std::memcpy(buffer_.data(), value.data(), value.size());
    });
    return out;
  }
  void poll_values(Milliseconds timeout, const std::function<void(Value)>& each) override { take(timeout, each); }
  [[nodiscard]] std::string path() const override { return "tcp"; }

 private:
  void assign(std::int64_t offset) {
    auto* list = rd_kafka_topic_partition_list_new(partitions_);
    for (int partition = 0; partition < partitions_; ++partition)
      rd_kafka_topic_partition_list_add(list, topic_.c_str(), partition)->offset = offset;
    const auto error = rd_kafka_assign(client_, list);
    rd_kafka_topic_partition_list_destroy(list);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) fail(error);
  }
  template <class Each>
  void take(Milliseconds timeout, const Each& each) {
    // A batch call waits until the batch is full: it asks only for what is there already, behind the first message.
    messages_[0] = rd_kafka_consumer_poll(client_, static_cast<int>(timeout.count()));
    if (messages_[0] == nullptr) return;
    const auto more = rd_kafka_consume_batch_queue(queue_, 0, messages_.data() + 1, messages_.size() - 1);
    const auto count = 1 + std::max<ssize_t>(more, 0);
    std::string error;
    for (ssize_t i = 0; i < count; ++i) {
      auto* message = messages_[static_cast<std::size_t>(i)];
      if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        each(Value(static_cast<const std::byte*>(message->payload), message->len));
      } else if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        error = rd_kafka_message_errstr(message);
      }
      rd_kafka_message_destroy(message);
    }
    if (!error.empty()) throw std::runtime_error(error);
  }

  std::string topic_;
  int partitions_;
  rd_kafka_t* client_ = nullptr;
  rd_kafka_queue_t* queue_ = nullptr;
  std::array<rd_kafka_message_t*, messages_a_call> messages_{};
  std::vector<std::byte> buffer_;
  std::uint64_t touched_ = 0;  // a member, so that the look at each record is not optimized away
};

class TheirMember final : public Member {
 public:
  TheirMember(const Settings& settings, const std::string& topic) {
    client_ = open_client(RD_KAFKA_CONSUMER, settings, nullptr, nullptr);
    rd_kafka_poll_set_consumer(client_);
    auto* topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic.c_str(), RD_KAFKA_PARTITION_UA);
    const auto error = rd_kafka_subscribe(client_, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) fail(error);
  }
  ~TheirMember() override {
    rd_kafka_consumer_close(client_);
    rd_kafka_destroy(client_);
  }
  TheirMember(const TheirMember&) = delete;
  TheirMember& operator=(const TheirMember&) = delete;
  void poll(Milliseconds timeout) override {
    if (auto* message = rd_kafka_consumer_poll(client_, static_cast<int>(timeout.count())); message != nullptr)
      rd_kafka_message_destroy(message);
  }
  [[nodiscard]] std::size_t assigned() override {
    rd_kafka_topic_partition_list_t* list = nullptr;
    if (const auto error = rd_kafka_assignment(client_, &list); error != RD_KAFKA_RESP_ERR_NO_ERROR) fail(error);
    const auto count = static_cast<std::size_t>(list->cnt);
    rd_kafka_topic_partition_list_destroy(list);
    return count;
  }

 private:
  rd_kafka_t* client_ = nullptr;
};

}  // namespace

std::unique_ptr<Writer> open_writer(const Settings& settings, const std::string& topic) {
  return std::make_unique<TheirWriter>(settings, topic);
}
std::unique_ptr<Reader> open_reader(const Settings& settings, const std::string& topic, int partitions, From from) {
  return std::make_unique<TheirReader>(settings, topic, partitions, from);
}
std::unique_ptr<Member> open_member(const Settings& settings, const std::string& topic) {
  return std::make_unique<TheirMember>(settings, topic);
}
std::string library() { return std::string("librdkafka ") + rd_kafka_version_str(); }

}  // namespace ciuic::bench
