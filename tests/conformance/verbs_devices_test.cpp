// RDMA devices that come, go and come back under a broker and its readers. Needs two devices (tools/rdma-vm/run), else
// it says so and is skipped.
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/conformance/support/verbs_ends.h"

namespace ciuic::testing {
namespace {

/// What was exposed before a device was there has no key for it: a connection by it would read nothing, and an old key
/// must not happen to be one of the new device's.
TEST_F(Verbs, ADeviceThatComesLaterIsForDomainsThatComeLater) {
  const auto before = pair_->admitted(2);
  ASSERT_TRUE(pair_->domain->current());
  ListenOptions options;
  options.address = std::getenv("RDMA_VM_ADDR0");
  const auto second = pair_->provider->listen(options);
  ASSERT_TRUE(second) << name(second.error());
  EXPECT_FALSE(pair_->domain->current());
  const auto until = system_clock().now() + std::chrono::seconds(30);
  const auto of_old = Token::random(), of_new = Token::random();
  (*second)->admit(of_old, pair_->domain, 3, until);
  const auto refused = pair_->provider->connect((*second)->address(), of_old, {});
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error(), Fault::resources_exhausted);
  EXPECT_TRUE(pair_->connect(before)) << "by the old device as ever";

  const auto later = pair_->provider->open_domain("User:alice").value();
  const auto region = later->expose(pair_->memory->part(pair_->memory, Pair::exposed_at, Pair::exposed_bytes)).value();
  EXPECT_TRUE(later->current());
  EXPECT_NE(verbs::rkey_of(region.remote().key, 0), 0U);
  EXPECT_NE(verbs::rkey_of(region.remote().key, 1), 0U);
  (*second)->admit(of_new, later, 4, until);
  auto endpoint = pair_->provider->connect((*second)->address(), of_new, {});
  ASSERT_TRUE(endpoint) << name(endpoint.error());
  const auto bytes = pair_->read(**endpoint, *region.remote().sub(0, 4096));
  ASSERT_TRUE(bytes) << name(bytes.error());
  EXPECT_TRUE(pair_->holds(*bytes, 0));
  EXPECT_EQ(pair_->read(**endpoint, *alices().sub(0, 64)).error(), Fault::not_registrable);
}

/// Soft-RoCE and soft-iWARP wait with the removal until nobody has the device open: nothing of it may be left behind.
TEST_F(Verbs, ADeviceThatWasRemovedIsListenedOnOnceItIsBack) {
  const std::string device = std::getenv("RDMA_VM_DEV1"), kind = std::getenv("RDMA_VM");
  const auto stale = alices();
  for (int round = 0; round < 4; ++round) {
    std::thread removing([&] { EXPECT_EQ(std::system(("rdma link del " + device).c_str()), 0); });
    EXPECT_TRUE(Pair::soon([&] { return address().empty() && pair_->listener->connections() == 0; }));
    EXPECT_TRUE(Pair::soon([&] { return pair_->read(*pair_->endpoint, *stale.sub(0, 64)).has_error(); }));
    EXPECT_FALSE(pair_->domain->current());
    EXPECT_EQ(pair_->domain->expose(pair_->memory->part(pair_->memory, 0, 4096)).error(), Fault::device_lost);
    EXPECT_TRUE(pair_->region->revoke());
    pair_->region.reset();
    pair_->domain.reset();
    decoy_region_.reset();
    mallory_.reset();
    pair_->endpoint.reset();
    removing.join();
    ASSERT_EQ(std::system(("rdma link add " + device + " type " + kind + " netdev rdma1").c_str()), 0);
    ASSERT_TRUE(Pair::soon([&] { return !address().empty(); }));

    pair_->domain = pair_->provider->open_domain("User:alice").value();
    pair_->region.emplace(
        pair_->domain->expose(pair_->memory->part(pair_->memory, Pair::exposed_at, Pair::exposed_bytes)).value());
    EXPECT_TRUE(pair_->domain->current());
    auto endpoint = pair_->connect();
    ASSERT_TRUE(endpoint) << name(endpoint.error());
    pair_->endpoint = std::move(*endpoint);
    const auto bytes = pair_->read(*pair_->endpoint, *alices().sub(0, 4096));
    ASSERT_TRUE(bytes) << name(bytes.error());
    EXPECT_TRUE(pair_->holds(*bytes, 0));

    // What stayed is not forgotten over it, whoever looks at devices in the meantime.
    std::thread([&] {
      ListenOptions options;
      options.address = std::getenv("RDMA_VM_ADDR0");
      const auto other = make_verbs_provider(system_clock(), true).value()->listen(options);
      ASSERT_TRUE(other) << name(other.error());
      EXPECT_EQ((*other)->devices(), 1U);
    }).join();
  }
}

/// Who once asked librdmacm what is gone has every device open, also those that he does not use.
TEST_F(Verbs, ADeviceThatNobodyUsesAnyMoreGoesWhenItIsRemoved) {
  const std::string device = std::getenv("RDMA_VM_DEV0"), kind = std::getenv("RDMA_VM");
  verbs::Library::load().value()->notice_removed_devices();
  for (int round = 0; round < 2; ++round) {
    pair_->endpoint.reset();
    std::atomic<bool> removed{false};
    std::thread removing([&] {
      EXPECT_EQ(std::system(("rdma link del " + device).c_str()), 0);
      removed = true;
    });
    EXPECT_TRUE(Pair::soon([&] { return removed.load(); }));
    removing.join();
    ASSERT_EQ(std::system(("rdma link add " + device + " type " + kind + " netdev rdma0").c_str()), 0);
    ASSERT_TRUE(Pair::soon([&] {
      auto endpoint = pair_->connect();
      if (endpoint) pair_->endpoint = std::move(*endpoint);
      return endpoint.has_value();
    }));
  }
}

/// Named, an address is waited for; not named, a broker without a device does without.
TEST_F(Verbs, AnAddressThatWasAskedForIsListenedAtOnceItIsThere) {
  const auto provider = make_verbs_provider(system_clock(), true).value();
  ListenOptions options;
  options.address = "10.77.0.9:7999";
  const auto listener = provider->listen(options);
  ASSERT_TRUE(listener) << name(listener.error());
  EXPECT_EQ((*listener)->address(), "");
  ASSERT_EQ(std::system("ip addr add 10.77.0.9/24 dev rdma1"), 0);
  EXPECT_TRUE(Pair::soon([&] { return (*listener)->address() == "10.77.0.9:7999"; }));
  EXPECT_EQ(std::system("ip addr del 10.77.0.9/24 dev rdma1"), 0);
}

}  // namespace
}  // namespace ciuic::testing
