// Exposure over the real log on one thread: who gets what, until when, and when memory goes back.
#include "broker/exposure/exposure.h"

#include <gtest/gtest.h>

#include "tests/unit/log/support/log_world.h"
#include "transport/base/log.h"
#include "transport/kafka/messages/ciuic_onesided.h"
#include "transport/rdma/memory/memory.h"
#include "transport/rdma/registry.h"

namespace ciuic::broker {
namespace {

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

/// Another provider's memory, of other properties.
class Lenient final : public rdma::Provider {
 public:
  Lenient(std::shared_ptr<rdma::Provider> inner, rdma::Caps caps, bool crosses_hosts)
      : inner_(std::move(inner)), caps_(caps), crosses_hosts_(crosses_hosts) {}
  std::string_view name() const override { return "memory"; }
  const rdma::Caps& caps() const override { return caps_; }
  bool crosses_hosts() const override { return crosses_hosts_; }
  rdma::Result<std::shared_ptr<rdma::Domain>> open_domain(std::string principal) override {
    return inner_->open_domain(std::move(principal));
  }
  rdma::Result<std::unique_ptr<rdma::Listener>> listen(const rdma::ListenOptions& options) override {
    return inner_->listen(options);
  }
  rdma::Result<std::unique_ptr<rdma::Endpoint>> connect(const std::string& address, const rdma::Token& token,
                                                        const rdma::ConnectOptions& options) override {
    return inner_->connect(address, token, options);
  }

 private:
  std::shared_ptr<rdma::Provider> inner_;
  rdma::Caps caps_;
  bool crosses_hosts_;
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
  IoQueue registrar_ = world_.io.make_queue();
  std::shared_ptr<rdma::Provider> provider_ =
      rdma::make_memory_provider(fabric_, world_.clock, {GetParam(), [this]() -> std::optional<rdma::Fault> {
                                                           if (faults_left_ == 0) return std::nullopt;
                                                           --faults_left_;
                                                           return rdma::Fault::memlock_limit;
                                                         }});
  std::shared_ptr<Partition> log_;
  std::unique_ptr<Exposure> exposure_;
  std::string denied_;
};

TEST_P(ExposureTest, AGrantCoversTheLogInOrderWithoutAHole) {
  const auto session = connect().session_id;
  const auto response = grant(session, 7);
  const auto& one = only(response);
  ASSERT_EQ(one.error_code, ErrorCode::none);
  ASSERT_FALSE(one.chunks.empty());
  EXPECT_LE(one.chunks.front().base_offset, 7);
  for (std::size_t i = 1; i < one.chunks.size(); ++i)
    EXPECT_EQ(one.chunks[i].base_offset, one.chunks[i - 1].next_offset);
  EXPECT_EQ(one.high_watermark, 200);
  EXPECT_EQ(exposure_->metrics().grants.load(), 1);
}

TEST_P(ExposureTest, OnlyWhoMayReadIsGrantedAndRenewed) {
  const auto session = connect().session_id;
  const auto granted = grant(session, 0);
  EXPECT_EQ(renew(session, only(granted).grant_id), ErrorCode::none);
  denied_ = "User:a";
  EXPECT_EQ(only(grant(session, 0)).error_code, ErrorCode::topic_authorization_failed);
  EXPECT_EQ(renew(session, only(granted).grant_id), ErrorCode::topic_authorization_failed);
  denied_.clear();
  EXPECT_EQ(renew(session, only(granted).grant_id), ErrorCode::invalid_fetch_session_epoch)
      << "a denied lease does not come back";
}

TEST_P(ExposureTest, ASessionIsOfItsPrincipalAlone) {
  const auto session = connect().session_id;
  EXPECT_EQ(grant(session, 0, "User:mallory").error_code, ErrorCode::fetch_session_id_not_found);
  EXPECT_EQ(renew(session, 1, 0, "User:mallory"), ErrorCode::fetch_session_id_not_found);
  EXPECT_EQ(exposure_->metrics().refusals[static_cast<std::size_t>(RefusalReason::foreign_session)].load(), 2);
}

TEST_P(ExposureTest, SessionsAndGrantsAreCapped) {
  const auto session = connect().session_id;
  EXPECT_EQ(connect("User:a", 2).error_code, ErrorCode::none);
  EXPECT_EQ(connect("User:a", 3).error_code, ErrorCode::none);
  EXPECT_EQ(connect("User:a", 4).error_code, ErrorCode::throttling_quota_exceeded);
  EXPECT_EQ(connect("User:b", 5).error_code, ErrorCode::none) << "others are not disturbed";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(only(grant(session, 0)).error_code, ErrorCode::none);
  EXPECT_EQ(only(grant(session, 0)).error_code, ErrorCode::throttling_quota_exceeded);
  EXPECT_EQ(only(grant(session, 0)).retry_after_ms, -1);
}

/// A client that can reach none of the addresses asks again, for hours.
TEST_P(ExposureTest, ASessionEndsWithTheNextOneOfItsConnection) {
  std::int64_t session = 0;
  for (int i = 0; i < 20; ++i) {
    session = connect().session_id;
    ASSERT_NE(session, 0) << i;
  }
  EXPECT_EQ(exposure_->metrics().sessions.load(), 1);
  const auto granted = grant(session, 0);
  const auto next = connect().session_id;
  EXPECT_EQ(renew(session, only(granted).grant_id), ErrorCode::fetch_session_id_not_found);
  EXPECT_EQ(only(grant(next, 0)).error_code, ErrorCode::none);
  world_.advance(Milliseconds(1500));
  EXPECT_EQ(exposure_->metrics().sessions.load(), 1) << "the first is gone when its leases are over";
}

TEST_P(ExposureTest, SlotsStayReadableNoLongerThanTheRight) {
  const auto connected = connect();
  auto endpoint =
      provider_->connect(connected.providers.at(0).address, *rdma::Token::from(connected.providers.at(0).token), {});
  ASSERT_TRUE(endpoint);
  const auto granted = grant(connected.session_id, 0);
  const rdma::RemoteSpan slot{static_cast<std::uint64_t>(only(granted).slot.address),
                              static_cast<std::uint32_t>(only(granted).slot.length),
                              static_cast<std::uint64_t>(only(granted).slot.key)};
  auto landing = (*endpoint)->make_landing(slot.length).value();
  const auto reads = [&] {
    const rdma::ReadRequest request{slot, landing->bytes(), 1};
    if (!(*endpoint)->post_reads(std::span(&request, 1))) return false;
    std::array<rdma::Completion, 1> done;
    const auto got = (*endpoint)->poll(done);
    return got && *got == 1 && !done[0].fault;
  };
  EXPECT_TRUE(reads());
  denied_ = "User:a";
  world_.advance(Milliseconds(700));
  denied_.clear();
  world_.advance(Milliseconds(3000));
  EXPECT_TRUE(reads()) << "taken away for a moment";
  denied_ = "User:a";
  world_.advance(Milliseconds(700));
  EXPECT_TRUE(reads()) << "what was granted runs out first";
  world_.advance(Milliseconds(1500));
  EXPECT_FALSE(reads());
}

TEST_P(ExposureTest, AProviderOfOneHostIsNotOfferedToAnother) {
  kafka::OneSidedConnectRequest request;
  request.providers = {"memory"};
  request.host_id = "elsewhere/0";
  const auto response = ask(&Exposure::connect, request);
  EXPECT_EQ(response.error_code, ErrorCode::unsupported_version);
  EXPECT_TRUE(response.providers.empty());
  EXPECT_EQ(exposure_->metrics().sessions.load(), 0);
}

TEST_P(ExposureTest, AProviderThatHostileReadersCouldBreakIsOfferedToTrustedOnesOnly) {
  const auto offers = [&](rdma::Caps caps, bool crosses_hosts, bool trusted) {
    Exposure::Parts parts;
    parts.settings.trusted_readers = trusted;
    parts.clock = &world_.clock;
    parts.home = &world_.executor;
    parts.executors = {&world_.executor};
    parts.providers = {std::make_shared<Lenient>(provider_, caps, crosses_hosts)};
    Exposure exposure(std::move(parts));
    kafka::OneSidedConnectRequest request;
    request.providers = {"memory"};
    request.host_id = rdma::host_id();
    std::size_t count = 0;
    exposure.connect({"User:a", 1}, request,
                     [&](const kafka::OneSidedConnectResponse& response) { count = response.providers.size(); });
    world_.settle();
    return count == 1;
  };
  const auto whole = provider_->caps();
  EXPECT_TRUE(offers(whole, true, false));
  for (const auto one :
       {&rdma::Caps::enforces_bounds, &rdma::Caps::enforces_read_only, &rdma::Caps::enforces_revocation}) {
    auto caps = whole;
    caps.*one = false;
    EXPECT_FALSE(offers(caps, true, false));
    EXPECT_TRUE(offers(caps, true, true));
    EXPECT_TRUE(offers(caps, false, false)) << "who is on this host may, as with shm";
  }
}

TEST_P(ExposureTest, ChunksGoBackOnlyWhenLeaseAndLongestReadAreOver) {
  const auto session = connect().session_id;
  const auto granted = grant(session, 0);
  ASSERT_EQ(only(granted).error_code, ErrorCode::none);
  const auto leased = exposure_->metrics().chunk_leases.load();
  ASSERT_GT(leased, 1);
  delete_all();
  const auto draining = exposure_->metrics().draining_chunks.load();
  EXPECT_GT(draining, 0);
  EXPECT_EQ(renew(session, only(granted).grant_id), ErrorCode::invalid_fetch_session_epoch)
      << "no renewal of what is wanted back";
  world_.advance(Milliseconds(1100));
  EXPECT_EQ(exposure_->metrics().draining_chunks.load(), draining) << "a READ may still be on its way";
  world_.advance(Milliseconds(150));
  EXPECT_EQ(exposure_->metrics().draining_chunks.load(), 0);
}

TEST_P(ExposureTest, AReleaseFreesAtOnce) {
  const auto session = connect().session_id;
  const auto granted = grant(session, 0);
  kafka::OneSidedReleaseRequest request;
  request.session_id = session;
  request.grant_ids = {only(granted).grant_id};
  EXPECT_EQ(ask(&Exposure::release, request).error_code, ErrorCode::none);
  EXPECT_EQ(exposure_->metrics().chunk_leases.load(), 0);
  if (!GetParam()) {
    EXPECT_EQ(exposure_->metrics().regions.load(), 0);
  }
  delete_all();
  EXPECT_EQ(exposure_->metrics().draining_chunks.load(), 0);
  EXPECT_LE(exposure_->metrics().regions.load(), kept_open_chunk());
}

TEST_P(ExposureTest, ARegistrationThatCostsStaysForTheNextGrantButNotWithoutRightOrSession) {
  if (!GetParam()) GTEST_SKIP() << "registering costs nothing here: nothing is kept";
  auto connected = connect();
  const auto release = [&](const kafka::OneSidedGrantResponse& granted) {
    kafka::OneSidedReleaseRequest request;
    request.session_id = connected.session_id;
    request.grant_ids = {only(granted).grant_id};
    (void)ask(&Exposure::release, request);
  };
  const auto first = grant(connected.session_id, 0);
  release(first);
  world_.advance(Milliseconds(5000));
  EXPECT_GT(exposure_->metrics().regions.load(), 0);
  const auto second = grant(connected.session_id, 0);
  EXPECT_EQ(only(second).chunks[0].key, only(first).chunks[0].key);
  release(second);
  denied_ = "User:a";
  world_.advance(Milliseconds(600));
  EXPECT_EQ(exposure_->metrics().regions.load(), 0) << "what it may not read is not left open";
  denied_.clear();

  const auto third = grant(connected.session_id, 0);
  EXPECT_NE(only(third).chunks[0].key, only(first).chunks[0].key);
  EXPECT_GT(exposure_->metrics().regions.load(), 0);
  exposure_->connection_closed(1);
  world_.advance(Milliseconds(2000));
  EXPECT_EQ(exposure_->metrics().sessions.load(), 0);
  EXPECT_EQ(exposure_->metrics().regions.load(), 0);
}

TEST_P(ExposureTest, KeptRegistrationsMakeRoomForOthers) {
  if (!GetParam()) GTEST_SKIP() << "registering costs nothing here: nothing is kept";
  const auto first = connect();
  const auto granted = grant(first.session_id, 0);
  kafka::OneSidedReleaseRequest request;
  request.session_id = first.session_id;
  request.grant_ids = {only(granted).grant_id};
  (void)ask(&Exposure::release, request);
  const auto kept = exposure_->metrics().regions.load();
  ASSERT_GT(kept, 1);
  const auto second = connect("User:b", 2);
  faults_left_ = 2;  // of the slots, and of the first chunk
  EXPECT_GT(only(grant(second.session_id, 0, "User:b")).retry_after_ms, 0);
  world_.settle();
  EXPECT_LT(exposure_->metrics().regions.load(), kept) << "the first's are gone";
  EXPECT_EQ(only(grant(second.session_id, 0, "User:b")).error_code, ErrorCode::none);
}

TEST_P(ExposureTest, APositionLetsEarlierChunksGo) {
  const auto session = connect().session_id;
  const auto granted = grant(session, 0);
  const auto before = exposure_->metrics().chunk_leases.load();
  ASSERT_GT(before, 1);
  EXPECT_EQ(renew(session, only(granted).grant_id, only(granted).chunks[0].next_offset), ErrorCode::none);
  EXPECT_EQ(exposure_->metrics().chunk_leases.load(), before - 1);
}

TEST_P(ExposureTest, AConnectionThatEndedIsCutWhenItsLeasesAreOver) {
  const auto connected = connect();
  const auto token = rdma::Token::from(connected.providers.at(0).token);
  auto endpoint = provider_->connect(connected.providers.at(0).address, *token, {});
  ASSERT_TRUE(endpoint);
  (void)grant(connected.session_id, 0);
  exposure_->connection_closed(1);
  world_.settle();
  std::array<rdma::Completion, 1> none;
  EXPECT_TRUE((*endpoint)->poll(none)) << "the lease it was told still holds";
  world_.advance(Milliseconds(1300));
  EXPECT_TRUE((*endpoint)->poll(none).has_error());
  EXPECT_EQ(exposure_->metrics().sessions.load(), 0);
  EXPECT_EQ(exposure_->metrics().grants.load(), 0);
}

TEST_P(ExposureTest, ARevokedPrincipalIsCutNow) {
  const auto connected = connect();
  auto endpoint =
      provider_->connect(connected.providers.at(0).address, *rdma::Token::from(connected.providers.at(0).token), {});
  ASSERT_TRUE(endpoint);
  (void)grant(connected.session_id, 0);
  exposure_->revoke_principal("User:a");
  world_.settle();
  std::array<rdma::Completion, 1> none;
  EXPECT_EQ((*endpoint)->poll(none).error(), rdma::Fault::peer_gone);
  EXPECT_EQ(exposure_->metrics().regions.load(), 0);
}

TEST_P(ExposureTest, AWaitEndsWhenTheLogGrowsOrTheTimeIsOver) {
  const auto session = connect().session_id;
  const auto granted = grant(session, 200);
  kafka::OneSidedWaitRequest request;
  request.session_id = session;
  request.max_wait_ms = 300;
  auto& one = request.partitions.emplace_back();
  one.grant_id = only(granted).grant_id;
  one.offset = 200;
  one.slot_version = 1000;
  std::optional<kafka::OneSidedWaitResponse> got;
  const auto wait = [&] {
    got.reset();
    exposure_->wait({"User:a", 2}, request, [&](kafka::OneSidedWaitResponse response) { got = std::move(response); });
    world_.settle();
  };
  wait();
  EXPECT_FALSE(got);
  world_.advance(Milliseconds(301));
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->ready.empty());
  wait();
  EXPECT_FALSE(got);
  fill(1);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->ready, std::vector<std::int64_t>{only(granted).grant_id});
  wait();
  EXPECT_TRUE(got) << "it is there already";
}

TEST_P(ExposureTest, OffsetsOutsideTheLogAreFetchsError) {
  const auto session = connect().session_id;
  EXPECT_EQ(only(grant(session, 201)).error_code, ErrorCode::offset_out_of_range);
  EXPECT_EQ(only(grant(session, -1)).error_code, ErrorCode::offset_out_of_range);
}

TEST_P(ExposureTest, ARegistrationThatFailsIsSaidAndTheNextGrantTriesAgain) {
  const auto session = connect().session_id;
  // What no lease covers is ended to make room; where that was done just now, it is said that it does not help.
  faults_left_ = 1;
  const auto later = grant(session, 0);
  EXPECT_EQ(only(later).error_code, ErrorCode::throttling_quota_exceeded);
  EXPECT_GT(only(later).retry_after_ms, 0);
  faults_left_ = 1;
  const auto refused = grant(session, 0);
  EXPECT_EQ(only(refused).error_code, ErrorCode::kafka_storage_error);
  EXPECT_LT(only(refused).retry_after_ms, 0) << "Fetch reads it meanwhile";
  EXPECT_EQ(exposure_->metrics().chunk_leases.load(), 0);
  const auto granted = grant(session, 0);
  EXPECT_EQ(only(granted).error_code, ErrorCode::none);
  EXPECT_FALSE(only(granted).chunks.empty());
}

TEST_P(ExposureTest, ManyReadersOfOneChunkShareItsRegistration) {
  const auto session = connect().session_id;
  int answered = 0;
  std::size_t chunks = 0;
  for (int i = 0; i < 3; ++i) {
    exposure_->grant({"User:a", 1}, asking_for(session, 0), [&](const kafka::OneSidedGrantResponse& response) {
      ++answered;
      EXPECT_EQ(only(response).error_code, ErrorCode::none);
      chunks = only(response).chunks.size();
    });
  }
  world_.settle();
  EXPECT_EQ(answered, 3);
  EXPECT_EQ(exposure_->metrics().regions.load(), static_cast<std::int64_t>(chunks));
}

TEST_P(ExposureTest, ChunksWantedBackWhileTheyAreBeingRegisteredGoBack) {
  // At every moment of the registration, by seed: the log deletes all, and nothing stays registered or draining.
  const auto session = connect().session_id;
  for (int steps = 0; steps < 30; ++steps) {
    fill(10);
    std::optional<kafka::OneSidedGrantResponse> got;
    exposure_->grant({"User:a", 1}, asking_for(session, log_->log_start_offset().value),
                     [&](kafka::OneSidedGrantResponse response) { got = std::move(response); });
    for (int i = 0; i < steps; ++i) (void)world_.step();
    delete_all();
    ASSERT_TRUE(got) << steps;
    if (only(*got).grant_id != 0 && only(*got).error_code == ErrorCode::none) {
      kafka::OneSidedReleaseRequest release;
      release.session_id = session;
      release.grant_ids = {only(*got).grant_id};
      (void)ask(&Exposure::release, release);
    }
    world_.settle();
    EXPECT_EQ(exposure_->metrics().draining_chunks.load(), 0) << steps;
    EXPECT_EQ(exposure_->metrics().chunk_leases.load(), 0) << steps;
    EXPECT_LE(exposure_->metrics().regions.load(), kept_open_chunk()) << steps;
  }
}

INSTANTIATE_TEST_SUITE_P(, ExposureTest, ::testing::Bool(),
                         [](const auto& elsewhere) { return elsewhere.param ? "RegisteringElsewhere" : "AtOnce"; });

}  // namespace
}  // namespace ciuic::broker
