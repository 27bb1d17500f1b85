#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "broker/group/group_shard.h"
#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker::testing {

using kafka::ErrorCode;

/// An answer that may still be waited for.
template <class T>
struct Later {
  std::shared_ptr<std::vector<T>> answers = std::make_shared<std::vector<T>>();
  [[nodiscard]] bool answered() const { return !answers->empty(); }
  [[nodiscard]] const T& operator*() const { return answers->at(0); }
  const T* operator->() const { return &answers->at(0); }
  [[nodiscard]] std::function<void(T)> callback() const {
    return [to = answers](T answer) { to->push_back(std::move(answer)); };
  }
};

struct JoinOf {
  std::string member{};
  std::optional<std::string> instance{};
  std::vector<std::string> protocols{"range"};
  std::vector<std::string> topics{"t"};
  std::int32_t session_ms = 10'000;
  std::int32_t rebalance_ms = 60'000;
  std::int16_t version = 9;
  std::string client = "c";
  std::string type = "consumer";
};
/// A member that is in, and what it was told last.
struct Joined {
  std::string id;
  std::int32_t generation = -1;
};

[[nodiscard]] Buffer subscription(const std::vector<std::string>& topics);

/// The groups of one partition over a real log on simulated files; time moves when told to.
class GroupWorld {
 public:
  explicit GroupWorld(GroupSettings group_settings = {});
  ~GroupWorld();

  Later<kafka::JoinGroupResponse> join(const JoinOf& join);
  /// Takes the id first, as a client does.
  Later<kafka::JoinGroupResponse> join_new(JoinOf join = {});
  Later<kafka::SyncGroupResponse> sync(const std::string& member, std::int32_t generation,
                                       const std::vector<std::pair<std::string, std::string>>& assignments = {},
                                       std::optional<std::string> instance = std::nullopt);
  ErrorCode heartbeat(const std::string& member, std::int32_t generation,
                      std::optional<std::string> instance = std::nullopt);
  ErrorCode leave(const std::string& member, std::optional<std::string> instance = std::nullopt);
  /// The first partition's error.
  Later<kafka::OffsetCommitResponse> commit(std::int64_t offset, const std::string& member = "",
                                            std::int32_t generation = -1, const std::string& topic = "t",
                                            std::int32_t partition = 0, std::int16_t version = 8);
  std::int64_t committed(const std::string& topic = "t", std::int32_t partition = 0);
  [[nodiscard]] kafka::DescribeGroupsResponse::DescribedGroup describe(std::int16_t version = 5) {
    return shard->describe(version, group);
  }

  /// Moves time in small steps and runs what is due.
  void pass(Milliseconds time);
  /// As many members as said, stable, each with assignment "a<i>".
  std::vector<Joined> stable(std::size_t members, JoinOf how = {});
  void load();
  void restart();
  void crash();

  std::string group = "g";
  GroupSettings settings;
  LogWorld logs;
  std::shared_ptr<Partition> partition;
  std::shared_ptr<GroupShard> shard;
};

[[nodiscard]] inline ErrorCode error_of(const kafka::OffsetCommitResponse& response) {
  return response.topics.at(0).partitions.at(0).error_code;
}

}  // namespace ciuic::broker::testing
