#pragma once
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "client/core/assignor.h"
#include "client/core/offsets.h"

namespace ciuic::client::core {

enum class GroupEvent : std::int8_t { assigned, revoked, lost };

/// What the owner of a membership does for it. Called on the loop's thread.
struct GroupHooks {
  /// Carry this to the thread that polls; `GroupMember::handed_over` follows when it has been dealt with there. `lost`
  /// takes the place of a `revoked` that has not been dealt with yet.
  std::function<void(GroupEvent, std::vector<TopicPartition>)> tell{};
  /// The membership is over: no poll can go on.
  std::function<void(Error)> fail{};
  /// When the program last polled.
  std::function<Clock::TimePoint()> last_poll{};
};

/// A member of a classic consumer group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup; eager rebalancing). On the loop's
/// thread. It only says which partitions are ours: data is read by whatever path.
class GroupMember {
 public:
  GroupMember(Cluster& cluster, const ConsumerSettings& settings, GroupHooks hooks);

  /// Runs until `leave` or the loop closes.
  Co<void> run();
  /// Topics to join for; names that begin with '^' are patterns (checked before). Empty: leave the group and stay away.
  void subscribe(std::vector<std::string> topics);
  /// The last event that was told has been dealt with.
  void handed_over() {
    handing_over_ = false;
    changed_.notify();
  }
  /// Leaves the group, as far as it can be told, and ends `run`. Partitions are the caller's to revoke before.
  Co<void> leave(Clock::TimePoint deadline);
  /// For commits: what the coordinator knows us as.
  [[nodiscard]] Membership membership() const {
    return {settings_.group_id, member_id_, settings_.group_instance_id, generation_};
  }

 private:
  enum class Next : std::int8_t { again, joined, over };
  Co<Next> join();
  Co<Next> sync(const std::string& protocol, std::vector<std::pair<std::string, Buffer>> assignments);
  Co<Result<std::vector<std::pair<std::string, Buffer>>>> lead(const std::string& protocol,
                                                               std::vector<Member> members);
  Co<void> stay();
  Co<void> hand_over(GroupEvent event);
  Co<Result<std::shared_ptr<Connection>>> coordinator();
  Co<kafka::ErrorCode> heartbeat();
  Co<Result<void>> look_up_topics();
  Co<bool> topics_changed();
  Co<void> say_goodbye(Clock::TimePoint deadline);
  /// What an error of the group APIs means: again (after a pause), or over.
  Co<Next> react(kafka::ErrorCode code, const char* where);
  void forget_membership();
  [[nodiscard]] bool stopped() const { return leaving_ || cluster_.loop().closing(); }
  [[nodiscard]] bool poll_is_late() const;
  [[nodiscard]] std::map<std::string, std::int32_t> partition_counts(const std::vector<std::string>& topics) const;

  Cluster& cluster_;
  const ConsumerSettings& settings_;
  GroupHooks hooks_;
  Signal changed_;
  std::vector<std::string> asked_{};   // as subscribed, patterns included
  std::vector<std::string> topics_{};  // resolved
  std::uint64_t subscription_ = 0, joined_subscription_ = 0;
  std::string member_id_{};
  std::int32_t generation_ = -1;
  bool is_leader_ = false;
  std::map<std::string, std::int32_t> led_counts_{};  // of all topics that members want; 0: not there yet
  Clock::TimePoint looked_up_at_{};
  std::optional<std::int32_t> coordinator_{};
  std::vector<TopicPartition> owned_{};
  bool handing_over_ = false;
  bool leaving_ = false, running_ = false, failed_ = false;
};

}  // namespace ciuic::client::core
