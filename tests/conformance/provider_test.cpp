// The contract of transport/rdma/provider.h, held over every provider. What one does not enforce it declares, and the
// declaration is checked: such a test is skipped with the reason, and the number of skips is part of the suite.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include <set>
#include <thread>

#include "tests/conformance/support/fake_device.h"
#include "tests/conformance/support/pair.h"

namespace ciuic::testing {
namespace {

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  while (::readdir(dir)) ++count;
  ::closedir(dir);
  return count;
}

class Conformance : public ::testing::TestWithParam<Subject> {
 protected:
  Conformance() : pair_(GetParam()) {}
  const Caps& caps() const { return pair_.provider->caps(); }
  /// How a READ that the broker's side refuses ends.
  static Fault refused() { return GetParam().silent_refusals ? Fault::qp_in_error : Fault::access_error; }
  Pair pair_;
};

TEST_P(Conformance, CapsAreUsable) {
  EXPECT_NE(caps().enforces_read_only, GetParam().trusted_readers);
  EXPECT_GE(caps().read_bytes_max, 1U << 20);
  EXPECT_GE(caps().reads_outstanding_max, 1U);
  EXPECT_EQ(caps().maps_remote, pair_.endpoint->mapper() != nullptr);
}

TEST_P(Conformance, ReadsDeliverTheExposedBytes) {
  const auto remote = pair_.region->remote();
  for (const std::uint32_t length : {1U, 64U, 100U, 4096U, 65536U, 262144U}) {
    const auto span = remote.sub(0, length);
    const auto bytes = pair_.read(*pair_.endpoint, *span);
    ASSERT_TRUE(bytes) << name(bytes.error());
    EXPECT_TRUE(pair_.holds(*bytes, 0)) << length;
  }
  const auto tail = pair_.read(*pair_.endpoint, *remote.sub(remote.length - 17, 17));
  ASSERT_TRUE(tail);
  EXPECT_TRUE(pair_.holds(*tail, remote.length - 17));
}

TEST_P(Conformance, ReadsLandInTheCallersMemory) {
  // Page by page: what is not the caller's stays as it was.
  constexpr std::size_t page = 4096, size = 64U << 10;
  Memfd memory(size + 2 * page);
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{0xEE});
  const auto mine = memory.bytes().subspan(page, size);
  auto& endpoint = *pair_.endpoint;
  auto landing = endpoint.register_landing({mine});
  if (!landing && landing.error() == Fault::not_registrable)
    GTEST_SKIP() << GetParam().name << " does not read into a caller's memory";
  ASSERT_TRUE(landing) << name(landing.error());
  ASSERT_EQ((*landing)->bytes().data(), mine.data());
  ASSERT_EQ((*landing)->bytes().size(), size);
  const auto remote = pair_.region->remote();
  for (const auto& [at, length] :
       {std::pair(0U, 64U), {100U, 1U}, {size - 4096U, 4096U}, {0U, static_cast<unsigned>(size)}}) {
    const ReadRequest request{*remote.sub(0, static_cast<std::uint32_t>(length)), mine.subspan(at, length), 7};
    ASSERT_TRUE(endpoint.post_reads(std::span(&request, 1)));
    ASSERT_FALSE(Pair::complete(endpoint));
    for (std::size_t i = 0; i < length; ++i)
      ASSERT_EQ(mine[at + i], Pair::pattern(Pair::exposed_at + i)) << at << " " << i;
  }
  for (std::size_t i = 0; i < page; ++i)
    ASSERT_TRUE(memory.bytes()[i] == std::byte{0xEE} && memory.bytes()[page + size + i] == std::byte{0xEE}) << i;
  // Own landings and the caller's side by side; the caller's may go before the connection, or after it.
  const auto own = pair_.read(endpoint, *remote.sub(0, 100));
  ASSERT_TRUE(own);
  EXPECT_TRUE(pair_.holds(*own, 0));
  // The same memory again, and parts of it: each is there until its own end.
  auto again = endpoint.register_landing({mine});
  auto part = endpoint.register_landing({mine.subspan(page, page)});
  ASSERT_TRUE(again && part);
  const auto lands = [&](std::size_t at, std::uint32_t length) {
    std::fill(mine.begin(), mine.end(), std::byte{0xEE});
    const ReadRequest request{*remote.sub(0, length), mine.subspan(at, length), 7};
    ASSERT_TRUE(endpoint.post_reads(std::span(&request, 1)));
    ASSERT_FALSE(Pair::complete(endpoint));
    for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(mine[at + i], Pair::pattern(Pair::exposed_at + i)) << at + i;
  };
  lands(page + 1, page - 1);
  lands(2 * page - 64, 128);  // past the part's end
  landing->reset();
  lands(0, size);
  again->reset();
  lands(page, page);
  endpoint.close();
}

TEST_P(Conformance, MemoryOfADeviceIsTakenOrRefusedInWords) {
  // Addresses that the CPU cannot follow, and a descriptor that is a dma-buf to nobody but the reference.
  FakeDevice device(64U << 10);
  const auto span = device.memory();
  auto shared = device.dma_buf(span).value();
  LandingMemory memory{
      {reinterpret_cast<std::byte*>(span.address), span.bytes}, false, shared.descriptor.get(), shared.offset};
  auto& endpoint = *pair_.endpoint;
  for (const bool with : {true, false}) {
    if (!with) memory.dma_buf = -1;
    auto landing = endpoint.register_landing(memory);
    if (!landing) {
      EXPECT_EQ(landing.error(), Fault::not_registrable) << name(landing.error());
      continue;
    }
    EXPECT_TRUE(with);
    const ReadRequest request{*pair_.region->remote().sub(0, 4096), (*landing)->bytes().subspan(1000, 4096), 7};
    ASSERT_TRUE(endpoint.post_reads(std::span(&request, 1)));
    ASSERT_FALSE(Pair::complete(endpoint));
    const auto landed = device.see((*landing)->bytes().subspan(1000, 4096));
    EXPECT_TRUE(pair_.holds(Buffer(landed.begin(), landed.end()), 0));
  }
  // Whatever the answer was, the connection is as good as before.
  EXPECT_TRUE(pair_.read(endpoint, *pair_.region->remote().sub(0, 64)));
}

TEST_P(Conformance, ReadsFrom64BytesTo64MiB) {
  const auto large = std::make_shared<Memfd>(64U << 20);
  for (std::size_t i = 0; i < large->bytes().size(); i += 4096) large->bytes()[i] = Pair::pattern(i);
  const auto region = pair_.domain->expose(large->part(large, 0, 64U << 20));
  ASSERT_TRUE(region);
  for (std::uint32_t length = 64; length <= (64U << 20); length *= 16) {
    const auto bytes = pair_.read(*pair_.endpoint, *region->remote().sub(0, length));
    ASSERT_TRUE(bytes) << length;
    for (std::size_t i = 0; i < length; i += 4096) ASSERT_EQ((*bytes)[i], Pair::pattern(i)) << length << " at " << i;
  }
}

TEST_P(Conformance, AReadSeesWhatTheBrokerWroteLast) {
  const auto span = *pair_.region->remote().sub(0, 64);
  for (int round = 0; round < 100; ++round) {
    pair_.memory->bytes()[Pair::exposed_at] = static_cast<std::byte>(round);
    const auto bytes = pair_.read(*pair_.endpoint, span);
    ASSERT_TRUE(bytes);
    ASSERT_EQ((*bytes)[0], static_cast<std::byte>(round));
  }
}

TEST_P(Conformance, AReadPastTheEndDeliversNothing) {
  const auto remote = pair_.region->remote();
  const auto read = pair_.read(*pair_.endpoint, {remote.address + remote.length - 8, 16, remote.key});
  ASSERT_TRUE(read.has_error());
  EXPECT_EQ(outcome_of(read.error()), Outcome::reconnect);
  EXPECT_TRUE(pair_.untouched);
}

TEST_P(Conformance, OutOfBoundsReadsAreRefusedWhereverTheyPoint) {
  const auto remote = pair_.region->remote();
  const RemoteSpan bad[] = {{remote.address - 1, 16, remote.key},
                            {remote.address + remote.length, 1, remote.key},
                            {remote.address + (1U << 20), 64, remote.key},
                            {~0ULL - 8, 64, remote.key},
                            // Where spans are named by their offset, that is a region's beginning.
                            {remote.address == 0 ? 1ULL << 40 : 0, 64, remote.key},
                            {remote.address, 64, remote.key ^ 1},
                            {remote.address, 64, 0},
                            {remote.address, 64, ~0ULL}};
  for (const auto& span : bad) {
    auto endpoint = pair_.connect();
    ASSERT_TRUE(endpoint);
    const auto read = pair_.read(**endpoint, span);
    ASSERT_TRUE(read.has_error()) << span.address << " " << span.key;
    EXPECT_EQ(outcome_of(read.error()), Outcome::reconnect);
    EXPECT_TRUE(pair_.untouched);
  }
}

TEST_P(Conformance, BoundsHoldAgainstAHostilePeer) {
  if (!caps().enforces_bounds)
    GTEST_SKIP() << GetParam().name << " declares: bounds are the endpoint's, not the memory's";
  const auto remote = pair_.region->remote();
  EXPECT_TRUE(pair_.read(*pair_.endpoint, {remote.address, remote.length + 1, remote.key}).has_error());
}

TEST_P(Conformance, AnAccessErrorEndsTheEndpointAndItsPendingReads) {
  const auto remote = pair_.region->remote();
  auto landing = pair_.endpoint->make_landing(8 * 64).value();
  std::vector<ReadRequest> batch;
  for (std::uint32_t i = 0; i < 8; ++i) {
    auto span = *remote.sub(i * 64, 64);
    if (i == 2) span.key ^= 1;
    batch.push_back({span, landing->bytes().subspan(i * 64, 64), i});
  }
  ASSERT_EQ(pair_.endpoint->post_reads(batch).value(), 8U);
  std::array<Completion, 8> done;
  std::size_t have = 0;
  while (have < 8) {
    const auto got = pair_.endpoint->poll(std::span(done).subspan(have));
    ASSERT_TRUE(got);
    have += *got;
  }
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(done[i].id, i) << "completions come in the order posted";
    if (i < 2) {
      // Soft-iWARP may end a connection before it has sent the answers to what came before; of two connections the
      // other one may be behind.
      EXPECT_TRUE(!done[i].fault || GetParam().soft_iwarp || GetParam().striped);
    } else if (!GetParam().striped || (!done[0].fault && !done[1].fault)) {
      EXPECT_EQ(done[i].fault, i == 2 ? refused() : Fault::qp_in_error);
    } else {
      EXPECT_TRUE(done[i].fault);
    }
  }
  EXPECT_TRUE(pair_.endpoint->post_reads(std::span(batch).first(1)).has_error());
  EXPECT_TRUE(pair_.endpoint->poll(done).has_error());
  // Others of the same principal go on, and so does a new connection.
  auto again = pair_.connect();
  ASSERT_TRUE(again);
  EXPECT_TRUE(pair_.read(**again, *remote.sub(0, 64)));
}

TEST_P(Conformance, AnotherPrincipalsKeyOpensNothing) {
  auto mallory = pair_.provider->open_domain("User:mallory").value();
  auto endpoint = pair_.connect(pair_.admitted(2, mallory));
  ASSERT_TRUE(endpoint);
  const auto read = pair_.read(**endpoint, *pair_.region->remote().sub(0, 64));
  ASSERT_TRUE(read.has_error());
  EXPECT_EQ(outcome_of(read.error()), Outcome::reconnect);
  EXPECT_TRUE(pair_.untouched);
}

TEST_P(Conformance, TheSameMemoryHasAnotherKeyInEachDomainAndEachTime) {
  auto bob = pair_.provider->open_domain("User:bob").value();
  const auto part = pair_.memory->part(pair_.memory, Pair::exposed_at, Pair::exposed_bytes);
  std::set<std::uint64_t> keys{pair_.region->remote().key};
  std::vector<Region> regions;
  for (int i = 0; i < 20; ++i) {
    regions.push_back((i % 2 ? bob : pair_.domain)->expose(part).value());
    EXPECT_TRUE(keys.insert(regions.back().remote().key).second);
  }
}

TEST_P(Conformance, AKeyThatWasRevokedOpensNothingNew) {
  const auto remote = pair_.region->remote();
  ASSERT_TRUE(pair_.region->revoke());
  // A connection that never saw the key cannot learn it any more, over any provider.
  auto fresh = pair_.connect();
  ASSERT_TRUE(fresh);
  const auto read = pair_.read(**fresh, *remote.sub(0, 64));
  ASSERT_TRUE(read.has_error());
  EXPECT_EQ(outcome_of(read.error()), Outcome::reconnect);
}

TEST_P(Conformance, AfterRevocationNoReadDelivers) {
  if (!caps().enforces_revocation) GTEST_SKIP() << GetParam().name << " declares: a mapping outlives its revocation";
  const auto remote = pair_.region->remote();
  ASSERT_TRUE(pair_.read(*pair_.endpoint, *remote.sub(0, 64)));
  ASSERT_TRUE(pair_.region->revoke());
  const auto read = pair_.read(*pair_.endpoint, *remote.sub(0, 64));
  ASSERT_TRUE(read.has_error());
  EXPECT_EQ(read.error(), refused());
  EXPECT_TRUE(pair_.untouched);
}

TEST_P(Conformance, MemoryReusedAfterRevocationIsNeverSeenByAReadInFlight) {
  if (!caps().enforces_revocation) GTEST_SKIP() << GetParam().name << " declares: a late reader may see newer bytes";
  const auto remote = pair_.region->remote();
  auto landing = pair_.endpoint->make_landing(4096).value();
  std::fill(landing->bytes().begin(), landing->bytes().end(), std::byte{0xEE});
  const ReadRequest request{*remote.sub(0, 4096), landing->bytes(), 1};
  ASSERT_TRUE(pair_.endpoint->post_reads(std::span(&request, 1)));
  ASSERT_TRUE(pair_.region->revoke());
  for (std::size_t i = 0; i < 4096; ++i)
    pair_.memory->bytes()[Pair::exposed_at + i] = ~Pair::pattern(Pair::exposed_at + i);
  (void)Pair::complete(*pair_.endpoint);
  // It may have been quicker than the revocation: then it has the old bytes.
  for (std::size_t i = 0; i < 4096; ++i) {
    const auto byte = landing->bytes()[i];
    ASSERT_TRUE(byte == std::byte{0xEE} || byte == Pair::pattern(Pair::exposed_at + i)) << i;
  }
}

TEST_P(Conformance, AnotherRegionLivesOnWhenOneIsRevoked) {
  const auto other = pair_.domain->expose(pair_.memory->part(pair_.memory, 0, 4096)).value();
  ASSERT_TRUE(pair_.read(*pair_.endpoint, *other.remote().sub(0, 64)));
  ASSERT_TRUE(pair_.region->revoke());
  EXPECT_TRUE(pair_.read(*pair_.endpoint, *other.remote().sub(64, 64)));
}

TEST_P(Conformance, ATokenOpensOneConnection) {
  const auto token = pair_.admitted();
  auto first = pair_.connect(token);
  ASSERT_TRUE(first);
  const auto replayed = pair_.connect(token);
  ASSERT_TRUE(replayed.has_error());
  EXPECT_EQ(replayed.error(), Fault::refused);
  EXPECT_TRUE(pair_.read(**first, *pair_.region->remote().sub(0, 64)));
}

TEST_P(Conformance, ATokenShownTwiceAtOnceOpensOneConnection) {
  for (int round = 0; round < 5; ++round) {
    const auto token = pair_.admitted(2);
    std::array<Result<std::unique_ptr<Endpoint>>, 2> both{Fault::would_block, Fault::would_block};
    std::array<std::thread, 2> threads;
    for (std::size_t i = 0; i < both.size(); ++i) threads[i] = std::thread([&, i] { both[i] = pair_.connect(token); });
    for (auto& one : threads) one.join();
    ASSERT_NE(both[0].has_value(), both[1].has_value()) << round;
    EXPECT_EQ(both[both[0] ? 1 : 0].error(), Fault::refused);
    EXPECT_TRUE(pair_.read(*both[both[0] ? 0 : 1].value(), *pair_.region->remote().sub(0, 64)));
  }
}

TEST_P(Conformance, ATokenOfAnotherListenerOpensNothing) {
  const TemporaryFolder folder;
  ListenOptions options;
  options.runtime_dir = folder.path();
  options.address = GetParam().listen;
  const auto other = pair_.provider->listen(options);
  ASSERT_TRUE(other) << name(other.error());
  const auto token = Token::random();
  (*other)->admit(token, pair_.domain, 2, system_clock().now() + std::chrono::seconds(30));
  EXPECT_EQ(pair_.connect(token).error(), Fault::refused);
  const auto endpoint = pair_.provider->connect((*other)->address(), token, pair_.options);
  ASSERT_TRUE(endpoint) << "where it was given out it is good still: " << name(endpoint.error());
}

TEST_P(Conformance, UnknownAndExpiredTokensAreRefused) {
  EXPECT_EQ(pair_.connect(Token::random()).error(), Fault::refused);
  EXPECT_EQ(pair_.connect(Token{}).error(), Fault::refused);
  const auto late = Token::random();
  pair_.listener->admit(late, pair_.domain, 1, system_clock().now() - std::chrono::seconds(1));
  EXPECT_EQ(pair_.connect(late).error(), Fault::refused);
}

TEST_P(Conformance, NobodyListeningIsSaid) {
  EXPECT_EQ(pair_.provider->connect(pair_.folder.path() + "/nobody", Token::random(), {}).error(),
            Fault::address_unreachable);
  EXPECT_EQ(pair_.provider->connect("", Token::random(), {}).error(), Fault::address_unreachable);
  EXPECT_EQ(pair_.provider->connect(std::string(500, 'x'), Token::random(), {}).error(), Fault::address_unreachable);
}

TEST_P(Conformance, ASessionThatIsCutHearsIt) {
  auto other = pair_.connect(2);
  ASSERT_TRUE(other);
  ASSERT_TRUE(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64)));
  const auto unused = pair_.admitted(1);
  pair_.listener->disconnect(1);
  std::array<Completion, 1> none;
  ASSERT_TRUE(Pair::soon([&] { return pair_.endpoint->poll(none).has_error(); }));
  EXPECT_EQ(pair_.endpoint->poll(none).error(), Fault::peer_gone);
  EXPECT_TRUE(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64)).has_error());
  EXPECT_EQ(pair_.connect(unused).error(), Fault::refused);
  EXPECT_TRUE(pair_.read(**other, *pair_.region->remote().sub(0, 64))) << "the other session reads on";
}

TEST_P(Conformance, ABrokerThatStopsIsNoticed) {
  pair_.listener.reset();
  std::array<Completion, 1> none;
  EXPECT_TRUE(Pair::soon([&] { return pair_.endpoint->poll(none).has_error(); }));
}

TEST_P(Conformance, ConnectionsOfAPrincipalAreCapped) {
  if (GetParam().soft_iwarp) GTEST_SKIP() << "soft-iWARP has not as many queue pairs";
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (int i = 0; i < 20; ++i) {
    auto one = pair_.connect();
    if (one) endpoints.push_back(std::move(*one));
  }
  EXPECT_EQ(endpoints.size(), GetParam().striped ? 3U : 7U) << "8 allowed, one was there";
  auto bob = pair_.provider->open_domain("User:bob").value();
  EXPECT_TRUE(pair_.connect(pair_.admitted(2, bob))) << "others are not disturbed";
  endpoints.clear();
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() <= pair_.connections_of_one(); }));
  EXPECT_TRUE(pair_.connect());
}

TEST_P(Conformance, AStormOfConnectsLeaksNoDescriptor) {
  ASSERT_TRUE(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64)));
  const auto before = open_descriptors();
  // Where a connection costs a tenth of a second, under a sanitizer, fewer are a storm.
  const auto enough = system_clock().now() + std::chrono::seconds(20);
  for (int i = 0; i < 300 && (i < 60 || system_clock().now() < enough); ++i) {
    auto one = pair_.connect();
    if (one && i % 2) (void)pair_.read(**one, *pair_.region->remote().sub(0, 64));
    if (i % 3 == 0) (void)pair_.connect(Token::random());
  }
  EXPECT_TRUE(Pair::soon([&] {
    return pair_.listener->connections() == pair_.connections_of_one() && open_descriptors() <= before;
  })) << open_descriptors()
      << " " << before;
  EXPECT_TRUE(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64)));
}

TEST_P(Conformance, ManyReadsAreOutstandingUpToTheLimitAndNoFurther) {
  const auto most = caps().reads_outstanding_max;
  auto landing = pair_.endpoint->make_landing(64 * (most + 10)).value();
  std::vector<ReadRequest> batch;
  for (std::uint32_t i = 0; i < most + 10; ++i)
    batch.push_back({*pair_.region->remote().sub(i % 1000 * 64, 64), landing->bytes().subspan(i * 64, 64), i});
  ASSERT_EQ(pair_.endpoint->post_reads(batch).value(), most);
  EXPECT_EQ(pair_.endpoint->post_reads(std::span(batch).subspan(most)).error(), Fault::would_block);
  std::vector<Completion> done(most + 10);
  std::size_t have = 0;
  while (have < most) {
    const auto got = pair_.endpoint->poll(std::span(done).subspan(have));
    ASSERT_TRUE(got);
    have += *got;
  }
  ASSERT_EQ(pair_.endpoint->post_reads(std::span(batch).subspan(most)).value(), 10U);
  while (have < most + 10) have += pair_.endpoint->poll(std::span(done).subspan(have)).value();
  for (std::uint32_t i = 0; i < most + 10; ++i) {
    EXPECT_EQ(done[i].id, i);
    EXPECT_FALSE(done[i].fault);
    ASSERT_EQ(landing->bytes()[i * 64], Pair::pattern(Pair::exposed_at + i % 1000 * 64));
  }
}

/// Neighbours in the log land far from each other, of any length, in any order, and nothing between them is touched.
TEST_P(Conformance, ABatchScattersIntoManyPlaces) {
  struct Piece {
    std::uint32_t from, length;
    std::size_t landing, at;
  };
  constexpr std::size_t landings = 16, landing_bytes = 64U << 10, gap = 3;
  std::vector<std::unique_ptr<Landing>> all;
  for (std::size_t i = 0; i < landings; ++i) {
    all.push_back(pair_.endpoint->make_landing(landing_bytes).value());
    std::fill(all.back()->bytes().begin(), all.back()->bytes().end(), std::byte{0xEE});
  }
  std::vector<Piece> pieces;
  std::array<std::size_t, landings> used{};
  std::uint32_t from = 0;
  for (std::uint32_t i = 0; i < 600; ++i) {
    const std::uint32_t length = 1 + i * 37 % 700;
    const auto landing = i * 7 % landings;
    ASSERT_LE(used[landing] + length + gap, landing_bytes);
    pieces.push_back({from, length, landing, used[landing]});
    used[landing] += length + gap;
    from = (from + length) % (Pair::exposed_bytes - 1000);
  }
  std::vector<ReadRequest> batch;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& one = pieces[i * 389 % pieces.size()];
    batch.push_back(
        {*pair_.region->remote().sub(one.from, one.length), all[one.landing]->bytes().subspan(one.at, one.length), i});
  }
  std::array<Completion, 64> done;
  for (std::size_t posted = 0, completed = 0; completed < batch.size();) {
    if (posted < batch.size()) {
      const auto took = pair_.endpoint->post_reads(std::span(batch).subspan(posted));
      ASSERT_TRUE(took || took.error() == Fault::would_block);
      if (took) posted += *took;
    }
    const auto got = pair_.endpoint->poll(done);
    ASSERT_TRUE(got);
    for (std::size_t i = 0; i < *got; ++i) {
      ASSERT_EQ(done[i].id, completed++);
      ASSERT_FALSE(done[i].fault);
    }
  }
  for (const auto& one : pieces) {
    const auto bytes = all[one.landing]->bytes().subspan(one.at, one.length + gap);
    ASSERT_TRUE(pair_.holds(Buffer(bytes.begin(), bytes.begin() + one.length), one.from)) << one.from;
    for (std::size_t i = one.length; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], std::byte{0xEE});
  }
}

TEST_P(Conformance, AReadOfNothingIsHarmless) {
  const auto read = pair_.read(*pair_.endpoint, {pair_.region->remote().address, 0, pair_.region->remote().key});
  EXPECT_TRUE(read);
}

TEST_P(Conformance, ARequestThatDoesNotFitItsDestinationIsRefused) {
  auto landing = pair_.endpoint->make_landing(64).value();
  const ReadRequest bad{*pair_.region->remote().sub(0, 128), landing->bytes(), 1};
  EXPECT_TRUE(pair_.endpoint->post_reads(std::span(&bad, 1)).has_error() ||
              Pair::complete(*pair_.endpoint).has_value());
}

TEST_P(Conformance, CloseIsFinalAndMayBeRepeated) {
  auto landing = pair_.endpoint->make_landing(64).value();
  const ReadRequest request{*pair_.region->remote().sub(0, 64), landing->bytes(), 1};
  ASSERT_TRUE(pair_.endpoint->post_reads(std::span(&request, 1)));
  pair_.endpoint->close();
  pair_.endpoint->close();
  EXPECT_TRUE(pair_.endpoint->post_reads(std::span(&request, 1)).has_error());
  std::array<Completion, 1> none;
  EXPECT_TRUE(pair_.endpoint->poll(none).has_error());
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == 0; }));
}

/// A reader may sleep between a READ and its completion, and while a peer dies.
TEST_P(Conformance, WhatItArmsWakesAWaiterForACompletionAndForTheEnd) {
  auto& endpoint = *pair_.endpoint;
  if (endpoint.arm() < 0) GTEST_SKIP() << GetParam().name << " declares: has nothing to wait on";
  auto landing = endpoint.make_landing(4096).value();
  std::array<Completion, 1> one;
  for (std::uint64_t round = 0; round < 50; ++round) {
    const ReadRequest request{*pair_.region->remote().sub(0, 4096), landing->bytes(), round};
    ASSERT_TRUE(endpoint.post_reads(std::span(&request, 1)));
    for (int waits = 0;; ++waits) {
      ASSERT_LT(waits, 100) << "woken for nothing";
      pollfd ready{endpoint.arm(), POLLIN, 0};
      const auto got = endpoint.poll(one);
      ASSERT_TRUE(got);
      if (*got == 1) break;
      if (ready.fd < 0) continue;
      ASSERT_EQ(::poll(&ready, 1, 10000), 1) << "round " << round;
    }
    EXPECT_EQ(one[0].id, round);
    EXPECT_FALSE(one[0].fault);
  }
  pollfd ready{endpoint.arm(), POLLIN, 0};
  ASSERT_EQ(*endpoint.poll(one), 0U);
  EXPECT_EQ(::poll(&ready, 1, 0), 0) << "nothing has come";
  pair_.listener->disconnect(1);
  EXPECT_EQ(::poll(&ready, 1, 10000), 1);
}

TEST_P(Conformance, ALandingOutlivesItsEndpointWithWhatLandedInIt) {
  auto landing = pair_.endpoint->make_landing(4096).value();
  const ReadRequest request{*pair_.region->remote().sub(0, 4096), landing->bytes(), 1};
  ASSERT_TRUE(pair_.endpoint->post_reads(std::span(&request, 1)));
  ASSERT_FALSE(Pair::complete(*pair_.endpoint));
  pair_.endpoint.reset();
  EXPECT_TRUE(pair_.holds({landing->bytes().begin(), landing->bytes().end()}, 0));
  landing.reset();
}

TEST_P(Conformance, AfterAFailureAndCloseNothingMoreIsTold) {
  auto landing = pair_.endpoint->make_landing(4 * 64).value();
  std::vector<ReadRequest> batch;
  for (std::uint32_t i = 0; i < 4; ++i) {
    auto span = *pair_.region->remote().sub(i * 64, 64);
    span.key ^= 1;
    batch.push_back({span, landing->bytes().subspan(i * 64, 64), i});
  }
  ASSERT_TRUE(pair_.endpoint->post_reads(batch));
  std::array<Completion, 1> one;
  EXPECT_TRUE(Pair::soon([&] {
    const auto got = pair_.endpoint->poll(one);
    return got && *got == 1;
  })) << "the first READ's failure; the others are never asked for";
  landing.reset();
  pair_.endpoint->close();
  std::array<Completion, 8> none;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pair_.endpoint->poll(none).has_error());
}

TEST_P(Conformance, AViewShowsTheSameBytesAsARead) {
  auto* mapper = pair_.endpoint->mapper();
  if (!mapper) GTEST_SKIP() << GetParam().name << " declares: maps nothing";
  const auto span = *pair_.region->remote().sub(1000, 5000);
  const auto view = mapper->view(span);
  ASSERT_TRUE(view);
  EXPECT_TRUE(pair_.holds(Buffer(view->begin(), view->end()), 1000));
  pair_.memory->bytes()[Pair::exposed_at + 1000] ^= std::byte{0xFF};
  EXPECT_NE((*view)[0], Pair::pattern(Pair::exposed_at + 1000)) << "in place, not a copy";
}

TEST_P(Conformance, MemoryWithoutWhatTheProviderNeedsIsRefused) {
  EXPECT_TRUE(pair_.domain->expose(Exposable{}).has_error());
}

INSTANTIATE_TEST_SUITE_P(Every, Conformance, ::testing::ValuesIn(all_subjects()),
                         [](const auto& subject) { return subject.param.name; });

/// What is not enforced is known: a provider that starts to skip more, or less, changes this line.
TEST(ConformanceSkips, AreTheDeclaredOnes) {
  for (const auto& subject : all_subjects()) {
    const auto provider = subject.make(system_clock());
    const auto& caps = provider->caps();
    const int skips = (caps.enforces_bounds ? 0 : 1) + (caps.enforces_revocation ? 0 : 2) + (caps.maps_remote ? 0 : 1);
    const int declared = subject.name.starts_with("ucx")                                          ? 4
                         : subject.name.starts_with("shm") || subject.name.starts_with("ofi_tcp") ? 3
                                                                                                  : 1;
    EXPECT_EQ(skips, declared) << subject.name;
  }
}

}  // namespace
}  // namespace ciuic::testing
