// The memory that a process may use, by what machine and control groups say.
#include "broker/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ciuic::broker {
namespace {

class MemoryLimit : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pattern = (std::filesystem::temp_directory_path() / "ciuic-memory-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    say("proc/meminfo", "MemTotal:        1000 kB\nMemFree: 1 kB\n");
  }
  ~MemoryLimit() override {
    std::error_code ignored;
    std::filesystem::remove_all(root, ignored);
  }
  void say(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  [[nodiscard]] std::uint64_t limit() const {
    return memory_limit((root / "proc").string(), (root / "cgroup").string()).value_or(0);
  }
  std::filesystem::path root;
};

TEST_F(MemoryLimit, IsTheMachinesWhereNoGroupSaysLess) {
  EXPECT_EQ(limit(), 1'024'000U);
  say("proc/self/cgroup", "0::/\n");
  say("cgroup/memory.max", "max\n");
  EXPECT_EQ(limit(), 1'024'000U);
}

TEST_F(MemoryLimit, IsTheLeastOfItsGroupAndThoseAbove) {
  say("proc/self/cgroup", "0::/system.slice/broker.service\n");
  say("cgroup/system.slice/memory.max", "500000\n");
  EXPECT_EQ(limit(), 500'000U);
  say("cgroup/system.slice/broker.service/memory.max", "400000\n");
  EXPECT_EQ(limit(), 400'000U);
}

TEST_F(MemoryLimit, InAContainerIsTheMounts) {
  say("proc/self/cgroup", "0::/docker/0123\n");
  say("cgroup/memory.max", "300000\n");
  EXPECT_EQ(limit(), 300'000U);
}

TEST_F(MemoryLimit, OfVersionOneIsKnownToo) {
  say("proc/self/cgroup", "5:cpu:/other\n4:memory:/group\n");
  say("cgroup/memory/other/memory.limit_in_bytes", "1\n");
  say("cgroup/memory/group/memory.limit_in_bytes", "200000\n");
  EXPECT_EQ(limit(), 200'000U);
}

TEST_F(MemoryLimit, IsUnknownWhereNothingSaysAnything) {
  std::filesystem::remove_all(root / "proc");
  EXPECT_FALSE(memory_limit((root / "proc").string(), (root / "cgroup").string()));
}

}  // namespace
}  // namespace ciuic::broker
