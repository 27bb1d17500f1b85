#pragma once
#include <fmt/core.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "tests/conformance/support/attacker.h"
#include "tests/conformance/support/pair.h"
#include "transport/rdma/verbs/domain.h"
#include "transport/rdma/verbs/verbs.h"

namespace ciuic::testing {

/// Alice reads from one device of the host by the other; mallory is another principal with memory of her own. Skips
/// where there are no two devices. At the end nothing of either's memory has changed, and alice reads as before.
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
    if (!victim_reads_ || HasFatalFailure()) return;
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

}  // namespace ciuic::testing
