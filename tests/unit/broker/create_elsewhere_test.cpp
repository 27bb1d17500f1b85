// A partition whose directory cannot be made in one log directory is made in another: its topic is not left half made.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "broker/broker.h"
#include "broker/server.h"

namespace ciuic::broker {
namespace {

TEST(CreateElsewhere, WhereOneLogDirectoryFails) {
  auto pattern = (std::filesystem::temp_directory_path() / "ciuic-broker-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path root = pattern;
  auto server = Server::start({{"log.dirs", (root / "a").string() + "," + (root / "b").string()},
                               {"listeners", "PLAINTEXT://127.0.0.1:0"},
                               {"num.network.threads", "2"}});
  ASSERT_TRUE(server) << server.error();
  std::ofstream(root / "a" / "t-0") << "a file where a directory is to be made";
  std::promise<CreatedTopic> created;
  NewTopic topic;
  topic.name = "t";
  topic.partitions = 2;
  topic.replication_factor = 1;
  (*server)->broker().controller->create_topics({std::move(topic)}, Commit::yes,
                                                [&](std::vector<CreatedTopic> all) { created.set_value(all.at(0)); });
  const auto id = created.get_future().get().id;
  EXPECT_TRUE(id) << id.error().text;
  for (const auto index : {0, 1}) {
    const auto partition = id ? (*server)->broker().partitions->find(*id, kafka::PartitionIndex(index)) : nullptr;
    EXPECT_TRUE(partition && !partition->offline()) << index;
  }
  server->reset();
  std::error_code ignored;
  std::filesystem::remove_all(root, ignored);
}

}  // namespace
}  // namespace ciuic::broker
