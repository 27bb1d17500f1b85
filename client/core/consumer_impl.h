#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "ciuic/consumer.h"
#include "client/core/cluster.h"
#include "client/core/delivery.h"
#include "client/core/destination.h"
#include "client/core/group.h"
#include "client/core/offsets.h"
#include "client/core/settings.h"
#include "transport/base/fork_guard.h"
#include "transport/kafka/messages/fetch.h"
#include "transport/kafka/record_batch.h"
#include "transport/onesided/reader.h"

/// How a consumer works. Two threads: the program's, which polls and reads one-sidedly, and the loop's, which talks to
/// brokers: offsets, Fetch, grants, renewals, the group. Between them lies `Assigned`, one entry a partition, under one
/// mutex that is never held over a call that waits. Files: consumer.cpp (the public calls), consumer_poll.cpp (the
/// program's thread), consumer_drive.cpp (who must be asked what), consumer_fetch.cpp, consumer_onesided.cpp.
namespace ciuic::client {
namespace core {

/// Whole batches of one partition on their way to a poll, and what is needed to leave aborted ones out.
struct Fetched {
  std::vector<Bytes> batches{};
  std::vector<onesided::GrantedAborted> aborted{};  ///< rising first offsets; read_committed only
  std::shared_ptr<const void> memory{};
  std::int64_t next_offset = 0;
  std::size_t bytes = 0;
  std::size_t given = 0;  ///< of the batches, to the program
};

/// Leaves out control batches, and batches of aborted transactions, in log order (KIP-98).
class AbortedFilter {
 public:
  /// A new list: of transactions that overlap what comes next.
  void start(std::vector<onesided::GrantedAborted> aborted);
  /// True: the program may see this batch.
  [[nodiscard]] bool passes(const kafka::RecordBatchView& batch);

 private:
  std::deque<onesided::GrantedAborted> ahead_;
  std::unordered_set<std::int64_t> aborting_;
};

/// A broker's one-sided session. The loop's, but for `queue`, which the polling thread reads by.
struct Session {
  std::int32_t node = -1;
  std::int64_t id = 0;
  std::string provider{};
  bool in_place = false;
  std::shared_ptr<onesided::ReadQueue> queue{};
  Destination::Way landing{};                ///< into the program's memory, if it named some
  std::shared_ptr<Connection> connection{};  ///< the session ends with it
  std::vector<std::shared_ptr<Lease>> leases{};
  /// Memory named by grants since the polling thread last looked, where it is mapped. Under `Consumer::Impl::mutex_`.
  std::vector<rdma::RemoteSpan> granted{};
  std::atomic<bool> over{false};  ///< the endpoint or the session is finished: connect again
  /// OneSidedWait: each request adds the partitions that came to their end since, a new one ends the one before.
  std::uint64_t wait_round = 0;  ///< requests sent
  std::uint64_t wait_set = 0;    ///< of those since the broker last forgot, or was made to; 0: none was sent
  bool waiting = false;          ///< one is under way
  bool wait_lost = false;        ///< its answer is: the next begins anew
  /// Partitions waited for, by grant.
  std::unordered_map<std::int64_t, std::pair<TopicPartition, std::uint64_t>> waited{};
};

/// A partition read under a grant. The polling thread's, once it is handed over.
struct GrantedRead {
  std::shared_ptr<Session> session{};
  std::shared_ptr<Lease> lease{};
  std::optional<onesided::Grant> grant{};  ///< not yet adopted
  std::unique_ptr<onesided::Reader> reader{};
  ChunkPin pin{};               ///< of what the session's queue has mapped
  std::size_t room_wanted = 0;  ///< for batches that did not fit the program's memory; 0: all did
  std::int32_t lease_ms = 0;
  AbortedFilter filter{};
  bool filtered = false;
  std::uint64_t slot_version = 0;
  ~GrantedRead() {
    reader.reset();
    pin = {};
    if (lease) lease->retire();
  }
};

/// One assigned partition. Under `Consumer::Impl::mutex_`.
struct Assigned {
  TopicPartition at{};
  std::shared_ptr<const TopicPartition> name{};
  std::uint64_t life = 0;  ///< another after each seek: answers to an older one are dropped
  std::int64_t wanted = offset_stored;
  bool resolved = false;  ///< `position` is a number
  std::int64_t position = -1;
  bool paused = false;
  bool asking = false;             ///< the loop has a question about it under way
  Clock::TimePoint not_before{};   ///< no new question before
  Clock::TimePoint short_since{};  ///< the program's memory has had no room for it since then; zero: it has
  std::int64_t high_watermark = -1, last_stable_offset = -1;
  std::optional<Error> error{};  ///< for the next poll

  Path path = Path::undecided;
  std::string provider{}, reason{}, landing{};
  Clock::TimePoint look_again{};  ///< auto: when a better path is tried again
  std::string told{};             ///< of the path, in the log: said once

  std::deque<Fetched> fetched{};
  std::size_t fetched_bytes = 0;
  std::int64_t fetch_position = -1;
  std::uint64_t served = 0;  ///< when an answer last had something of it; rises
  AbortedFilter filter{};

  std::shared_ptr<GrantedRead> read{};
  bool at_tail = false;              ///< nothing to read: the loop waits at the broker
  Clock::TimePoint tail_since{};     ///< when the end was first met; zero: not there
  int failures = 0;                  ///< of the one-sided path in a row
  std::uint64_t wait_set = 0;        ///< of the session, that has it; 0: none does
  Clock::TimePoint settled_at{};     ///< by the metadata of then nothing was to do but to wait; zero: something is
  Clock::TimePoint unknown_since{};  ///< no leader since then; zero: there is one
};

/// Why a partition is not read one-sidedly.
enum class NotOneSided : std::uint8_t {
  no_session,     ///< the broker has no such path for us, or it cannot be reached
  no_topic_id,    ///< the broker knows topics by name only
  failing,        ///< reads failed several times in a row
  bad_grant,      ///< the broker's answer makes no sense
  broker_memory,  ///< these bytes are not in the broker's memory, and do not get there now
  fault,          ///< something of this host: memory that may not be locked, say
  count_
};
[[nodiscard]] const char* name(NotOneSided why);

struct ConsumerCounters {
  std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(NotOneSided::count_)> fallbacks{};
  std::atomic<std::int64_t> onesided_starts{0};
  std::atomic<std::int64_t> tcp_bytes{0}, tcp_batches{0}, onesided_bytes{0}, onesided_batches{0}, fetches{0}, grants{0},
      renewals{0}, waits{0}, sessions{0}, lease_losses{0}, skipped_batches{0}, landed_directly_bytes{0},
      landed_by_copy_bytes{0};
};

}  // namespace core

class Consumer::Impl {
 public:
  explicit Impl(core::ConsumerSettings settings);
  ~Impl();

  // consumer.cpp; the program's thread
  Result<void> usable() const;
  bool in_forked_child() const { return fork_.in_child(); }
  Result<void> close(Milliseconds timeout);
  Result<void> land_in(const LandingBuffer& buffer);
  Result<void> assign(std::span<const TopicPartitionOffset> partitions);
  Result<void> subscribe(std::vector<std::string> topics, RebalanceListener listener);
  Result<void> unsubscribe();
  std::vector<TopicPartition> assignment() const;
  Result<void> seek(const TopicPartition& at, std::int64_t offset);
  Result<std::int64_t> position(const TopicPartition& at, Milliseconds timeout);
  Result<void> set_paused(std::span<const TopicPartition> partitions, bool paused);
  Result<void> commit_sync(std::span<const TopicPartitionOffset> offsets, Milliseconds timeout);
  Result<void> commit_async(std::span<const TopicPartitionOffset> offsets, CommitCallback done);
  Result<std::vector<TopicPartitionOffset>> committed(std::span<const TopicPartition> partitions, Milliseconds timeout);
  Result<std::vector<TopicInfo>> topics(std::span<const std::string> topics, Milliseconds timeout);
  Result<std::vector<TopicPartitionOffset>> list(std::vector<core::OffsetQuery> queries, Milliseconds timeout);
  std::vector<Lag> lags() const;
  PathInfo path(const TopicPartition& at) const;
  std::vector<Metric> metrics() const;
  std::string member_id() const;
  void wakeup();

  // consumer_poll.cpp; the program's thread
  Result<std::span<const RecordBatch>> poll(Milliseconds timeout);

 private:
  using Key = std::pair<TopicPartition, std::uint64_t>;  // a partition in one of its lives
  struct Rebalance {
    core::GroupEvent event;
    std::vector<TopicPartition> partitions;
  };

  // consumer_poll.cpp
  enum class Progress : std::int8_t {
    nothing,
    full,  ///< the program's memory has no room for what could be read
    soon,
    batches
  };
  [[nodiscard]] Result<Progress> poll_once();
  [[nodiscard]] core::Assigned* longest_short() const;                                                   // lock held
  [[nodiscard]] Result<Progress> step(core::Assigned& one, std::unique_lock<std::mutex>& lock);          // lock held
  [[nodiscard]] bool make_room(const core::Assigned* for_one);                                           // lock held
  [[nodiscard]] Result<Progress> take_fetched(core::Assigned& one);                                      // lock held
  [[nodiscard]] Result<Progress> read_granted(core::Assigned& one, std::unique_lock<std::mutex>& lock);  // lock held
  [[nodiscard]] Result<Progress> deliver_read(core::Assigned& one, core::GrantedRead& read,
                                              const onesided::Delivery& got);
  void show(core::Delivery::Source source, std::span<const Bytes> batches, std::span<const Bytes> heads,
            core::AbortedFilter& filter, std::int64_t wanted);
  [[nodiscard]] Progress after_fault(core::Assigned& one, rdma::Fault fault);  // lock held
  void wait_for_news(Clock::TimePoint deadline);
  [[nodiscard]] bool wait_for_reads();
  void run_rebalances();
  void run_commit_callbacks();
  void auto_commit_if_due();
  void drop_batches();
  void tell_loop();
  void tell_loop_soon();

  // consumer.cpp
  [[nodiscard]] std::unique_ptr<core::Assigned> make_assigned(const TopicPartition& at, std::int64_t wanted);
  void restart(core::Assigned& one, std::int64_t wanted);
  void clear_assignment();                                             // lock held
  void stop_reading(core::Assigned& one);                              // lock held
  [[nodiscard]] std::vector<TopicPartitionOffset> positions() const;   // lock held
  [[nodiscard]] core::Assigned* find(const TopicPartition& at) const;  // lock held
  [[nodiscard]] core::Assigned* find(const Key& key) const;            // lock held
  template <class T>
  Result<T> ask(std::function<core::Co<Result<T>>()> make);

  // consumer_drive.cpp; the loop
  core::Co<void> drive();
  bool plan();  // true: what is left to do begins with an answer
  core::Co<void> refresh_metadata(std::vector<std::string> topics);
  struct ReadPlan {
    Key key;
    std::int64_t offset;
    kafka::TopicId topic_id;
    std::uint64_t served = 0;
  };
  /// What one look at the partitions found to be asked, by broker.
  struct Plans {
    std::vector<Key> committed{};
    std::map<std::int32_t, std::vector<std::pair<Key, core::OffsetQuery>>> offsets{};
    std::map<std::int32_t, std::vector<ReadPlan>> fetches{};
    std::map<std::int32_t, bool> full{};  ///< a partition has no room: its broker is not asked to wait for others
    std::map<std::shared_ptr<core::Session>, std::vector<ReadPlan>> grants{};
    std::set<std::shared_ptr<core::Session>> waits{};
    std::set<std::int32_t> connects{};
    std::set<std::string> unknown_topics{};
  };
  void plan_one(core::Assigned& one, Plans& plans);                          // lock held
  [[nodiscard]] static bool waits_at_tail(const core::Assigned& one);        // lock held
  [[nodiscard]] bool rests(const core::Assigned& one) const;                 // lock held
  void plan_offset(core::Assigned& one, std::int32_t leader, Plans& plans);  // lock held
  core::Co<void> resolve_offsets(std::int32_t node, std::vector<std::pair<Key, core::OffsetQuery>> wanted);
  core::Co<void> resolve_committed(std::vector<Key> keys);
  void reset_offset(core::Assigned& one, const std::string& why);                                     // lock held
  void partition_failed(core::Assigned& one, const Error& error);                                     // lock held
  void choose_path(core::Assigned& one, std::int32_t leader, kafka::TopicId topic_id, Plans& plans);  // lock held
  [[nodiscard]] bool leader_known(core::Assigned& one, std::int32_t leader);                          // lock held
  void wake_poll();                                                                                   // lock held

  // consumer_fetch.cpp; the loop
  core::Co<void> fetch(std::int32_t node, std::vector<ReadPlan> plan);
  void take_answer(core::Assigned& one, kafka::FetchResponse::PartitionData& data,
                   const std::shared_ptr<const std::byte[]>& memory);  // lock held

  // consumer_onesided.cpp; the loop
  struct NodePath {
    std::shared_ptr<core::Session> session{};
    bool connecting = false;
    bool fetching = false;                 // a Fetch is under way
    std::optional<std::string> refused{};  // why there is no session
    int refusals = 0;                      // since there was one
    Clock::TimePoint try_again{};
  };
  core::Co<void> connect(std::int32_t node);
  core::Co<Result<std::shared_ptr<core::Session>>> open_session(std::int32_t node);
  struct LeaseTerms {
    Clock::TimePoint sent_at;  // the request
    std::int32_t lease_ms;
  };
  void take_grant(const std::shared_ptr<core::Session>& session, core::Assigned* one, std::int64_t offset,
                  const kafka::OneSidedGrantResponse::GrantedPartition& granted, LeaseTerms terms);
  core::Co<void> ask_grants(std::shared_ptr<core::Session> session, std::vector<ReadPlan> plan);
  core::Co<void> keep_leases(std::shared_ptr<core::Session> session, std::int32_t lease_ms);
  core::Co<void> release_idle(std::shared_ptr<core::Session> session, Clock::Duration timeout);
  core::Co<void> plan_soon();
  core::Co<void> wait_at_tail(std::shared_ptr<core::Session> session);
  core::Co<void> end_session(std::shared_ptr<core::Session> session, Clock::TimePoint deadline);
  // Lock held.
  void fall_back(core::Assigned& one, core::NotOneSided why, const std::string& text, Clock::Duration for_how_long);
  void tell_path(core::Assigned& one);
  [[nodiscard]] std::string landing_of(const core::Assigned& one) const;

  const core::ConsumerSettings settings_;
  const ForkGuard fork_{};
  core::Loop loop_;
  core::Cluster cluster_;
  core::GroupMember group_;
  core::Signal plan_again_;
  std::map<std::int32_t, NodePath> nodes_;                            // the loop's
  std::uint64_t answers_ = 0;                                         // Fetch answers with data; the loop's
  bool refreshing_ = false;                                           // the loop's
  Clock::TimePoint next_refresh_{};                                   // the loop's
  std::map<std::string, std::shared_ptr<rdma::Provider>> providers_;  // the loop's
  core::ConsumerCounters counters_;
  std::shared_ptr<core::Destination> destination_;  // set before anything is read, then never again

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::map<TopicPartition, std::unique_ptr<core::Assigned>> assigned_;
  std::vector<core::Assigned*> order_;  // whose turn it is; the program's thread
  std::size_t turn_ = 0;
  /// Given up by the loop; ended by the program's thread, which alone may touch readers and their queue.
  std::vector<std::shared_ptr<core::GrantedRead>> left_reads_;
  std::deque<Rebalance> rebalances_;
  std::deque<std::pair<CommitCallback, Result<void>>> commits_done_;
  std::optional<Error> fatal_{};
  std::uint64_t lives_ = 0;
  bool news_ = false;  // something came since the poll last looked
  bool interrupted_ = false;
  std::atomic<bool> told_{false};        // the loop has been asked to plan again
  std::atomic<bool> told_soon_{false};   // or will be, within `tails_wait`
  bool tails_untold_ = false;            // partitions came to their end since; the program's thread
  std::atomic<std::int64_t> last_poll_;  // ns

  // The program's thread.
  RebalanceListener listener_{};
  bool subscribed_ = false;
  bool group_running_ = false;
  bool assigned_once_ = false;
  bool closed_ = false;
  Clock::TimePoint next_auto_commit_{};
  std::vector<RecordBatch> batches_;
};

}  // namespace ciuic::client
