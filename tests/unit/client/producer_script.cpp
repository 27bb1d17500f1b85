// The scripted broker: sockets and four APIs. What it says is the test's.
#include "tests/unit/client/producer_script.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "transport/kafka/messages/api_versions.h"
#include "transport/kafka/messages/init_producer_id.h"
#include "transport/kafka/messages/metadata.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::client::test {

using kafka::ErrorCode;

ScriptedBroker::ScriptedBroker(std::int32_t partitions, OnBatch on_batch)
    : partitions_(partitions), on_batch_(std::move(on_batch)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 16) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no port for the scripted broker");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

ScriptedBroker::~ScriptedBroker() {
  stop_.store(true);
  acceptor_.join();
  for (auto& server : servers_) server.join();
  ::close(listener_);
}

std::vector<SeenBatch> ScriptedBroker::seen() const {
  const std::scoped_lock lock(mutex_);
  return seen_;
}

std::vector<std::size_t> ScriptedBroker::request_sizes() const {
  const std::scoped_lock lock(mutex_);
  return request_sizes_;
}

void ScriptedBroker::refuse_ids(std::vector<ErrorCode> codes) {
  const std::scoped_lock lock(mutex_);
  refusals_ = std::move(codes);
}

void ScriptedBroker::accept_all() {
  while (!stop_.load()) {
    pollfd one{listener_, POLLIN, 0};
    if (::poll(&one, 1, 20) <= 0) continue;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) servers_.emplace_back([this, socket] { serve(socket); });
  }
}

void ScriptedBroker::serve(int socket) {
  const auto read_exactly = [&](std::byte* to, std::size_t size) {
    while (size > 0) {
      pollfd one{socket, POLLIN, 0};
      if (stop_.load()) return false;
      if (::poll(&one, 1, 20) <= 0) continue;
      const auto got = ::recv(socket, to, size, 0);
      if (got <= 0) return false;
      to += got;
      size -= static_cast<std::size_t>(got);
    }
    return true;
  };
  std::byte head[4];
  while (read_exactly(head, sizeof head)) {
    Buffer frame(static_cast<std::size_t>(kafka::load_be<std::int32_t>(head)));
    if (!read_exactly(frame.data(), frame.size())) break;
    const auto answer = reply(frame);
    if (!answer.empty() && ::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) break;
  }
  ::close(socket);
}

Buffer ScriptedBroker::reply(Bytes frame) {
  const auto request = kafka::split_request(frame);
  if (!request) throw std::runtime_error("not a request");
  const auto version = request->api_version;
  const auto encode = [&](const auto& response) {
    return kafka::encode_response(request->correlation_id, response, version).flatten();
  };
  if (request->api_key == kafka::ApiVersionsRequest::api_key) {
    kafka::ApiVersionsResponse response;
    response.api_keys.push_back({0, 3, 11});
    response.api_keys.push_back({3, 0, 12});
    response.api_keys.push_back({18, 0, 3});
    response.api_keys.push_back({22, 0, 4});
    return encode(response);
  }
  if (request->api_key == kafka::MetadataRequest::api_key) {
    metadata_requests_.fetch_add(1);
    kafka::MetadataResponse response;
    auto& broker = response.brokers.emplace_back();
    broker.node_id = 1;
    broker.host = "127.0.0.1";
    broker.port = port_;
    auto& topic = response.topics.emplace_back();
    topic.name = "data";
    topic.error_code = topic_error_.load();
    for (std::int32_t i = 0; i < partitions_ && topic.error_code == ErrorCode::none; ++i) {
      auto& partition = topic.partitions.emplace_back();
      partition.partition_index = i;
      partition.leader_id = 1;
      partition.leader_epoch = 0;
    }
    return encode(response);
  }
  if (request->api_key == kafka::InitProducerIdRequest::api_key) {
    const std::scoped_lock lock(mutex_);
    kafka::InitProducerIdResponse response;
    if (refusals_.empty()) {
      response.producer_id = 4000;
      response.producer_epoch = 0;
    } else {
      response.error_code = refusals_.front();
      refusals_.erase(refusals_.begin());
    }
    return encode(response);
  }
  const auto produced = kafka::decode<kafka::ProduceRequest>(request->body, version);
  if (!produced) throw std::runtime_error("not a Produce request");
  const auto response = produce(*produced);
  if (silent_.load()) return {};
  return encode(response);
}

kafka::ProduceResponse ScriptedBroker::produce(const kafka::ProduceRequest& request) {
  kafka::ProduceResponse response;
  std::size_t count = 0;
  for (const auto& from : request.topic_data) {
    auto& topic = response.responses.emplace_back();
    topic.name = from.name;
    for (const auto& data : from.partition_data) {
      const auto view = kafka::RecordBatchView::parse(data.records.single());
      if (!view || !view->crc_valid()) throw std::runtime_error("not one whole batch");
      SeenBatch seen{data.index, view->producer_id().value, view->producer_epoch().value, view->base_sequence(), {}};
      Buffer scratch;
      auto reader = kafka::RecordReader::open(*view, scratch, 1 << 30);
      if (!reader) throw std::runtime_error("records do not unpack");
      while (const auto record = reader->next()) seen.values.emplace_back(as_text(record->value.value_or(Bytes{})));
      ++count;
      {
        const std::scoped_lock lock(mutex_);
        seen_.push_back(seen);
      }
      const auto verdict = on_batch_(seen);
      auto& partition = topic.partition_responses.emplace_back();
      partition.index = data.index;
      partition.error_code = verdict.code;
      partition.base_offset = verdict.code == ErrorCode::none ? verdict.base_offset : -1;
    }
  }
  const std::scoped_lock lock(mutex_);
  request_sizes_.push_back(count);
  return response;
}

Verdict SequenceCheck::operator()(const SeenBatch& batch) {
  if (batch.producer_id != id_ || batch.epoch > epoch_) {
    if (batch.base_sequence != 0) return {ErrorCode::out_of_order_sequence_number, -1};
    id_ = batch.producer_id;
    epoch_ = batch.epoch;
    next_ = 0;
    last_.clear();
  }
  if (batch.epoch < epoch_) return {ErrorCode::invalid_producer_epoch, -1};
  for (const auto& [sequence, offset] : last_) {
    if (sequence == batch.base_sequence) return {ErrorCode::none, offset};
  }
  if (batch.base_sequence != next_) return {ErrorCode::out_of_order_sequence_number, -1};
  const auto offset = static_cast<std::int64_t>(log_.size());
  last_.emplace_back(batch.base_sequence, offset);
  if (last_.size() > 5) last_.erase(last_.begin());
  next_ += static_cast<std::int32_t>(batch.values.size());
  log_.insert(log_.end(), batch.values.begin(), batch.values.end());
  return {ErrorCode::none, offset};
}

}  // namespace ciuic::client::test
