// One-sided readers against a model of the log, by seeds. CIUIC_SEED=n replays one, CIUIC_SEEDS=n (or --seeds n) says
// how many; the default is what a normal test run takes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "tests/sim/support/sim_world.h"
#include "transport/base/log.h"

namespace ciuic::sim {
namespace {

std::uint64_t seeds_wanted = 1000;

/// Empty: all was well.
std::string run(std::uint64_t seed, SimWorld::Totals& sum) {
  SimWorld world(seed);
  const auto steps = 100 + seed % 200;
  bool well = true;
  for (std::uint64_t i = 0; well && i < steps; ++i) well = world.step();
  well = well && world.finish();
  const auto totals = world.totals();
  sum.steps += totals.steps;
  sum.appended += totals.appended;
  sum.one_sided += totals.one_sided;
  sum.fetched += totals.fetched;
  sum.restarts += totals.restarts;
  sum.faults += totals.faults;
  sum.grants += totals.grants;
  sum.renewals += totals.renewals;
  sum.revocations += totals.revocations;
  return well ? "" : world.difference();
}

TEST(OneSidedSim, NoRecordIsWrongMissingOrDoubled) {
  log::set_level(log::Level::off);
  SimWorld::Totals sum;
  if (const char* one = std::getenv("CIUIC_SEED")) {
    if (std::getenv("CIUIC_SIM_LOG")) log::set_level(log::Level::debug);
    EXPECT_EQ(run(std::strtoull(one, nullptr, 10), sum), "");
    return;
  }
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= seeds_wanted && failures < 5; ++seed) {
    if (std::getenv("CIUIC_SIM_PROGRESS")) std::cerr << seed << "\n";
    const auto wrong = run(seed, sum);
    if (wrong.empty()) continue;
    ++failures;
    ADD_FAILURE() << wrong << "\nreplay: CIUIC_SEED=" << seed << " tools/test -R onesided_sim";
  }
  std::cout << "seeds " << seeds_wanted << ", steps " << sum.steps << ", batches appended " << sum.appended
            << ", delivered one-sided " << sum.one_sided << ", by Fetch " << sum.fetched << ", restarts "
            << sum.restarts << ", faults injected " << sum.faults << ", grants " << sum.grants << ", renewals "
            << sum.renewals << ", leases ended " << sum.revocations << "\n";
  // A simulation that never takes the path under test proves nothing.
  EXPECT_GT(sum.one_sided, sum.fetched);
  EXPECT_GT(sum.faults, seeds_wanted);
  EXPECT_GT(sum.restarts, 0U);
}

}  // namespace
}  // namespace ciuic::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* many = std::getenv("CIUIC_SEEDS")) ciuic::sim::seeds_wanted = std::strtoull(many, nullptr, 10);
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--seeds") == 0) ciuic::sim::seeds_wanted = std::strtoull(argv[i + 1], nullptr, 10);
  return RUN_ALL_TESTS();
}
