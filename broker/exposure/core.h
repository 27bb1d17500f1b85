#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "broker/exposure/exposure.h"
#include "broker/exposure/partition_exposure.h"
#include "transport/kafka/messages/ciuic_onesided.h"

namespace ciuic::broker {

/// One thing of a session that is renewed.
struct GrantRecord {
  std::shared_ptr<Lease> lease;
  std::shared_ptr<Partition> partition;
  kafka::Isolation isolation = kafka::Isolation::read_uncommitted;
};

/// What a session waits for, over its OneSidedWait requests: a partition stays until it is told as ready. On home.
struct WaitSet {
  std::shared_ptr<WaitTicket> ticket{};                     // partitions hold it weakly
  std::vector<std::int64_t> ready{};                        // not told yet
  std::function<void(kafka::OneSidedWaitResponse)> done{};  // of the request under way; null: none is
  std::uint64_t requests = 0;
  void answer();
};

/// A client: one principal, one connection that opened it. On home.
struct Session {
  rdma::SessionId id = 0;
  std::string principal;
  std::uint64_t connection = 0;
  std::map<std::string, std::shared_ptr<rdma::Domain>, std::less<>> domains;  // by provider
  std::unordered_map<std::int64_t, GrantRecord> grants;
  std::uint32_t grants_pending = 0;
  Clock::TimePoint heard_at{};  // its last request, or our last answer of a grant
  std::shared_ptr<WaitSet> waits;
  bool closed = false;  // renewed no more; removed when its leases are over
};

/// What the requests, the observer calls and the timers share.
struct Exposure::Core : std::enable_shared_from_this<Exposure::Core> {
  struct Listening {
    std::shared_ptr<rdma::Provider> provider;
    std::unique_ptr<rdma::Listener> listener;
  };
  struct ShardState {
    Executor* executor;
    std::unordered_map<const Partition*, std::shared_ptr<PartitionExposure>> partitions;
  };

  explicit Core(Parts parts);

  // exposure.cpp: sessions
  void connect(const ExposurePeer& peer, const kafka::OneSidedConnectRequest& request,
               const Done<kafka::OneSidedConnectResponse>& done);
  void renew(const ExposurePeer& peer, const kafka::OneSidedRenewRequest& request,
             const Done<kafka::OneSidedRenewResponse>& done);
  void release(const ExposurePeer& peer, const kafka::OneSidedReleaseRequest& request,
               const Done<kafka::OneSidedReleaseResponse>& done);
  void end_session(Session& session, RevocationReason reason);
  /// How long a session may say nothing. A host that lost its power, or a reader that is frozen, keeps its TCP
  /// connection for minutes or for ever: what it holds here, and its place among its principal's, must not wait for
  /// that. A reader says something four times a lease; before its first word it may be busy connecting.
  [[nodiscard]] Clock::Duration patience() const {
    return Milliseconds(std::max(std::int64_t{2} * settings.lease_ms, std::int64_t{settings.token_ms}));
  }
  void sweep_sessions();
  void sweep_partitions(std::size_t shard);
  void start_sweeping();
  [[nodiscard]] Session* session_of(const ExposurePeer& peer, std::int64_t id);
  [[nodiscard]] std::shared_ptr<rdma::Domain> domain_for(const Listening& listening, const std::string& principal);
  void drop_unused_domains();
  /// Its registrations go, slots and chunks, on every shard.
  void drop_domain(const std::shared_ptr<rdma::Domain>& domain);
  void drop_denied_slots();
  /// A device refused to pin more for the principal. Registrations without a lease go on every shard, of whoever has
  /// most first; then everybody's, and what that one has above its share goes as its leases run out. False: both were
  /// done less than a lease ago. Any thread.
  [[nodiscard]] bool make_room(std::string_view principal, rdma::Fault fault);
  void run_blocking(Task task, Turn turn) { blocking ? blocking(std::move(task), turn) : task(); }
  void refused(RefusalReason reason) { ++metrics.refusals[static_cast<std::size_t>(reason)]; }
  // grants.cpp
  void grant(const ExposurePeer& peer, kafka::OneSidedGrantRequest request,
             const Done<kafka::OneSidedGrantResponse>& done);
  void wait(const ExposurePeer& peer, const kafka::OneSidedWaitRequest& request,
            const Done<kafka::OneSidedWaitResponse>& done);

  [[nodiscard]] ShardState& shard_of(const Executor& executor);
  /// On the partition's executor; null where nothing of it was ever granted.
  [[nodiscard]] PartitionExposure* find(const Partition& partition);
  [[nodiscard]] std::shared_ptr<PartitionExposure> find_or_make(const std::shared_ptr<Partition>& partition);
  [[nodiscard]] std::shared_ptr<SlotBlock> block_for(const Partition& partition);
  [[nodiscard]] std::vector<std::pair<std::shared_ptr<SlotBlock>, std::string>> all_blocks() const;
  [[nodiscard]] std::shared_ptr<const ExposureLookup> lookup() const;

  ExposureSettings settings;
  const Clock& clock;
  Executor& home;
  std::shared_ptr<Arena> arena;
  std::function<void(Task, Turn)> blocking;
  const std::function<bool(const std::string& principal, const std::string& topic)> may_read =
      [this](const std::string& principal, const std::string& topic) { return lookup()->may_read(principal, topic); };
  const std::function<bool(std::string_view, rdma::Fault)> make_room_now =
      [this](std::string_view principal, rdma::Fault fault) { return make_room(principal, fault); };
  std::shared_ptr<PinnedShares> shares;
  ExposureMetrics metrics;
  std::string boot_id;
  std::vector<Listening> listening;
  std::vector<ShardState> shards;

  // On home.
  std::unordered_map<rdma::SessionId, std::unique_ptr<Session>> sessions;
  std::vector<std::pair<const rdma::Provider*, std::shared_ptr<rdma::Domain>>> domains;
  std::int64_t next_grant = 1;
  bool closing = false;

  mutable std::mutex mutex;  // of what follows
  struct RoomMaking {
    std::optional<Clock::TimePoint> began{};
    Clock::TimePoint acted{};
    int steps = 0;
  } room_making;
  std::shared_ptr<const ExposureLookup> lookup_now;
  struct OfTopic {
    std::weak_ptr<SlotBlock> slots;
    std::string topic;
  };
  std::map<std::pair<kafka::TopicId, std::int32_t>, OfTopic> blocks;
};

}  // namespace ciuic::broker
