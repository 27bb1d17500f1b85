// Two devices on each side (tools/rdma-vm/run --rails 2): one endpoint reads by both, and what that must not open.
#include <cstdlib>
#include <fstream>

#include "tests/conformance/support/pair.h"

namespace ciuic::testing {
namespace {

class Rails : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& subject : all_subjects())
      if (subject.name == "verbs_rails") pair_.emplace(subject);
    if (!pair_) GTEST_SKIP() << "no two RDMA devices on each side here; tools/rdma-vm/run --rails 2 brings them";
  }
  [[nodiscard]] std::string address(bool second) const {
    const auto both = pair_->listener->address();
    const auto comma = both.find(',');
    return second ? both.substr(comma + 1) : both.substr(0, comma);
  }
  [[nodiscard]] ConnectOptions of_rail(bool second) const {
    auto options = pair_->options;
    const auto comma = options.source.find(',');
    options.source = second ? options.source.substr(comma + 1) : options.source.substr(0, comma);
    return options;
  }
  /// Packets that a device sent.
  static std::int64_t sent_by(const char* device) {
    std::ifstream file("/sys/class/infiniband/" + std::string(device) + "/ports/1/hw_counters/sent_pkts");
    std::int64_t packets = -1;
    file >> packets;
    return packets;
  }
  std::optional<Pair> pair_;
};

TEST_F(Rails, LongReadsGoByBothDevicesAndShortOnesInTurn) {
  EXPECT_EQ(pair_->listener->devices(), 2U);
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 2; }));
  const auto* const first = std::getenv("RDMA_VM_DEV1");
  const auto* const second = std::getenv("RDMA_VM_DEV3");
  if (sent_by(first) < 0) GTEST_SKIP() << "these devices do not count packets";
  const auto remote = pair_->region->remote();
  for (const auto& [length, count] : {std::pair(Pair::exposed_bytes, 8), {std::size_t{4096}, 64}}) {
    const auto before = std::pair(sent_by(first), sent_by(second));
    for (int i = 0; i < count; ++i) {
      const auto bytes = pair_->read(*pair_->endpoint, *remote.sub(0, static_cast<std::uint32_t>(length)));
      ASSERT_TRUE(bytes) << name(bytes.error());
      EXPECT_TRUE(pair_->holds(*bytes, 0));
    }
    // An answer to 4096 bytes is one packet or more.
    const auto least = static_cast<std::int64_t>(length / 4096) * count / 2;
    EXPECT_GE(sent_by(first) - before.first, least) << length;
    EXPECT_GE(sent_by(second) - before.second, least) << length;
  }
}

/// A session's two tokens are two passwords of one use each.
TEST_F(Rails, ATokenOpensOneConnectionByOneDevice) {
  for (const bool second : {false, true}) {
    const auto token = pair_->admitted(7);
    ASSERT_TRUE(pair_->provider->connect(address(second), token, of_rail(second)));
    for (const bool by : {false, true}) {
      const auto again = pair_->provider->connect(address(by), token, of_rail(by));
      ASSERT_TRUE(again.has_error()) << by;
      EXPECT_EQ(again.error(), Fault::refused);
    }
    auto options = pair_->options;
    options.second = token;  // used: no second connection comes of it
    const auto before = pair_->listener->connections();
    const auto endpoint = pair_->provider->connect(pair_->listener->address(), pair_->admitted(7), options);
    ASSERT_TRUE(endpoint);
    EXPECT_TRUE(pair_->read(**endpoint, *pair_->region->remote().sub(0, 64)));
    EXPECT_LE(pair_->listener->connections(), before + 1);
  }
}

TEST_F(Rails, ASecondConnectionReadsNoOtherPrincipalsMemory) {
  const auto mallory = pair_->provider->open_domain("User:mallory").value();
  auto options = pair_->options;
  options.second = pair_->admitted(8, mallory);
  auto endpoint = pair_->provider->connect(pair_->listener->address(), pair_->admitted(8, mallory), options);
  ASSERT_TRUE(endpoint);
  EXPECT_TRUE(pair_->read(**endpoint, pair_->region->remote()).has_error());
  EXPECT_TRUE(pair_->untouched);
  pair_->listener->disconnect(8);
  EXPECT_TRUE(Pair::soon([&] { return pair_->listener->connections() == 2; }));
}

TEST_F(Rails, WhoNamesOneAddressOfHisOwnReadsByOneDevice) {
  auto options = of_rail(true);
  options.second = pair_->admitted(9);
  const auto before = pair_->listener->connections();
  auto endpoint = pair_->provider->connect(address(true), pair_->admitted(9), options);
  ASSERT_TRUE(endpoint);
  EXPECT_TRUE(pair_->read(**endpoint, *pair_->region->remote().sub(0, 64)));
  EXPECT_EQ(pair_->listener->connections(), before + 1);
}

/// The wire of one device is cut under READs: the endpoint ends and says why, and the next one has what is left.
TEST_F(Rails, ADeviceThatFailsEndsTheEndpointAndTheNextOneReadsByTheOther) {
  if (std::system("tc qdisc add dev rdma2 root netem loss 100%") != 0) GTEST_SKIP() << "tc cannot cut this wire";
  const auto read = pair_->read(*pair_->endpoint, pair_->region->remote());
  ASSERT_TRUE(read.has_error());
  EXPECT_EQ(outcome_of(read.error()), Outcome::reconnect) << name(read.error());
  std::array<Completion, 1> none;
  EXPECT_TRUE(Pair::soon([&] { return pair_->endpoint->poll(none).has_error(); }));
  auto again = pair_->connect();
  ASSERT_TRUE(again) << name(again.error());
  const auto bytes = pair_->read(**again, pair_->region->remote());
  ASSERT_TRUE(bytes) << name(bytes.error());
  EXPECT_TRUE(pair_->holds(*bytes, 0));
  EXPECT_EQ(std::system("tc qdisc del dev rdma2 root"), 0);
}

}  // namespace
}  // namespace ciuic::testing
