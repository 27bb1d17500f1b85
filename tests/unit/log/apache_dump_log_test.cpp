// Apache's own kafka-dump-log reads every file we write. Needs Apache's jars (tools/peers/setup kafka) and Java.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

using testing::LogWorld;
using testing::make_batch;
using testing::make_marker;

std::string run(const std::string& command, int& status) {
  std::string text;
  auto* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  while (const auto n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  status = ::pclose(pipe);
  return text;
}

TEST(ApacheDumpLog, ReadsEveryFileWeWrite) {
  const char* home = std::getenv("CIUIC_CACHE") != nullptr ? std::getenv("CIUIC_CACHE") : nullptr;
  const auto cache = home != nullptr ? std::string(home) : std::string(std::getenv("HOME")) + "/.cache/ciuickafka";
  bool jars = false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(cache, error))
    jars = jars || std::filesystem::exists(entry.path() / "libs");
  if (!jars) GTEST_SKIP() << "no Apache Kafka in " << cache << ": run tools/peers/setup kafka";

  LogWorld world(3);
  world.start();
  LogConfig config;
  config.segment_bytes = 20'000;
  config.index_interval_bytes = 1000;
  const auto partition = world.create("t", 0, config);
  constexpr kafka::ProducerId p{77};
  std::int32_t sequence = 0;
  for (int i = 0; i < 60; ++i) {
    const auto codec = static_cast<kafka::Codec>(i % 5);
    ASSERT_TRUE(world.append(
        *partition,
        make_batch({.records = 3, .timestamp = 1'700'000'000'000 + i, .value_bytes = 400, .codec = codec})));
    ASSERT_TRUE(world.append(*partition, make_batch({.records = 2,
                                                     .timestamp = 1'700'000'000'000 + i,
                                                     .value_bytes = 400,
                                                     .producer_id = p,
                                                     .producer_epoch = kafka::ProducerEpoch(0),
                                                     .base_sequence = sequence,
                                                     .transactional = true})));
    sequence += 2;
    if (i % 4 == 3) {
      ASSERT_TRUE(world.append(*partition, make_marker(p, kafka::ProducerEpoch(0), i % 8 == 3, 0),
                               {AppendOrigin::coordinator, {}}));
    }
  }
  ASSERT_GT(partition->segment_count(), 3U);
  world.restart();

  const auto folder = std::filesystem::temp_directory_path() / fmt::format("ciuic-dump-log-{}", ::getpid()) / "t-0";
  std::filesystem::create_directories(folder);
  std::string files;
  int counted = 0;
  for (const auto& entry : *world.disk.list("/logs/t-0")) {
    const auto content = world.disk.content("/logs/t-0/" + entry.name);
    std::ofstream(folder / entry.name, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    const auto dot = entry.name.rfind('.');
    const auto suffix = dot == std::string::npos ? "" : entry.name.substr(dot);
    if (suffix != ".log" && suffix != ".index" && suffix != ".timeindex" && suffix != ".txnindex" &&
        suffix != ".snapshot")
      continue;
    files += (files.empty() ? "" : ",") + (folder / entry.name).string();
    ++counted;
  }
  int status = 0;
  const auto text = run("tools/peers/kafka-run kafka-dump-log --deep-iteration --files " + files, status);
  std::filesystem::remove_all(folder.parent_path());
  EXPECT_EQ(status, 0) << text;
  for (const auto* bad : {"Exception", "Mismatches", "mismatch", "isvalid: false", "Error", "Found", "non-consecutive"})
    EXPECT_EQ(text.find(bad), std::string::npos)
        << bad << " in:\n"
        << text.substr(std::min(text.size(), text.find(bad) > 500 ? text.find(bad) - 500 : 0), 1500);
  std::size_t dumped = 0;
  for (std::size_t at = text.find("Dumping "); at != std::string::npos; at = text.find("Dumping ", at + 1)) ++dumped;
  EXPECT_EQ(dumped, static_cast<std::size_t>(counted));
  EXPECT_NE(text.find("producerId: 77"), std::string::npos);
  EXPECT_NE(text.find("endTxnMarker: ABORT"), std::string::npos);
}

}  // namespace
}  // namespace ciuic::broker
