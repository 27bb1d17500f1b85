#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/log/log_observer.h"
#include "transport/base/clock.h"
#include "transport/base/executor.h"
#include "transport/kafka/types.h"
#include "transport/rdma/provider.h"

namespace ciuic::kafka {
struct OneSidedConnectRequest;
struct OneSidedConnectResponse;
struct OneSidedGrantRequest;
struct OneSidedGrantResponse;
struct OneSidedRenewRequest;
struct OneSidedRenewResponse;
struct OneSidedWaitRequest;
struct OneSidedWaitResponse;
struct OneSidedReleaseRequest;
struct OneSidedReleaseResponse;
}  // namespace ciuic::kafka

namespace ciuic::broker {

struct ExposureSettings {
  bool enabled = true;                            ///< `onesided.enable`
  std::vector<std::string> providers{"shm"};      ///< `onesided.providers`, best first
  std::string listen{};                           ///< `onesided.listen`: for providers that cross hosts
  bool trusted_readers = false;                   ///< `rdma.trusted.readers`
  std::string runtime_dir{};                      ///< `onesided.runtime.dir`: for the shm socket
  std::uint32_t socket_mode = 0660;               ///< `onesided.shm.socket.mode`
  std::int32_t lease_ms = 10'000;                 ///< `onesided.lease.ms`
  std::int32_t read_ms_max = 2'000;               ///< longest READ: memory is reused this long after the lease's end
  std::int32_t token_ms = 10'000;                 ///< an unused connect token lives this long
  std::uint32_t sessions_per_principal_max = 64;  ///< `onesided.sessions.per.principal.max`
  std::uint32_t sessions_max = 4096;
  std::uint32_t grants_per_session_max = 4096;  ///< `onesided.grants.per.session.max`
  std::uint32_t chunks_per_grant_max = 32;
  std::uint32_t bytes_per_grant_max = 256U << 20;  ///< more is not granted at once, whatever is asked for
  std::uint32_t read_ahead_bytes = 4U << 20;       ///< brought in behind an old position before it is asked for
  std::int32_t retry_after_ms = 100;               ///< told where memory is short
};

/// Who asks: of the TCP connection. A session belongs to the principal, and ends with the connection that opened it, or
/// when nothing was heard of it for longer than leases last (`Core::patience`); its other requests may come over any
/// connection of the same principal (a long poll wants one of its own).
struct ExposurePeer {
  std::string principal;         ///< "User:alice"
  std::uint64_t connection = 0;  ///< unique in the process
};

/// Of tasks that may block: what gives memory back goes before what pins more.
enum class Turn : std::uint8_t { first, last };

enum class RefusalReason : std::uint8_t {
  disabled,
  no_common_provider,
  too_many_sessions,
  too_many_grants,
  unknown_session,
  foreign_session,
  unknown_partition,
  not_authorized,
  out_of_range,
  no_memory,
  draining,
  registration_failed,
  over_share,
  stale_epoch,
  storage_error,
  bad_request,
  count_
};
enum class RevocationReason : std::uint8_t {
  released,
  position_passed,
  lease_over,
  chunk_wanted_back,
  gave_way,
  session_closed,
  silent,
  forced,
  count_
};
[[nodiscard]] std::string_view name(RefusalReason reason);
[[nodiscard]] std::string_view name(RevocationReason reason);

/// Counters and gauges, any thread. `for_each` names them as docs do: ciuic_exposure_<what>_<unit>.
struct ExposureMetrics {
  std::atomic<std::int64_t> sessions{0}, grants{0}, chunk_leases{0}, regions{0}, exposed_bytes{0}, draining_chunks{0};
  std::atomic<std::int64_t> sessions_total{0}, grants_total{0}, renewals_total{0}, waits_total{0}, bring_ins_total{0},
      slot_writes_total{0}, retry_after_total{0}, use_fetch_total{0}, deregister_failures_total{0};
  std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(RefusalReason::count_)> refusals{};
  std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(RevocationReason::count_)> revocations{};
  void for_each(
      const std::function<void(std::string_view name, std::string_view label, std::int64_t value)>& visit) const;
};

/// A partition as requests name it, and who may read it. Answered by the broker's metadata and security; called on the
/// caller's thread of a request, any thread.
struct ExposureLookup {
  /// The open log, or nothing (unknown, or led elsewhere).
  std::function<std::shared_ptr<Partition>(const kafka::TopicId&, kafka::PartitionIndex)> find;
  /// READ on the topic, as Fetch asks. Topic ids that are unknown are never asked about.
  std::function<bool(const std::string& principal, const std::string& topic)> may_read;
};

/// The log as seen through transport/rdma: grants, leases, slots, protection domains.
///
/// Threads: observer calls come on each partition's executor, and a partition's exposure state is touched only there.
/// Sessions live on `home`. Requests may come from any thread; each `done` runs once, on `home` or inside the call.
/// Never blocks; nothing waits for a reader. Stop: `close`, run the executors until its callback; destroy when they
/// stand.
class Exposure final : public LogObserver {
 public:
  struct Parts {
    ExposureSettings settings;
    ExposureLookup lookup;
    const Clock* clock = nullptr;
    Executor* home = nullptr;
    std::vector<Executor*> executors;  ///< every executor that owns partitions (home among them if it does)
    std::vector<std::shared_ptr<rdma::Provider>> providers;  ///< already made; see `make_providers`
    std::shared_ptr<Arena> arena;  ///< may be null: then reading one-sidedly does not keep chunks warm
    /// Runs, elsewhere, a task that may block: registrations that pin memory. In order within a turn. Null: inside the
    /// call.
    std::function<void(Task, Turn)> blocking{};
  };
  template <class Response>
  using Done = std::function<void(Response)>;

  /// Listens with every provider; one that cannot is warned of and left out, and so is one for other hosts that does
  /// not enforce what a hostile reader could break, unless `settings.trusted_readers`. Never fails: without providers
  /// every Connect is refused and says why.
  explicit Exposure(Parts parts);
  ~Exposure() override;
  Exposure(const Exposure&) = delete;
  Exposure& operator=(const Exposure&) = delete;

  /// Makes what `settings.providers` names; the ones that this host or build lacks are logged.
  [[nodiscard]] static std::vector<std::shared_ptr<rdma::Provider>> make_providers(const ExposureSettings& settings,
                                                                                   const Clock& clock);
  /// Called by the lookup's owner once it can answer (the log is opened with its observer before the broker knows it).
  void set_lookup(ExposureLookup lookup);

  // The five APIs. `peer` is of the connection the request came on.
  void connect(ExposurePeer peer, kafka::OneSidedConnectRequest request, Done<kafka::OneSidedConnectResponse> done);
  void grant(ExposurePeer peer, kafka::OneSidedGrantRequest request, Done<kafka::OneSidedGrantResponse> done);
  void renew(ExposurePeer peer, kafka::OneSidedRenewRequest request, Done<kafka::OneSidedRenewResponse> done);
  void wait(ExposurePeer peer, kafka::OneSidedWaitRequest request, Done<kafka::OneSidedWaitResponse> done);
  void release(ExposurePeer peer, kafka::OneSidedReleaseRequest request, Done<kafka::OneSidedReleaseResponse> done);
  /// The TCP connection ended: its sessions are renewed no more, and cut when their leases are over. Any thread.
  void connection_closed(std::uint64_t connection);
  /// Cuts a principal now (its rights were taken away): no lease is waited for by its connections. Any thread.
  void revoke_principal(std::string principal);
  /// No more grants, waits are answered, every reader is cut. `done` on home, soon: leases are not waited for, the
  /// chunks under them stay until this is destroyed.
  void close(Task done);

  [[nodiscard]] const ExposureMetrics& metrics() const;
  /// Name and address of each provider that listens.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> listening() const;

  // LogObserver, on the partition's executor.
  void chunk_opened(Partition& partition, const std::shared_ptr<Chunk>& chunk) override;
  void chunk_sealed(Partition& partition, const std::shared_ptr<Chunk>& chunk) override;
  void chunk_wanted_back(Partition& partition, const std::shared_ptr<Chunk>& chunk, Task done) override;
  void committed(Partition& partition, const Committed& position) override;
  void layout_changed(Partition& partition, LayoutChange change) override;

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace ciuic::broker
