// Our own client as a driver's library.
#include <atomic>
#include <cstring>

#include "bench/drivers/peer.h"
#include "ciuic/client.h"

namespace ciuic::bench {
namespace {

using namespace ciuic::client;
using bench::Milliseconds;

class OurWriter final : public Writer {
 public:
  OurWriter(const Settings& settings, std::string topic)
      : topic_(std::move(topic)), producer_(Producer::open(settings).value()) {}
  void send(Value value) override {
    RecordToSend record;
    record.topic = topic_;
    record.value = value;
    producer_.send(record, [this](const Result<Written>& written) { failed_ += !written; }).value();
  }
  void flush() override {
    producer_.flush().value();
    if (failed_ > 0) throw std::runtime_error(std::to_string(failed_) + " records were not written");
  }

 private:
  std::string topic_;
  std::atomic<std::uint64_t> failed_{0};
  Producer producer_;  // its thread counts above: it ends first
};

class OurReader final : public Reader {
 public:
  OurReader(const Settings& settings, const std::string& topic, int partitions, From from)
      : consumer_(Consumer::open(settings).value()) {
    std::vector<TopicPartitionOffset> places;
    for (int partition = 0; partition < partitions; ++partition) {
      at_.push_back({topic, partition});
      places.push_back({topic, partition, from == From::beginning ? offset_beginning : offset_end, {}});
    }
    consumer_.assign(places).value();
  }
  void rewind() override {
    for (const auto& at : at_) consumer_.seek(at, offset_beginning).value();
  }
  Polled poll(Milliseconds timeout, Delivery delivery) override {
    Polled out;
    const auto batches = consumer_.poll(timeout).value();
    for (const auto& batch : batches) {
      out.records += static_cast<std::uint64_t>(batch.record_count());
      if (delivery == Delivery::records) {
        records_.open(batch).value();
        while (const auto* record = records_.next()) {
          if (!record->value || record->value->empty()) continue;
          out.bytes += record->value->size();
          touched_ += std::to_integer<std::uint64_t>(record->value->front());
        }
        if (records_.error() != nullptr) throw std::runtime_error(records_.error()->text);
        continue;
      }
      const auto bytes = batch.bytes();
      out.bytes += bytes.size();
      if (delivery == Delivery::copied) {
        if (buffer_.size() < bytes.size()) buffer_.resize(bytes.size());
        std::memcpy(buffer_.data(), bytes.data(), bytes.size());
      }
    }
    if (!batches.empty() && !batches.front().in_force()) throw std::runtime_error("a lease ran out while reading");
    return out;
  }
  void poll_values(Milliseconds timeout, const std::function<void(Value)>& each) override {
    const auto batches = consumer_.poll(timeout).value();
    for (const auto& batch : batches) {
      records_.open(batch).value();
      while (const auto* record = records_.next()) {
        if (record->value) each(*record->value);
      }
    }
  }
  [[nodiscard]] std::string path() const override {
    const auto info = consumer_.path(at_.front());
    return info.provider.empty() ? name(info.path) : std::string(name(info.path)) + " " + info.provider;
  }

 private:
  std::vector<TopicPartition> at_;
  Consumer consumer_;
  RecordReader records_;
  std::vector<std::byte> buffer_;
  std::uint64_t touched_ = 0;  // a member, so that the look at each record is not optimized away
};

class OurMember final : public Member {
 public:
  OurMember(const Settings& settings, const std::string& topic) : consumer_(Consumer::open(settings).value()) {
    consumer_.subscribe({topic}).value();
  }
  void poll(Milliseconds timeout) override { std::ignore = consumer_.poll(timeout).value(); }
  [[nodiscard]] std::size_t assigned() override { return consumer_.assignment().size(); }

 private:
  Consumer consumer_;
};

}  // namespace

std::unique_ptr<Writer> open_writer(const Settings& settings, const std::string& topic) {
  return std::make_unique<OurWriter>(settings, topic);
}
std::unique_ptr<Reader> open_reader(const Settings& settings, const std::string& topic, int partitions, From from) {
  return std::make_unique<OurReader>(settings, topic, partitions, from);
}
std::unique_ptr<Member> open_member(const Settings& settings, const std::string& topic) {
  return std::make_unique<OurMember>(settings, topic);
}
std::string library() { return std::string("ciuickafka ") + version(); }

}  // namespace ciuic::bench
