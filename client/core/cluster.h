#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ciuic/types.h"
#include "client/core/connection.h"
#include "transport/kafka/types.h"

namespace ciuic::client::core {

/// Kafka answers a connection's requests in order, so what may wait long has a connection of its own.
enum class Lane : std::int8_t { control, fetch, produce, coordinator, onesided, wait };

struct Partition {
  std::int32_t leader = -1;  ///< -1: none now
  std::int32_t leader_epoch = -1;
  std::vector<std::int32_t> replicas{}, in_sync{};
};
struct Topic {
  kafka::ErrorCode error = kafka::ErrorCode::none;
  kafka::TopicId id{};  ///< zero on brokers without topic ids
  std::vector<Partition> partitions{};
};

/// Who leads what, and the connections. On the loop's thread. Next: consumer_impl.h, producer_impl.h.
class Cluster {
 public:
  Cluster(Loop& loop, const CommonSettings& settings) : loop_(loop), settings_(settings), changed_(loop) {}

  /// A working connection to the node, dialled if there is none; waits out the pause after a failure.
  /// Errors: disconnected, timed_out, unsupported.
  Co<Result<std::shared_ptr<Connection>>> connection(std::int32_t node, Lane lane);
  /// To any broker, bootstrap ones included.
  Co<Result<std::shared_ptr<Connection>>> any();
  /// Asks for these topics and for all asked for before. A topic's own error is in `topic()`.
  Co<Result<void>> refresh(std::vector<std::string> topics);
  /// All topics of the cluster.
  Co<Result<void>> refresh_all();
  /// What a coordinator of this key is; asks every time. `type`: 0 group, 1 transaction.
  Co<Result<std::int32_t>> find_coordinator(std::string key, std::int8_t type);

  /// As last heard; nullptr: not asked for.
  [[nodiscard]] const Topic* topic(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, Topic>& topics() const { return topics_; }
  /// The leader; -1: not known.
  [[nodiscard]] std::int32_t leader(const std::string& topic, std::int32_t partition) const;
  [[nodiscard]] const std::map<std::int32_t, Address>& brokers() const { return brokers_; }
  /// When metadata was last heard.
  [[nodiscard]] Clock::TimePoint refreshed_at() const { return refreshed_at_; }
  /// Metadata is known to be wrong: the next `refresh` is wanted soon.
  void mark_stale() { stale_ = true; }
  [[nodiscard]] bool stale() const { return stale_; }
  /// Drops interest in topics not named.
  void keep_only(const std::set<std::string>& names);
  /// Ends all connections; what waits gets `why`.
  void close(const Error& why);
  [[nodiscard]] Loop& loop() { return loop_; }
  [[nodiscard]] const CommonSettings& settings() const { return settings_; }

 private:
  struct Link {
    std::shared_ptr<Connection> connection{};
    std::shared_ptr<Connection> dialling{};
    Clock::TimePoint not_before{};
    std::int64_t backoff_ms = 0;
    std::optional<Error> last_error{};
  };
  Co<Result<std::shared_ptr<Connection>>> link(std::pair<Address, Lane> key);
  Co<Result<void>> ask(std::optional<std::vector<std::string>> topics);
  void unreached(const std::string& tried);
  void reached();

  Loop& loop_;
  const CommonSettings& settings_;
  Signal changed_;
  std::map<std::pair<Address, Lane>, Link> links_;
  // Said once, and once when it is over: whoever waits for minutes wants to know what for.
  std::optional<Clock::TimePoint> unreached_since_{};
  bool unreached_told_ = false;
  std::map<std::int32_t, Address> brokers_;
  std::map<std::string, Topic> topics_;
  std::set<std::string> interest_;
  Clock::TimePoint refreshed_at_{};
  bool stale_ = true;
  std::optional<Error> closed_{};
};

}  // namespace ciuic::client::core
