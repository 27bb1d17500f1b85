#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "broker/exposure/exposure.h"
#include "broker/exposure/lease.h"
#include "broker/exposure/shares.h"
#include "broker/exposure/slot_block.h"
#include "broker/log/partition.h"
#include "transport/onesided/grant.h"

namespace ciuic::broker {

/// A long poll, shared by the partitions it waits for. `ready` may be called on any thread, any number of times.
struct WaitTicket {
  std::function<void(std::int64_t grant_id)> ready;
};

/// What a grant of one partition needs.
struct PartitionGrantRequest {
  kafka::Offset offset{};
  std::uint64_t bytes_wanted = 0;
  std::int32_t current_leader_epoch = -1;
  kafka::Isolation isolation = kafka::Isolation::read_uncommitted;
  std::int64_t grant_id = 0;
  std::shared_ptr<rdma::Domain> domain{};
  std::size_t chunks_max = std::numeric_limits<std::size_t>::max();
};
struct PartitionGrantAnswer {
  onesided::Grant grant{};         ///< its deadline is not set: that is the client's
  std::shared_ptr<Lease> lease{};  ///< null: refused
  kafka::Error error{};
  std::int32_t retry_after_ms = 0;
  RefusalReason reason = RefusalReason::bad_request;
};

/// The exposure of one partition: slot, exposed chunks with who may read them, waiters. Made at the first grant. Only
/// on the partition's executor.
class PartitionExposure : public std::enable_shared_from_this<PartitionExposure> {
 public:
  struct Shared {  // of the Exposure
    const ExposureSettings& settings;
    const Clock& clock;
    ExposureMetrics& metrics;
    std::shared_ptr<Arena> arena;                     // may be null
    const std::function<void(Task, Turn)>& blocking;  // may be null
    const std::function<bool(const std::string& principal, const std::string& topic)>& may_read;
    // Core::make_room
    const std::function<bool(std::string_view principal, rdma::Fault fault)>& make_room;
    std::shared_ptr<PinnedShares> shares;
  };
  using Answer = std::function<void(PartitionGrantAnswer)>;

  PartitionExposure(const std::shared_ptr<Partition>& partition, std::shared_ptr<SlotBlock> block, Shared shared);
  ~PartitionExposure();

  /// Answers once, on this executor; may have to bring bytes in first.
  void grant(PartitionGrantRequest request, Answer answer);
  /// The reader needs nothing below `position` any more, and is alive.
  void passed(const Lease& lease, kafka::Offset position);
  void released(const Lease& lease, std::int64_t grant_id);
  void wait(std::int64_t grant_id, kafka::Offset offset, kafka::Isolation isolation, std::uint64_t slot_version,
            std::weak_ptr<WaitTicket> ticket);

  void chunk_wanted_back(const std::shared_ptr<Chunk>& chunk, Task done);
  void committed(const Committed& position);
  void layout_changed(LayoutChange change);
  /// Leases that are over go, and regions that no lease covers; drained chunks are given back.
  void sweep();
  /// Registrations of a domain go now, whatever leases say.
  void drop_domain(const rdma::Domain* domain);
  /// Registrations that no lease covers go, of one principal or (empty) of all: others want their room.
  void drop_kept(const std::string& principal);
  /// The principal's registrations go as its leases run out, which are renewed no more: as many as `amount` says, which
  /// is lessened by them.
  void give_way(const PinnedShares::Excess& of, std::atomic<std::int64_t>& amount);
  /// No reader can hold anything of it, and the partition is closed.
  [[nodiscard]] bool finished() const { return closed_ && chunks_.empty(); }
  /// For tests and metrics.
  [[nodiscard]] std::size_t exposed_chunks() const { return chunks_.size(); }

 private:
  enum class Registration : std::uint8_t { none, under_way, there, ending };
  struct InDomain {
    std::shared_ptr<rdma::Domain> domain;  // outlives the region
    Registration state = Registration::none;
    bool doomed = false;  // while under way: what comes of it is not wanted any more
    std::optional<rdma::Region> region{};
    rdma::RemoteSpan remote{};
    bool unwanted = false;   // its principal may not read this any more
    bool gives_way = false;  // others want its room: no new leases, and no more of its principal's share
    std::vector<std::shared_ptr<Lease>> leases{};
  };
  struct Registered {
    std::shared_ptr<Chunk> chunk;  // outlives the region
    rdma::Result<rdma::Region> region;
  };
  /// A chunk that a grant should name.
  struct Planned {
    std::shared_ptr<Chunk> chunk;
    bool whole;  // its bytes are final and committed
    std::uint32_t start;
    std::uint32_t length;
  };
  struct Exposed {
    std::shared_ptr<Chunk> chunk;
    std::map<const rdma::Domain*, InDomain> domains;
    bool draining = false;
    Task done;
  };
  struct Waiter {
    std::int64_t grant_id;
    kafka::Offset offset;
    kafka::Isolation isolation;
    std::uint64_t slot_version;
    std::weak_ptr<WaitTicket> ticket;
  };
  class MemoryBacking;

  void attempt(PartitionGrantRequest request, Answer answer, int attempts_left);
  void bring_in(PartitionGrantRequest request, Answer answer, int attempts_left, kafka::Offset offset);
  void read_ahead(Partition& log, kafka::Offset next, kafka::Offset high_watermark);
  [[nodiscard]] std::vector<std::shared_ptr<Chunk>> chunks_for(const Partition& log, kafka::Offset offset) const;
  [[nodiscard]] std::vector<Planned> plan(const std::vector<std::shared_ptr<Chunk>>& chunks,
                                          const PartitionGrantRequest& request, const Committed& position) const;
  void grant_chunks(const PartitionGrantRequest& request, const Answer& answer, const Committed& position,
                    const std::vector<Planned>& planned);
  [[nodiscard]] bool registered(const std::vector<Planned>& planned, const std::shared_ptr<rdma::Domain>& domain);
  [[nodiscard]] std::optional<std::size_t> within(const PinnedShares::Allowance& allowed,
                                                  const std::vector<Planned>& planned,
                                                  const std::shared_ptr<rdma::Domain>& domain);
  void register_first(const std::vector<Planned>& planned, PartitionGrantRequest request, Answer answer,
                      int attempts_left);
  void registration_done(const rdma::Domain* domain, std::vector<Registered>& done, std::optional<rdma::Fault> fault,
                         const std::function<void(std::optional<rdma::Fault>)>& then);
  void revocation_done(std::uint64_t sequence, const rdma::Domain* domain, const rdma::Result<void>& revoked);
  void now_registered(InDomain& in, rdma::Region region);
  [[nodiscard]] InDomain* find(std::uint64_t sequence, const rdma::Domain* domain);
  [[nodiscard]] InDomain& entry(const std::shared_ptr<Chunk>& chunk, const std::shared_ptr<rdma::Domain>& domain);
  [[nodiscard]] rdma::Result<InDomain*> expose(const std::shared_ptr<Chunk>& chunk,
                                               const std::shared_ptr<rdma::Domain>& domain);
  void refuse_registration(const Answer& answer, const rdma::Domain& domain, rdma::Fault fault);
  void refuse_over_share(const Answer& answer);
  [[nodiscard]] bool elsewhere(const rdma::Domain& domain) const { return shared_.blocking && domain.pins_memory(); }
  bool drop_region(std::uint64_t sequence, InDomain& in);
  bool dropped(InDomain& in, const rdma::Result<void>& revoked);
  void drop_leases_over(InDomain& in, RevocationReason reason);
  [[nodiscard]] bool keeps(const Exposed& exposed, const InDomain& in) const;
  void end_share(InDomain& in);
  bool settle(std::uint64_t sequence, Exposed& exposed);
  void settle(std::uint64_t sequence);
  void write_slot();
  void wake();
  void refuse(const Answer& answer, RefusalReason reason, kafka::Error error, std::int32_t retry_after_ms = 0);

  std::shared_ptr<Partition> partition_;  // kept: its address names this
  Executor& executor_;
  std::shared_ptr<SlotBlock> block_;
  Shared shared_;
  std::shared_ptr<const rdma::Backing> backing_;
  onesided::SlotWriter writer_;
  onesided::Slot slot_;
  std::uint64_t layout_version_ = 0;
  bool closed_ = false;
  bool reading_ahead_ = false;
  std::map<std::uint64_t, Exposed> chunks_;  // by sequence
  std::vector<Waiter> waiters_;
};

}  // namespace ciuic::broker
