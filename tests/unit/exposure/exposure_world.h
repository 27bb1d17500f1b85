#pragma once
#include <gtest/gtest.h>

#include "broker/exposure/exposure.h"
#include "tests/unit/log/support/log_world.h"
#include "transport/base/log.h"
#include "transport/kafka/messages/ciuic_onesided.h"
#include "transport/rdma/memory/memory.h"
#include "transport/rdma/registry.h"

namespace ciuic::broker {

using kafka::ErrorCode;

struct Forward final : LogObserver {
  Exposure* to = nullptr;
  void chunk_opened(Partition& p, const std::shared_ptr<Chunk>& c) override { to->chunk_opened(p, c); }
  void chunk_sealed(Partition& p, const std::shared_ptr<Chunk>& c) override { to->chunk_sealed(p, c); }
  void chunk_wanted_back(Partition& p, const std::shared_ptr<Chunk>& c, Task done) override {
    to->chunk_wanted_back(p, c, std::move(done));
  }
  void committed(Partition& p, const Committed& at) override { to->committed(p, at); }
  void layout_changed(Partition& p, LayoutChange change) override { to->layout_changed(p, change); }
};

/// Over a provider that registers at once, and over one that pins memory: its registrations run elsewhere, at any time.
class ExposureTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    log::set_level(log::Level::off);
    Exposure::Parts parts;
    parts.settings.lease_ms = 1000;
    parts.settings.read_ms_max = 200;
    parts.settings.sessions_per_principal_max = 3;
    parts.settings.grants_per_session_max = 4;
    parts.clock = &world_.clock;
    parts.home = &world_.executor;
    parts.executors = {&world_.executor};
    parts.providers = {provider_};
    parts.lookup.find = [this](const kafka::TopicId& topic, kafka::PartitionIndex) {
      return topic == log_->topic_id() ? log_ : nullptr;
    };
    parts.lookup.may_read = [this](const std::string& principal, const std::string&) { return principal != denied_; };
    if (GetParam()) parts.blocking = [this](Task task, Turn) { world_.io.submit(registrar_, std::move(task)); };
    exposure_ = std::make_unique<Exposure>(std::move(parts));
    forward_.to = exposure_.get();
    world_.start();
    LogConfig config;
    config.segment_bytes = 4096;
    log_ = world_.create("t", 0, config);
    fill(40);
  }
  void fill(int batches) {
    for (int i = 0; i < batches; ++i)
      ASSERT_TRUE(world_.append(*log_, testing::make_batch({.records = 5, .value_bytes = 40}),
                                {AppendOrigin::client, kafka::LeaderEpoch(0)}));
  }
  template <class Request, class Response>
  Response ask(void (Exposure::*api)(ExposurePeer, Request, Exposure::Done<Response>), Request request,
               const std::string& who = "User:a", std::uint64_t connection = 1) {
    std::optional<Response> got;
    (exposure_.get()->*api)({who, connection}, std::move(request),
                            [&](Response response) { got = std::move(response); });
    world_.settle();
    EXPECT_TRUE(got);
    return got.value_or(Response{});
  }
  kafka::OneSidedConnectResponse connect(const std::string& who = "User:a", std::uint64_t connection = 1) {
    kafka::OneSidedConnectRequest request;
    request.providers = {"verbs", "memory"};
    request.host_id = rdma::host_id();
    return ask(&Exposure::connect, request, who, connection);
  }
  kafka::OneSidedGrantRequest asking_for(std::int64_t session, std::int64_t offset) const {
    kafka::OneSidedGrantRequest request;
    request.session_id = session;
    request.provider = "memory";
    auto& topic = request.topics.emplace_back();
    topic.topic_id = log_->topic_id();
    auto& one = topic.partitions.emplace_back();
    one.fetch_offset = offset;
    one.bytes_wanted = 100000;
    return request;
  }
  kafka::OneSidedGrantResponse grant(std::int64_t session, std::int64_t offset, const std::string& who = "User:a") {
    return ask(&Exposure::grant, asking_for(session, offset), who);
  }
  ErrorCode renew(std::int64_t session, std::int64_t grant_id, std::int64_t position = 0,
                  const std::string& who = "User:a") {
    kafka::OneSidedRenewRequest request;
    request.session_id = session;
    auto& one = request.grants.emplace_back();
    one.grant_id = grant_id;
    one.position = position;
    const auto response = ask(&Exposure::renew, request, who);
    return response.error_code != ErrorCode::none ? response.error_code : response.grants.at(0).error_code;
  }
  static const auto& only(const kafka::OneSidedGrantResponse& response) {
    return response.topics.at(0).partitions.at(0);
  }
  /// Everything below the high watermark is deleted: the log wants the chunks back.
  void delete_all() {
    log_->delete_records(kafka::Offset(-1), [](const auto&) {});
    world_.settle();
    log_->maintain();
    world_.settle();
  }

  /// The chunk that the log goes on in is wanted back by nobody: a registration that cost something stays.
  static int kept_open_chunk() { return GetParam() ? 1 : 0; }

  Forward forward_;
  testing::LogWorld world_{1, testing::LogWorld::small_arena(), &forward_};
  rdma::MemoryFabric fabric_;
  int faults_left_ = 0;
  std::uint64_t devices_ = 1;
  std::uint64_t room_ = ~0ULL;  // for registrations, in bytes
  IoQueue registrar_ = world_.io.make_queue();
  std::shared_ptr<rdma::Provider> provider_ =
      rdma::make_memory_provider(fabric_, world_.clock,
                                 {GetParam(),
                                  [this]() -> std::optional<rdma::Fault> {
                                    if (faults_left_ == 0) return std::nullopt;
                                    --faults_left_;
                                    return rdma::Fault::memlock_limit;
                                  },
                                  [this] { return room_; }, [this] { return devices_; }});
  std::shared_ptr<Partition> log_;
  std::unique_ptr<Exposure> exposure_;
  std::string denied_;
};

}  // namespace ciuic::broker
