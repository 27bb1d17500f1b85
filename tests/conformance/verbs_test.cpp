// What only verbs promises: attacks by a peer that posts what it likes, deaths, and losses. Each ends with the victim
// reading the right bytes. Needs two devices (tools/rdma-vm/run), else it says so and is skipped.
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "tests/conformance/support/attacker.h"
#include "tests/conformance/support/pair.h"
#include "transport/rdma/verbs/domain.h"

namespace ciuic::testing {
namespace {

using verbs::Status;

class Verbs : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& subject : all_subjects())
      if (subject.name == "verbs_wire") pair_.emplace(subject);
    if (!pair_) GTEST_SKIP() << "no two RDMA devices here; tools/rdma-vm/run brings them";
    for (const auto& subject : all_subjects()) soft_iwarp_ = soft_iwarp_ || subject.soft_iwarp;
    mallory_ = pair_->provider->open_domain("User:mallory").value();
    decoy_ = std::make_shared<Memfd>(8192);
    decoy_region_.emplace(mallory_->expose(decoy_->part(decoy_, 0, 8192)).value());
  }
  void TearDown() override {
    if (!pair_) return;
    // Whatever was tried: nothing changed, and the victim was not disturbed.
    for (std::size_t i = 0; i < pair_->memory->bytes().size(); ++i)
      ASSERT_EQ(pair_->memory->bytes()[i], Pair::pattern(i)) << i;
    for (const auto byte : decoy_->bytes()) ASSERT_EQ(byte, std::byte{0});
    if (!victim_reads_) return;
    const auto bytes = pair_->read(*pair_->endpoint, *alices().sub(0, 4096));
    ASSERT_TRUE(bytes) << name(bytes.error());
    EXPECT_TRUE(pair_->holds(*bytes, 0));
  }
  [[nodiscard]] RemoteSpan alices() const { return pair_->region->remote(); }
  [[nodiscard]] RemoteSpan own() const { return decoy_region_->remote(); }
  [[nodiscard]] static std::uint32_t rkey(const RemoteSpan& span) { return verbs::rkey_of(span.key, 0); }
  [[nodiscard]] std::string address() const { return pair_->listener->address(); }
  /// Connected with a good token of mallory's.
  std::unique_ptr<Attacker> inside(std::uint8_t depth = 1) {
    auto attacker = std::make_unique<Attacker>();
    EXPECT_TRUE(attacker->connect(address(), Attacker::hello(pair_->admitted(66, mallory_)), depth));
    return attacker;
  }
  void expect_refused(ibv_wr_opcode what, const RemoteSpan& where) {
    auto attacker = inside();
    const auto status = attacker->run(what, where.address, rkey(where), what == IBV_WR_RDMA_WRITE ? 64 : 8);
    ASSERT_TRUE(status);
    // There a WRITE is done when it is sent, and the refusal comes as the end of the connection.
    if (soft_iwarp_ && *status == IBV_WC_SUCCESS)
      EXPECT_TRUE(attacker->cut());
    else
      EXPECT_NE(*status, IBV_WC_SUCCESS);
  }

  /// Of both ends of the wire; "" none. False: `tc` cannot.
  static bool lose_packets(const std::string& share) {
    for (const auto* end : {"rdma0", "rdma1"}) {
      const auto what = share.empty() ? fmt::format("tc qdisc del dev {} root", end)
                                      : fmt::format("tc qdisc add dev {} root netem loss {}", end, share);
      if (std::system(what.c_str()) != 0) return false;
    }
    return true;
  }
  /// A READ of many packets, revoked at a random moment of its transfer; the memory is overwritten at once. What has
  /// arrived is what was there before, or nothing; a READ that succeeds may have holes (counted), never later bytes.
  void revoke_under_a_read(int round, const std::string& loss) {
    const std::uint32_t bytes = 1U << 20;
    const auto memory = std::make_shared<Memfd>(bytes);
    std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{0x11});
    auto region = pair_->domain->expose(memory->part(memory, 0, bytes)).value();
    auto endpoint = pair_->connect();
    ASSERT_TRUE(endpoint) << round << " " << name(endpoint.error());
    auto landing = (*endpoint)->make_landing(bytes).value();
    std::fill(landing->bytes().begin(), landing->bytes().end(), std::byte{0xEE});
    const ReadRequest request{*region.remote().sub(0, bytes), landing->bytes(), 1};
    // Not while it connects: rdma_cm repeats its messages after seconds.
    ASSERT_TRUE(loss.empty() || lose_packets(loss));
    ASSERT_TRUE((*endpoint)->post_reads(std::span(&request, 1)));
    std::this_thread::sleep_for(std::chrono::microseconds(dice_() % 30'000));
    ASSERT_TRUE(region.revoke());
    std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{0x22});
    const auto failed = Pair::complete(**endpoint);
    ASSERT_TRUE(loss.empty() || lose_packets(""));
    (*endpoint)->close();
    bool whole = true;
    for (const auto byte : landing->bytes()) {
      ASSERT_NE(byte, std::byte{0x22}) << round;
      whole = whole && byte == std::byte{0x11};
    }
    if (!failed && !whole) ++missing_;
  }

  std::optional<Pair> pair_;
  std::mt19937 dice_{11};
  int missing_ = 0;
  std::shared_ptr<Domain> mallory_;
  std::shared_ptr<Memfd> decoy_;
  std::optional<Region> decoy_region_;
  bool victim_reads_ = true;
  bool soft_iwarp_ = false;
};

TEST_F(Verbs, WritesToAnotherPrincipalsRegionAreRefused) { expect_refused(IBV_WR_RDMA_WRITE, alices()); }
TEST_F(Verbs, WritesToARegionOfItsOwnAreRefused) { expect_refused(IBV_WR_RDMA_WRITE, own()); }
TEST_F(Verbs, AtomicsAreRefused) {
  expect_refused(IBV_WR_ATOMIC_FETCH_AND_ADD, own());
  expect_refused(IBV_WR_ATOMIC_CMP_AND_SWP, own());
  expect_refused(IBV_WR_ATOMIC_FETCH_AND_ADD, alices());
}

/// The regions' rights are one wall, the queue pair's the other: here is memory of the domain that the first leaves
/// open.
TEST_F(Verbs, AQueuePairLetsNobodyWriteEvenWhereARegionWould) {
  if (soft_iwarp_) GTEST_SKIP() << "soft-iWARP does not enforce a queue pair's rights: there the regions' are alone";
  const auto* const library = verbs::Library::load().value();
  const auto domain = std::dynamic_pointer_cast<verbs::VerbsDomain>(mallory_)->protection_domain(0);
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

TEST_F(Verbs, WhoSendsAnythingIsCut) {
  auto attacker = inside();
  (void)attacker->run(IBV_WR_SEND, 0, 0);
  EXPECT_TRUE(attacker->cut());
  auto another = inside();
  (void)another->run(IBV_WR_SEND, 0, 0, 0);
  EXPECT_TRUE(another->cut());
}

TEST_F(Verbs, AWriteWithImmediateChangesNothing) {
  auto attacker = inside();
  const auto status = attacker->run(IBV_WR_RDMA_WRITE_WITH_IMM, own().address, rkey(own()));
  EXPECT_NE(status.value_or(IBV_WC_GENERAL_ERR), IBV_WC_SUCCESS);
}

TEST_F(Verbs, ARegionCannotBeInvalidatedFromAfar) {
  auto attacker = inside();
  (void)attacker->run(IBV_WR_SEND_WITH_INV, 0, rkey(own()));
  auto again = inside();
  EXPECT_EQ(again->run(IBV_WR_RDMA_READ, own().address, rkey(own())), IBV_WC_SUCCESS);
}

TEST_F(Verbs, AnotherPrincipalsKeyReadsNothing) {
  auto attacker = inside();
  const auto status = attacker->run(IBV_WR_RDMA_READ, alices().address, rkey(alices()));
  EXPECT_NE(status, IBV_WC_SUCCESS);
  EXPECT_TRUE(attacker->empty_handed());
}

TEST_F(Verbs, GuessedKeysReadNothing) {
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

TEST_F(Verbs, AKeyThatWasRevokedReadsNothing) {
  const auto stale = own();
  auto attacker = inside();
  ASSERT_EQ(attacker->run(IBV_WR_RDMA_READ, stale.address, rkey(stale)), IBV_WC_SUCCESS);
  ASSERT_TRUE(decoy_region_->revoke());
  const auto status = attacker->run(IBV_WR_RDMA_READ, stale.address, rkey(stale));
  EXPECT_NE(status, IBV_WC_SUCCESS);
  EXPECT_TRUE(attacker->empty_handed());
}

TEST_F(Verbs, BoundsOfItsOwnRegionHold) {
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

TEST_F(Verbs, ReadsOfNothingWithAnyKeyTellNothing) {
  auto attacker = inside();
  (void)attacker->run(IBV_WR_RDMA_READ, alices().address, rkey(alices()), 0);
  EXPECT_TRUE(attacker->empty_handed());
}

TEST_F(Verbs, ConnectionRequestsThatAreNotOursAreRejected) {
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

TEST_F(Verbs, ADepthThatIsAskedTooHighIsLowered) {
  auto attacker = inside(255);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(attacker->run(IBV_WR_RDMA_READ, own().address, rkey(own())), IBV_WC_SUCCESS);
}

TEST_F(Verbs, AFloodOfRequestsDoesNotKeepOthersOut) {
  if (soft_iwarp_) GTEST_SKIP() << "soft-iWARP has not as many queue pairs";
  std::vector<std::unique_ptr<Attacker>> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(std::make_unique<Attacker>());
    (void)flood.back()->ask(address(), Attacker::hello(Token::random()));
    if (i % 20 != 0) continue;
    EXPECT_TRUE(pair_->read(*pair_->endpoint, *alices().sub(0, 64)));
    const auto honest = pair_->connect();
    EXPECT_TRUE(honest) << i << " " << name(honest.error());
  }
  flood.clear();
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; })) << pair_->listener->connections();
}

TEST_F(Verbs, WhoVanishesWhileConnectingIsForgotten) {
  for (int i = 0; i < 20; ++i) {
    Attacker attacker;
    (void)attacker.ask(address(), Attacker::hello(pair_->admitted(66, mallory_)));
  }
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 1; })) << pair_->listener->connections();
}

TEST_F(Verbs, ConnectionsOfOnePrincipalDoNotTakeAnothersPlace) {
  std::vector<std::unique_ptr<Attacker>> all;
  int in = 0;
  for (int i = 0; i < 12; ++i) {
    all.push_back(std::make_unique<Attacker>());
    in += all.back()->connect(address(), Attacker::hello(pair_->admitted(66, mallory_))) ? 1 : 0;
  }
  EXPECT_EQ(in, 8);
  EXPECT_TRUE(pair_->connect());
}

/// The process that AReaderThatIsKilledIsCleanedUp starts: a child by fork would share the device's file with us.
TEST(VerbsChild, ReadsUntilItIsKilled) {
  const char* const plea = std::getenv("CIUIC_VERBS_CHILD");
  if (plea == nullptr) GTEST_SKIP() << "only another test starts it";
  std::istringstream words(plea);
  std::string address, token_text;
  std::uint64_t where = 0;
  std::uint32_t key = 0;
  words >> address >> token_text >> where >> key;
  Token token;
  for (std::size_t i = 0; i < token.bytes.size(); ++i)
    token.bytes[i] = static_cast<std::uint8_t>(std::stoul(token_text.substr(2 * i, 2), nullptr, 16));
  Attacker reader;
  ASSERT_TRUE(reader.connect(address, Attacker::hello(token)));
  while (reader.run(IBV_WR_RDMA_READ, where, key) == IBV_WC_SUCCESS) {
  }
}

TEST_F(Verbs, AReaderThatIsKilledIsCleanedUp) {
  std::string token_text;
  for (const auto byte : pair_->admitted(66, mallory_).bytes) token_text += fmt::format("{:02x}", byte);
  const auto plea = fmt::format("CIUIC_VERBS_CHILD={} {} {} {}", address(), token_text, own().address, rkey(own()));
  std::vector<char*> environment;
  for (char** one = environ; *one != nullptr; ++one)
    if (!std::string_view(*one).starts_with("GTEST_OUTPUT=")) environment.push_back(*one);
  environment.push_back(const_cast<char*>(plea.c_str()));
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe", filter = "--gtest_filter=VerbsChild.*";
  char* arguments[] = {program.data(), filter.data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environment.data()), 0);
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 2; }));
  ::kill(child, SIGKILL);
  const auto began = system_clock().now();
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
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
