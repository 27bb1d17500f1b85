// Exposure over the real log on one thread: who gets what, until when, and when memory goes back.
#include "tests/unit/exposure/exposure_world.h"

namespace ciuic::broker {
namespace {

/// A listener that readers come to by so many devices.
class ManyDevices final : public rdma::Listener {
 public:
  ManyDevices(std::unique_ptr<rdma::Listener> inner, std::size_t devices)
      : inner_(std::move(inner)), devices_(devices) {}
  std::string address() const override { return inner_->address(); }
  void admit(const rdma::Token& token, std::shared_ptr<rdma::Domain> domain, rdma::SessionId session,
             Clock::TimePoint until) override {
    inner_->admit(token, std::move(domain), session, until);
  }
  void disconnect(rdma::SessionId session) override { inner_->disconnect(session); }
  std::size_t devices() const override { return devices_; }
  std::size_t connections() const override { return inner_->connections(); }

 private:
  std::unique_ptr<rdma::Listener> inner_;
  std::size_t devices_;
};

/// Another provider's memory, of other properties.
class Lenient final : public rdma::Provider {
 public:
  Lenient(std::shared_ptr<rdma::Provider> inner, rdma::Caps caps, bool crosses_hosts, std::size_t devices = 1)
      : inner_(std::move(inner)), caps_(caps), crosses_hosts_(crosses_hosts), devices_(devices) {}
  std::string_view name() const override { return "memory"; }
  const rdma::Caps& caps() const override { return caps_; }
  bool crosses_hosts() const override { return crosses_hosts_; }
  rdma::Result<std::shared_ptr<rdma::Domain>> open_domain(std::string principal) override {
    return inner_->open_domain(std::move(principal));
  }
  rdma::Result<std::unique_ptr<rdma::Listener>> listen(const rdma::ListenOptions& options) override {
    auto listener = inner_->listen(options);
    if (!listener) return listener.error();
    return std::unique_ptr<rdma::Listener>(std::make_unique<ManyDevices>(std::move(*listener), devices_));
  }
  rdma::Result<std::unique_ptr<rdma::Endpoint>> connect(const std::string& address, const rdma::Token& token,
                                                        const rdma::ConnectOptions& options) override {
    return inner_->connect(address, token, options);
  }

 private:
  std::shared_ptr<rdma::Provider> inner_;
  rdma::Caps caps_;
  bool crosses_hosts_;
  std::size_t devices_;
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

/// What was registered before a device came has no key for it, and the other way round.
/// A connection a device and a token a connection, all of one session.
TEST_P(ExposureTest, WhoReachesABrokerByTwoDevicesHasASecondToken) {
  for (const std::size_t devices : {1, 2}) {
    Exposure::Parts parts;
    parts.clock = &world_.clock;
    parts.home = &world_.executor;
    parts.executors = {&world_.executor};
    parts.providers = {std::make_shared<Lenient>(provider_, provider_->caps(), true, devices)};
    Exposure exposure(std::move(parts));
    kafka::OneSidedConnectRequest request;
    request.providers = {"memory"};
    request.host_id = rdma::host_id();
    kafka::OneSidedConnectResponse connected;
    exposure.connect({"User:a", 1}, request, [&](kafka::OneSidedConnectResponse response) { connected = response; });
    world_.settle();
    const auto& offer = connected.providers.at(0);
    EXPECT_EQ(rdma::Token::from(offer.second_token).has_value(), devices == 2);
    if (devices == 1) continue;
    EXPECT_NE(offer.token, offer.second_token);
    const auto first = provider_->connect(offer.address, *rdma::Token::from(offer.token), {});
    const auto second = provider_->connect(offer.address, *rdma::Token::from(offer.second_token), {});
    ASSERT_TRUE(first && second);
    EXPECT_FALSE(provider_->connect(offer.address, *rdma::Token::from(offer.second_token), {}).has_value());
    exposure.revoke_principal("User:a");
    world_.settle();
    std::array<rdma::Completion, 1> done;
    EXPECT_FALSE((*first)->poll(done).has_value());
    EXPECT_FALSE((*second)->poll(done).has_value());
  }
}

TEST_P(ExposureTest, SessionsOpenedAfterDevicesChangedReadByRegistrationsOfTheirOwn) {
  const auto before = connect();
  const auto old_grant = grant(before.session_id, 0);
  const auto regions = exposure_->metrics().regions.load();
  ++devices_;
  const auto after = connect("User:a", 2);
  const auto new_grant = grant(after.session_id, 0);
  ASSERT_EQ(only(new_grant).error_code, ErrorCode::none);
  EXPECT_EQ(exposure_->metrics().regions.load(), 2 * regions);
  EXPECT_NE(only(new_grant).slot.key, only(old_grant).slot.key);
  EXPECT_NE(only(new_grant).chunks.at(0).key, only(old_grant).chunks.at(0).key);
  EXPECT_EQ(only(grant(before.session_id, 0)).chunks.at(0).key, only(old_grant).chunks.at(0).key);

  const auto& offer = after.providers.at(0);
  const auto endpoint = provider_->connect(offer.address, *rdma::Token::from(offer.token), {}).value();
  const auto read = [&endpoint](const kafka::OneSidedGrantResponse& granted) {
    const auto& chunk = only(granted).chunks.at(0);
    const auto landing = endpoint->make_landing(64).value();
    const rdma::ReadRequest request{
        {static_cast<std::uint64_t>(chunk.address), 64, static_cast<std::uint64_t>(chunk.key)}, landing->bytes(), 1};
    EXPECT_TRUE(endpoint->post_reads(std::span(&request, 1)));
    std::array<rdma::Completion, 1> done;
    EXPECT_EQ(endpoint->poll(done).value(), 1U);
    return done[0].fault;
  };
  EXPECT_EQ(read(new_grant), std::nullopt);
  EXPECT_EQ(read(old_grant), rdma::Fault::access_error);

  exposure_->connection_closed(1);
  world_.settle();
  world_.advance(Milliseconds(1300));
  EXPECT_EQ(exposure_->metrics().regions.load(), GetParam() ? regions : 0) << "the old ones go with their session";
  const auto kept = only(grant(after.session_id, 0)).chunks.at(0).key;
  EXPECT_EQ(kept == only(new_grant).chunks.at(0).key, GetParam());
  exposure_->connection_closed(2);
  world_.settle();
  world_.advance(Milliseconds(1300));
  EXPECT_EQ(exposure_->metrics().regions.load(), 0);
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

/// A host that lost its power ends no TCP connection, and neither does a process that is frozen.
TEST_P(ExposureTest, AReaderThatSaysNothingHoldsNothing) {
  const auto connected = connect("User:b", 2);
  auto gone =
      provider_->connect(connected.providers.at(0).address, *rdma::Token::from(connected.providers.at(0).token), {});
  ASSERT_TRUE(gone);
  const auto granted = grant(connected.session_id, 0, "User:b");
  const auto never_connected = connect("User:b", 3);
  const auto held = exposure_->metrics().regions.load();
  ASSERT_GT(held, 0);
  const auto idle = connect();
  auto alive = provider_->connect(idle.providers.at(0).address, *rdma::Token::from(idle.providers.at(0).token), {});
  ASSERT_TRUE(alive);
  std::array<rdma::Completion, 1> none;
  for (int i = 0; i < 40; ++i) {
    EXPECT_TRUE((*gone)->poll(none)) << "a reader that is slow to connect or to come back is waited for: " << i;
    world_.advance(Milliseconds(250));
    kafka::OneSidedRenewRequest request;
    request.session_id = idle.session_id;
    ASSERT_EQ(ask(&Exposure::renew, request).error_code, ErrorCode::none) << "it has no grant, and says so: " << i;
    if (i == 5) {
      EXPECT_EQ(exposure_->metrics().grants.load(), 0) << "leases run out by themselves";
      EXPECT_EQ(exposure_->metrics().chunk_leases.load(), 0);
    }
  }
  world_.advance(Milliseconds(600));
  EXPECT_EQ((*gone)->poll(none).error(), rdma::Fault::peer_gone);
  EXPECT_TRUE((*alive)->poll(none));
  EXPECT_EQ(exposure_->metrics().sessions.load(), 1) << "the place among its principal's is free";
  EXPECT_EQ(exposure_->metrics().regions.load(), 0);
  EXPECT_EQ(renew(connected.session_id, only(granted).grant_id, 0, "User:b"), ErrorCode::fetch_session_id_not_found)
      << "it is told to connect again";
  EXPECT_EQ(grant(never_connected.session_id, 0, "User:b").error_code, ErrorCode::fetch_session_id_not_found);
  EXPECT_EQ(connect("User:b", 2).error_code, ErrorCode::none);
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

/// What two grants at the end of one log wait for.
class ExposureWaits : public ExposureTest {
 protected:
  struct Named {
    std::int64_t grant, offset;
  };
  /// The answer stays in the place that is given back until there is one.
  std::shared_ptr<std::optional<std::vector<std::int64_t>>> wait(bool keeps, const std::vector<Named>& named) {
    kafka::OneSidedWaitRequest request;
    request.session_id = session_;
    request.max_wait_ms = 60'000;
    request.keeps = keeps;
    for (const auto& [grant, offset] : named) {
      auto& one = request.partitions.emplace_back();
      one.grant_id = grant;
      one.offset = offset;
      one.slot_version = 1000;
    }
    auto place = std::make_shared<std::optional<std::vector<std::int64_t>>>();
    exposure_->wait({"User:a", 1}, request,
                    [place](kafka::OneSidedWaitResponse response) { *place = std::move(response.ready); });
    world_.settle();
    return place;
  }
  void release(std::int64_t grant) {
    kafka::OneSidedReleaseRequest request;
    request.session_id = session_;
    request.grant_ids = {grant};
    EXPECT_EQ(ask(&Exposure::release, request).error_code, ErrorCode::none);
  }
  using Ready = std::vector<std::int64_t>;
  void SetUp() override {
    ExposureTest::SetUp();
    session_ = connect().session_id;
    a_ = only(grant(session_, 200)).grant_id;
    b_ = only(grant(session_, 200)).grant_id;
  }
  std::int64_t session_ = 0, a_ = 0, b_ = 0;
};

TEST_P(ExposureWaits, OneThatKeepsWaitsForWhatTheOnesBeforeNamed) {
  const auto first = wait(false, {{a_, 200}});
  const auto second = wait(true, {{b_, 207}});
  EXPECT_EQ(*first, Ready{}) << "the second ends the first";
  ASSERT_FALSE(*second);
  fill(1);  // to 205
  EXPECT_EQ(*second, Ready{a_});
  fill(1);
  const auto third = wait(true, {});
  EXPECT_EQ(*third, Ready{b_}) << "ready between two waits";
  const auto fourth = wait(true, {});
  fill(1);
  EXPECT_FALSE(*fourth) << "what was told is not waited for";
}

TEST_P(ExposureWaits, OneThatDoesNotKeepForgets) {
  (void)wait(true, {{a_, 200}});
  const auto second = wait(false, {{b_, 207}});
  fill(1);
  EXPECT_FALSE(*second);
  fill(1);
  EXPECT_EQ(*second, Ready{b_});
}

TEST_P(ExposureWaits, WhatIsReleasedIsWaitedForNoLonger) {
  const auto waiting = wait(true, {{a_, 200}, {b_, 207}});
  release(a_);
  fill(1);
  EXPECT_FALSE(*waiting);
  fill(1);
  EXPECT_EQ(*waiting, Ready{b_});
}

TEST_P(ExposureWaits, WhatIsNamedAgainAndAgainIsWaitedForOnceAndAsItWasNamedLast) {
  for (int i = 0; i < 1000; ++i) (void)wait(true, {{a_, 200}, {b_, 200}, {b_, 200}});
  const auto last = wait(true, {{a_, 207}});
  fill(1);
  EXPECT_EQ(*last, Ready{b_});
  const auto then = wait(true, {});
  fill(1);
  EXPECT_EQ(*then, Ready{a_});
}

INSTANTIATE_TEST_SUITE_P(, ExposureWaits, ::testing::Bool(),
                         [](const auto& elsewhere) { return elsewhere.param ? "RegisteringElsewhere" : "AtOnce"; });

TEST_P(ExposureTest, OffsetsOutsideTheLogAreFetchsError) {
  const auto session = connect().session_id;
  EXPECT_EQ(only(grant(session, 201)).error_code, ErrorCode::offset_out_of_range);
  EXPECT_EQ(only(grant(session, -1)).error_code, ErrorCode::offset_out_of_range);
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
