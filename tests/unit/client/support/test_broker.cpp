#include "tests/unit/client/support/test_broker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "client/core/connection.h"
#include "transport/kafka/messages/create_partitions.h"
#include "transport/kafka/messages/create_topics.h"
#include "transport/kafka/messages/delete_topics.h"
#include "transport/kafka/messages/produce.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::client::test {

namespace {

/// One request over a connection of its own.
template <class Response, class Request>
Response call(const std::string& address, Request request, std::int16_t newest = Request::valid_versions.max) {
  core::CommonSettings settings;
  settings.client_id = "test";
  settings.request_timeout_ms = settings.connect_timeout_ms = 20'000;
  settings.answer_bytes_max = 1 << 30;
  core::Loop loop(system_clock());
  loop.start();
  const auto to = *core::parse_address(address);
  const auto result = loop.run<Result<Response>>([&]() -> core::Co<Result<Response>> {
    auto copied = to;
    auto connection = co_await core::Connection::open(loop, std::move(copied), settings);
    if (!connection) co_return connection.error();
    auto moved = request;
    auto answer = co_await (*connection)->template call<Response>(std::move(moved), Milliseconds(20'000), newest);
    if (!answer) co_return answer.error();
    co_return std::move(answer->body);
  });
  loop.stop();
  return result.value();
}

void check(kafka::ErrorCode code, const std::string& what) {
  if (code != kafka::ErrorCode::none) throw std::runtime_error(what + ": " + std::string(kafka::name(code)));
}

}  // namespace

TestBroker::TestBroker(std::initializer_list<broker::Overrides::value_type> overrides) : overrides_(overrides) {
  auto pattern = (std::filesystem::temp_directory_path() / "ciuic-client-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
  directory_ = pattern;
  overrides_.try_emplace("log.dirs", (directory_ / "log").string());
  overrides_.try_emplace("num.network.threads", "2");  // crossings between shards, on a small machine too
  overrides_.try_emplace("onesided.runtime.dir", (directory_ / "run").string());
  // A broker's UCX uses TCP only where it is named, and many a host has nothing else.
  ::setenv("UCX_TLS", "tcp", 0);
  start();
}

TestBroker::~TestBroker() {
  stop();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void TestBroker::start() {
  overrides_["listeners"] = "PLAINTEXT://127.0.0.1:" + std::to_string(port_);
  auto server = broker::Server::start(overrides_);
  if (!server) throw std::runtime_error(server.error());
  server_ = std::move(*server);
  port_ = server_->port();
}

void TestBroker::stop() {
  if (server_) (void)server_->stop(Milliseconds(500));
  server_.reset();
}

void TestBroker::create_topic(const std::string& name, std::int32_t partitions,
                              std::vector<std::pair<std::string, std::string>> configs) {
  kafka::CreateTopicsRequest request;
  auto& topic = request.topics.emplace_back();
  topic.name = name;
  topic.num_partitions = partitions;
  topic.replication_factor = 1;
  for (auto& [key, value] : configs) {
    auto& config = topic.configs.emplace_back();
    config.name = key;
    config.value = value;
  }
  request.timeout_ms = 10'000;
  check(call<kafka::CreateTopicsResponse>(address(), std::move(request)).topics.at(0).error_code, "create " + name);
}

void TestBroker::delete_topic(const std::string& name) {
  kafka::DeleteTopicsRequest request;
  request.topic_names.push_back(name);
  request.topics.emplace_back().name = name;
  request.timeout_ms = 10'000;
  check(call<kafka::DeleteTopicsResponse>(address(), std::move(request)).responses.at(0).error_code, "delete " + name);
}

void TestBroker::add_partitions(const std::string& name, std::int32_t partitions) {
  kafka::CreatePartitionsRequest request;
  auto& topic = request.topics.emplace_back();
  topic.name = name;
  topic.count = partitions;
  topic.assignments.reset();
  request.timeout_ms = 10'000;
  check(call<kafka::CreatePartitionsResponse>(address(), std::move(request)).results.at(0).error_code, "grow " + name);
}

std::int64_t TestBroker::append(const std::string& topic, std::int32_t partition,
                                const std::vector<TestRecord>& records, kafka::Codec codec) {
  kafka::RecordBatchBuilder builder;
  for (const auto& record : records) {
    kafka::RecordToWrite write;
    write.timestamp = record.timestamp;
    write.key = as_bytes(record.key);
    write.value = as_bytes(record.value);
    builder.add(write);
  }
  Buffer batch;
  kafka::BatchHeader header;
  header.codec = codec;
  if (!builder.finish(header, batch)) throw std::runtime_error("no batch");
  kafka::ProduceRequest request;
  request.acks = -1;
  request.timeout_ms = 10'000;
  auto& data = request.topic_data.emplace_back();
  data.name = topic;
  auto& one = data.partition_data.emplace_back();
  one.index = partition;
  one.records = kafka::Records(Bytes(batch));
  constexpr std::int16_t by_name = 12;
  const auto answer = call<kafka::ProduceResponse>(address(), std::move(request), by_name);
  const auto& written = answer.responses.at(0).partition_responses.at(0);
  check(written.error_code, "append to " + topic);
  return written.base_offset;
}

void TestBroker::append_numbers(const std::string& topic, std::int32_t partition, std::int64_t first,
                                std::int64_t count, std::int64_t per_batch, kafka::Codec codec) {
  for (std::int64_t at = 0; at < count; at += per_batch) {
    std::vector<TestRecord> records;
    for (std::int64_t i = at; i < std::min(count, at + per_batch); ++i) {
      records.push_back({"k" + std::to_string(first + i), std::to_string(first + i), 1'700'000'000'000 + first + i});
    }
    append(topic, partition, records, codec);
  }
}

void TestBroker::write_log(const std::string& topic, std::int32_t partition, Bytes batches) {
  std::vector<std::filesystem::path> segments;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory_ / "log" / (topic + "-" + std::to_string(partition))))
    if (entry.path().extension() == ".log") segments.push_back(entry.path());
  std::sort(segments.begin(), segments.end());
  std::ofstream out(segments.at(segments.size() - 1), std::ios::binary | std::ios::app);
  out.write(reinterpret_cast<const char*>(batches.data()), static_cast<std::streamsize>(batches.size()));
  if (!out.flush()) throw std::runtime_error("the log of " + topic + " cannot be written");
  // The start looks at what is there.
  std::filesystem::remove(directory_ / "log" / ".kafka_cleanshutdown");
}

}  // namespace ciuic::client::test
