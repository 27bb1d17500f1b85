// What only verbs promises: attacks by a peer that posts what it likes, deaths, and losses. Each ends with the victim
// reading the right bytes. Needs two devices (tools/rdma-vm/run), else it says so and is skipped.
#include <fmt/core.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "tests/conformance/support/child_process.h"
#include "tests/conformance/support/verbs_ends.h"

namespace ciuic::testing {
namespace {

using verbs::Status;

/// An attack, while the victim reads all the time: each of its READs brings the right bytes, and none waits.
class VerbsAttack : public Verbs {
 protected:
  void SetUp() override {
    Verbs::SetUp();
    if (pair_) victim_ = std::thread([this] { read_on(); });
  }
  void TearDown() override {
    stop_.store(true);
    if (victim_.joinable()) victim_.join();
    if (!pair_) return;
    EXPECT_EQ(disturbed_, "") << "after " << reads_ << " READs";
    EXPECT_GT(reads_, 0);
    EXPECT_LT(slowest_, std::chrono::seconds(2));
    RecordProperty("victim_reads", reads_);
    RecordProperty("victim_slowest_ms", std::to_string(std::chrono::duration_cast<Milliseconds>(slowest_).count()));
    Verbs::TearDown();
  }

 private:
  void read_on() {
    constexpr std::uint32_t bytes = 4096;
    const auto landing = pair_->endpoint->make_landing(bytes).value();
    for (std::uint32_t at = 0; disturbed_.empty(); at = (at + bytes) % Pair::exposed_bytes) {
      std::fill(landing->bytes().begin(), landing->bytes().end(), std::byte{0xEE});
      const ReadRequest request{*alices().sub(at, bytes), landing->bytes(), 1};
      const auto began = system_clock().now();
      const auto posted = pair_->endpoint->post_reads(std::span(&request, 1));
      const auto fault = posted ? Pair::complete(*pair_->endpoint) : std::optional(posted.error());
      slowest_ = std::max(slowest_, system_clock().now() - began);
      if (fault)
        disturbed_ = name(*fault);
      else if (!pair_->holds(to_buffer(landing->bytes()), at))
        disturbed_ = "wrong bytes";
      ++reads_;
      if (stop_.load()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::atomic<bool> stop_{false};
  std::thread victim_;  // what follows is its own until it has ended
  std::string disturbed_;
  int reads_ = 0;
  Clock::Duration slowest_{};
};

TEST_F(VerbsAttack, WritesToAnotherPrincipalsRegionAreRefused) { expect_refused(IBV_WR_RDMA_WRITE, alices()); }
TEST_F(VerbsAttack, WritesToARegionOfItsOwnAreRefused) { expect_refused(IBV_WR_RDMA_WRITE, own()); }
TEST_F(VerbsAttack, AtomicsAreRefused) {
  expect_refused(IBV_WR_ATOMIC_FETCH_AND_ADD, own());
  expect_refused(IBV_WR_ATOMIC_CMP_AND_SWP, own());
  expect_refused(IBV_WR_ATOMIC_FETCH_AND_ADD, alices());
}

/// The regions' rights are one wall, the queue pair's the other: here is memory of the domain that the first leaves
/// open.
TEST_F(VerbsAttack, AQueuePairLetsNobodyWriteEvenWhereARegionWould) {
  if (soft_iwarp_) GTEST_SKIP() << "soft-iWARP does not enforce a queue pair's rights: there the regions' are alone";
  const auto* const library = verbs::Library::load().value();
  const auto mallorys = std::dynamic_pointer_cast<verbs::VerbsDomain>(mallory_);
  const auto domain = mallorys->protection_domain(mallorys->rails()[0]);
  ASSERT_TRUE(domain);
  const auto open = verbs::register_memory(
      *library, **domain, decoy_->bytes().data(), 4096,
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  ASSERT_TRUE(open);
  const auto at = reinterpret_cast<std::uintptr_t>(decoy_->bytes().data());
  for (const auto what : {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    auto attacker = inside();
    ASSERT_EQ(attacker->run(IBV_WR_RDMA_READ, at, (*open)->rkey, 8), IBV_WC_SUCCESS) << "the region is open";
    // The broker cuts the rights once it hears that the connection stands.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_NE(attacker->run(what, at, (*open)->rkey, 8).value_or(IBV_WC_GENERAL_ERR), IBV_WC_SUCCESS);
  }
}

TEST_F(VerbsAttack, WhoSendsAnythingIsCut) {
  auto attacker = inside();
  (void)attacker->run(IBV_WR_SEND, 0, 0);
  EXPECT_TRUE(attacker->cut());
  auto another = inside();
  (void)another->run(IBV_WR_SEND, 0, 0, 0);
  EXPECT_TRUE(another->cut());
  if (soft_iwarp_) return;  // iWARP has no immediate data
  auto third = inside();
  (void)third->run(IBV_WR_SEND_WITH_IMM, 0, 0);
  EXPECT_TRUE(third->cut());
}

TEST_F(VerbsAttack, AWriteWithImmediateChangesNothing) {
  auto attacker = inside();
  const auto status = attacker->run(IBV_WR_RDMA_WRITE_WITH_IMM, own().address, rkey(own()));
  EXPECT_NE(status.value_or(IBV_WC_GENERAL_ERR), IBV_WC_SUCCESS);
}

TEST_F(VerbsAttack, ARegionCannotBeInvalidatedFromAfar) {
  auto attacker = inside();
  (void)attacker->run(IBV_WR_SEND_WITH_INV, 0, rkey(own()));
  auto again = inside();
  EXPECT_EQ(again->run(IBV_WR_RDMA_READ, own().address, rkey(own())), IBV_WC_SUCCESS);
}

TEST_F(VerbsAttack, AnotherPrincipalsKeyReadsNothing) {
  auto attacker = inside();
  const auto status = attacker->run(IBV_WR_RDMA_READ, alices().address, rkey(alices()));
  EXPECT_NE(status, IBV_WC_SUCCESS);
  EXPECT_TRUE(attacker->empty_handed());
}

TEST_F(VerbsAttack, GuessedKeysReadNothing) {
  // Keys are counted up and have one random byte: near ones are the best guesses.
  std::mt19937 dice(7);
  for (int guess = 0; guess < 40; ++guess) {
    const auto key = (rkey(alices()) & ~0xFFU) + static_cast<std::uint32_t>(dice() % 1024) - 512;
    if (key == rkey(own())) continue;
    auto attacker = inside();
    const auto status = attacker->run(IBV_WR_RDMA_READ, alices().address, key);
    EXPECT_NE(status, IBV_WC_SUCCESS) << key;
    EXPECT_TRUE(attacker->empty_handed());
  }
}

TEST_F(VerbsAttack, AKeyThatWasRevokedReadsNothing) {
  const auto stale = own();
  auto attacker = inside();
  ASSERT_EQ(attacker->run(IBV_WR_RDMA_READ, stale.address, rkey(stale)), IBV_WC_SUCCESS);
  ASSERT_TRUE(decoy_region_->revoke());
  const auto status = attacker->run(IBV_WR_RDMA_READ, stale.address, rkey(stale));
  EXPECT_NE(status, IBV_WC_SUCCESS);
  EXPECT_TRUE(attacker->empty_handed());
}

/// Devices give numbers out again: what is registered at the same place since is not what the old key was for.
TEST_F(VerbsAttack, AStaleKeyDoesNotOpenWhatWasRegisteredSince) {
  const auto stale = own();
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(decoy_region_->revoke());
    decoy_region_.emplace(mallory_->expose(decoy_->part(decoy_, 0, 8192)).value());
    ASSERT_NE(rkey(own()), rkey(stale));
    auto attacker = inside();
    EXPECT_EQ(attacker->run(IBV_WR_RDMA_READ, own().address, rkey(own())), IBV_WC_SUCCESS);
    EXPECT_NE(attacker->run(IBV_WR_RDMA_READ, stale.address, rkey(stale)), IBV_WC_SUCCESS);
    EXPECT_TRUE(attacker->empty_handed());
  }
}

TEST_F(VerbsAttack, BoundsOfItsOwnRegionHold) {
  const auto span = own();
  const std::uint64_t places[] = {span.address - 1, span.address + span.length - 63, span.address + (1ULL << 20),
                                  ~0ULL - 63};
  for (const auto at : places) {
    auto attacker = inside();
    const auto status = attacker->run(IBV_WR_RDMA_READ, at, rkey(span));
    EXPECT_NE(status, IBV_WC_SUCCESS) << at;
    EXPECT_TRUE(attacker->empty_handed());
  }
}

TEST_F(VerbsAttack, ReadsOfNothingWithAnyKeyTellNothing) {
  auto attacker = inside();
  (void)attacker->run(IBV_WR_RDMA_READ, alices().address, rkey(alices()), 0);
  EXPECT_TRUE(attacker->empty_handed());
}

TEST_F(VerbsAttack, ConnectionRequestsThatAreNotOursAreRejected) {
  const auto good = Attacker::hello(pair_->admitted(66, mallory_));
  const auto changed = [&](std::size_t at) {
    auto copy = good;
    copy[at] ^= std::byte{1};
    return copy;
  };
  const auto oversize = [&] {
    auto copy = changed(20);
    copy.resize(56, std::byte{0xFF});
    return copy;
  };
  const std::pair<Buffer, Status> pleas[] = {
      {{}, Status::incompatible},
      // InfiniBand fills up private data, so that a short token is a wrong one.
      {Buffer(good.begin(), good.begin() + 20), soft_iwarp_ ? Status::incompatible : Status::refused},
      {changed(0), Status::incompatible},
      {changed(11), Status::incompatible},
      {changed(20), Status::refused},
      {oversize(), Status::refused}};
  for (const auto& [data, expected] : pleas) {
    Attacker attacker;
    EXPECT_FALSE(attacker.connect(address(), data)) << data.size();
    EXPECT_EQ(attacker.rejection(), expected) << data.size();
  }
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; })) << pair_->listener->connections();
  // The good one is still good, once.
  Attacker honest;
  EXPECT_TRUE(honest.connect(address(), good));
  Attacker replay;
  EXPECT_FALSE(replay.connect(address(), good));
  EXPECT_EQ(replay.rejection(), Status::refused);
}

TEST_F(VerbsAttack, ADepthThatIsAskedTooHighIsLowered) {
  auto attacker = inside(255);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(attacker->run(IBV_WR_RDMA_READ, own().address, rkey(own())), IBV_WC_SUCCESS);
}

TEST_F(VerbsAttack, AFloodOfRequestsDoesNotKeepOthersOut) {
  if (soft_iwarp_) GTEST_SKIP() << "soft-iWARP has not as many queue pairs";
  std::vector<std::unique_ptr<Attacker>> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(std::make_unique<Attacker>());
    (void)flood.back()->ask(address(), Attacker::hello(Token::random()));
    if (i % 20 != 0) continue;
    const auto honest = pair_->connect();
    EXPECT_TRUE(honest) << i << " " << name(honest.error());
  }
  flood.clear();
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; })) << pair_->listener->connections();
}

TEST_F(VerbsAttack, WhoVanishesWhileConnectingIsForgotten) {
  for (int i = 0; i < 20; ++i) {
    Attacker attacker;
    (void)attacker.ask(address(), Attacker::hello(pair_->admitted(66, mallory_)));
  }
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; })) << pair_->listener->connections();
}

TEST_F(VerbsAttack, ConnectionsOfOnePrincipalDoNotTakeAnothersPlace) {
  std::vector<std::unique_ptr<Attacker>> all;
  int in = 0;
  for (int i = 0; i < 12; ++i) {
    all.push_back(std::make_unique<Attacker>());
    in += all.back()->connect(address(), Attacker::hello(pair_->admitted(66, mallory_))) ? 1 : 0;
  }
  EXPECT_EQ(in, 8);
  EXPECT_TRUE(pair_->connect());
}

/// Requests with good tokens whose sender never says that it heard the answer.
TEST_F(VerbsAttack, HalfOpenConnectionsOfOnePrincipalDoNotTakeAnothersPlace) {
  if (soft_iwarp_) GTEST_SKIP() << "soft-iWARP has not as many queue pairs";
  std::vector<std::unique_ptr<Attacker>> half_open;
  for (int i = 0; i < 40; ++i) {
    half_open.push_back(std::make_unique<Attacker>());
    (void)half_open.back()->ask(address(), Attacker::hello(pair_->admitted(66, mallory_)));
    if (i % 10 != 9) continue;
    EXPECT_TRUE(pair_->connect()) << i;
  }
  EXPECT_LE(pair_->listener->connections(), 1U + 8U + 4U) << "no more than a principal may have";
  pair_->listener->disconnect(66);
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; })) << pair_->listener->connections();
}

/// Nothing makes it leave by itself; its session does.
TEST_F(VerbsAttack, WhoHoldsConnectionsAndReadsNothingIsCutWithItsSession) {
  std::vector<std::unique_ptr<Attacker>> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(inside());
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 9; }));
  EXPECT_TRUE(pair_->connect());
  const auto unused = pair_->admitted(66, mallory_);
  pair_->listener->disconnect(66);
  for (auto& one : idle) EXPECT_TRUE(one->cut());
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; })) << pair_->listener->connections();
  Attacker again;
  EXPECT_FALSE(again.connect(address(), Attacker::hello(unused)));
  EXPECT_EQ(again.rejection(), Status::refused);
}

TEST_F(VerbsAttack, AStormOfDisconnectionsDisturbsNobody) {
  std::vector<std::thread> storm;
  for (int thread = 0; thread < 3; ++thread)
    storm.emplace_back([this] {
      for (int i = 0; i < 25; ++i) {
        Attacker attacker;
        const bool in = attacker.connect(address(), Attacker::hello(pair_->admitted(66, mallory_)));
        if (in && i % 3 == 0) (void)attacker.run(IBV_WR_RDMA_READ, alices().address, rkey(alices()));
        if (i % 3 == 1) pair_->listener->disconnect(66);
      }
    });
  for (auto& one : storm) one.join();
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; })) << pair_->listener->connections();
}

/// One answer lets one in, however quickly the second comes.
TEST_F(VerbsAttack, ATokenShownTwiceAtOnceLetsOneIn) {
  for (int round = 0; round < 5; ++round) {
    const auto hello = Attacker::hello(pair_->admitted(66, mallory_));
    std::array<Attacker, 2> both;
    std::array<bool, 2> in{};
    std::array<std::thread, 2> threads;
    for (std::size_t i = 0; i < 2; ++i) threads[i] = std::thread([&, i] { in[i] = both[i].connect(address(), hello); });
    for (auto& one : threads) one.join();
    EXPECT_NE(in[0], in[1]) << round;
    EXPECT_EQ(both[in[0] ? 1 : 0].rejection(), Status::refused);
  }
}

TEST_F(VerbsAttack, ATokenThatIsTooOldOrOfAnotherListenerLetsNobodyIn) {
  ListenOptions options;
  options.address = address().substr(0, address().rfind(':'));
  const auto other = pair_->provider->listen(options);
  ASSERT_TRUE(other) << name(other.error());
  const auto foreign = Token::random(), late = Token::random();
  (*other)->admit(foreign, mallory_, 66, system_clock().now() + std::chrono::seconds(30));
  pair_->listener->admit(late, mallory_, 66, system_clock().now() - std::chrono::milliseconds(1));
  for (const auto& token : {foreign, late}) {
    Attacker attacker;
    EXPECT_FALSE(attacker.connect(address(), Attacker::hello(token)));
    EXPECT_EQ(attacker.rejection(), Status::refused);
  }
}

/// The process that AReaderThatIsKilledIsCleanedUp starts.
void read_until_killed(std::istringstream& words) {
  std::string address, token_text;
  std::uint64_t where = 0;
  std::uint32_t key = 0;
  words >> address >> token_text >> where >> key;
  Attacker reader;
  ASSERT_TRUE(reader.connect(address, Attacker::hello(token_of(token_text))));
  while (reader.run(IBV_WR_RDMA_READ, where, key) == IBV_WC_SUCCESS) {
  }
}

[[maybe_unused]] const bool is_reader = child_role("CIUIC_VERBS_CHILD", &read_until_killed);

TEST_F(Verbs, AReaderThatIsKilledIsCleanedUp) {
  ChildProcess reader("CIUIC_VERBS_CHILD", fmt::format("{} {} {} {}", address(), text_of(pair_->admitted(66, mallory_)),
                                                       own().address, rkey(own())));
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 2; }));
  const auto began = system_clock().now();
  EXPECT_TRUE(WIFSIGNALED(reader.kill()));
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; }));
  RecordProperty("noticed_ms",
                 std::to_string(std::chrono::duration_cast<Milliseconds>(system_clock().now() - began).count()));
}

/// What the kernel holds for all processes, by kind: "qp 4 cq 3 …".
std::map<std::string, int> held_resources() {
  std::map<std::string, int> held;
  std::unique_ptr<FILE, int (*)(FILE*)> out(::popen("rdma resource show", "r"), ::pclose);
  std::array<char, 256> line{};
  while (out && std::fgets(line.data(), line.size(), out.get()) != nullptr) {
    std::istringstream words(line.data());
    std::string skip, kind;
    int count = 0;
    words >> skip >> skip;
    while (words >> kind >> count) held[kind] += count;
  }
  return held;
}

/// Pages pinned for devices, in KiB.
long pinned_kib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("VmPin:")) return std::strtol(line.c_str() + 6, nullptr, 10);
  return -1;
}

TEST_F(Verbs, ThousandsOfConnectionsAndRegistrationsLeakNothing) {
  const char* const asked = std::getenv("CIUIC_CONNECTS");
  const int rounds = asked != nullptr ? std::atoi(asked) : 300;
  const auto resources = held_resources();
  ASSERT_FALSE(resources.empty());
  const auto pinned = pinned_kib();
  for (int i = 0; i < rounds; ++i) {
    const auto session = static_cast<SessionId>(2 + i);  // `disconnect` may come after the next one connects
    auto one = pair_->connect(session);
    ASSERT_TRUE(one) << i << " " << name(one.error());
    const auto region = pair_->domain->expose(pair_->memory->part(pair_->memory, 0, 65536)).value();
    if (i % 3 != 0) {
      const auto bytes = pair_->read(**one, *region.remote().sub(0, 4096));
      ASSERT_TRUE(bytes) << i << " " << name(bytes.error());
    }
    if (i % 3 == 1) (void)pair_->read(**one, {region.remote().address, 64, 1});  // both sides in error
    if (i % 5 == 0) pair_->listener->disconnect(session);
  }
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; }));
  EXPECT_TRUE(Pair::soon([&] { return held_resources() == resources; }));
  EXPECT_EQ(pinned_kib(), pinned);
  RecordProperty("connections", rounds);
}

TEST_F(Verbs, RevocationUnderReadsDeliversNoByteWrittenLater) {
  if (soft_iwarp_) GTEST_SKIP() << "soft-iWARP goes on with a READ under way after deregistration";
  for (int round = 0; round < 30; ++round) revoke_under_a_read(round, "");
}

/// Soft-RoCE then tells of some READs that they succeeded, and bytes are missing: that is why every batch is checked.
TEST_F(Verbs, RevocationUnderReadsOnALossyWireDeliversNoByteWrittenLater) {
  if (soft_iwarp_) GTEST_SKIP() << "soft-iWARP's TCP does not go over the wire that tc makes lossy";
  if (!lose_packets("3%") || !lose_packets("")) GTEST_SKIP() << "tc cannot make this wire lossy";
  for (int round = 0; round < 15; ++round) revoke_under_a_read(round, "3%");
  RecordProperty("successes_with_missing_bytes", missing_);
}

TEST_F(Verbs, ReadsGoOnOverALossyWireAndArriveWhole) {
  if (!lose_packets("1%")) GTEST_SKIP() << "tc cannot make this wire lossy";
  for (int round = 0; round < 10; ++round) {
    const auto bytes = pair_->read(*pair_->endpoint, *alices().sub(0, 65536));
    ASSERT_TRUE(bytes) << name(bytes.error());
    EXPECT_TRUE(pair_->holds(*bytes, 0));
  }
  EXPECT_TRUE(lose_packets(""));
}

TEST_F(Verbs, ADeadWireIsNoticedSoon) {
  if (soft_iwarp_) GTEST_SKIP() << "soft-iWARP's TCP does not go over the wire that tc cuts";
  if (std::system("tc qdisc add dev rdma0 root netem loss 100%") != 0) GTEST_SKIP() << "tc cannot cut this wire";
  const auto began = system_clock().now();
  const auto read = pair_->read(*pair_->endpoint, *alices().sub(0, 64));
  const auto took = std::chrono::duration_cast<Milliseconds>(system_clock().now() - began);
  EXPECT_EQ(std::system("tc qdisc del dev rdma0 root"), 0);
  ASSERT_TRUE(read.has_error());
  EXPECT_EQ(read.error(), Fault::peer_gone);
  RecordProperty("noticed_ms", std::to_string(took.count()));
  EXPECT_LT(took, std::chrono::seconds(5)) << "rdma_cm's own choice would be 16";
  victim_reads_ = false;
  // And the way back.
  ASSERT_TRUE(Pair::soon([&] {
    auto again = pair_->connect();
    return again && pair_->read(**again, *alices().sub(0, 64));
  }));
}

}  // namespace
}  // namespace ciuic::testing
