#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/onesided/grant.h"
#include "transport/onesided/landings.h"
#include "transport/onesided/slot.h"
#include "transport/rdma/provider.h"

/// The read loop: slot → bytes → check → batches, or one fault whose outcome says what to do. Transport-agnostic: it
/// views in place where the provider maps memory, else it posts READs. It never talks to the broker: asking for grants,
/// renewing and waiting are the caller's (client/core). Next: client/include/ciuic/consumer.h.
namespace ciuic::onesided {

struct ReaderLimits {
  std::uint32_t read_bytes = 1U << 20;  ///< one READ, and one delivery, at most; a larger batch gets its own size
  std::uint32_t batch_bytes_max = 128U << 20;  ///< a batch that claims more is a failed check
  Milliseconds read_timeout{2000};             ///< a READ's own deadline; always within the lease
  int retries_max = 8;                         ///< of a torn slot or a failed check, before it is another fault
};

struct ReaderCounters {
  std::uint64_t slot_reads = 0, data_reads = 0, bytes = 0, batches = 0;
  std::uint64_t reads_ahead = 0;  ///< of the data READs: posted before the bytes before them had been checked
  std::uint64_t torn_slots = 0, failed_checks = 0, read_errors = 0, timeouts = 0;
};

/// What a call of `Reader::read` came to.
struct Delivery {
  /// Whole, checked batches in order; empty: nothing readable now (the tail), or below isolation's bound. The first may
  /// begin before the position asked for, control batches are among them: the caller filters records.
  /// Valid until the next call of the reader; over a mapper also only while the lease lasts (`Reader::deadline`).
  /// Where READs land in a device's memory (`Landings::area`) these are its addresses.
  std::span<const Bytes> batches{};
  std::span<const Bytes> heads{};  ///< the header of each, where the CPU may read it; valid as long
  std::uint64_t bytes = 0;
  kafka::Offset next_offset{};  ///< the position after these batches
  kafka::Offset high_watermark{};
  kafka::Offset last_stable_offset{};
  kafka::Offset log_start_offset{};  ///< above the position: OFFSET_OUT_OF_RANGE, as Fetch would say; batches is empty
  std::uint64_t slot_version = 0;    ///< for OneSidedWait
  bool at_tail = false;              ///< everything readable has been delivered: poll a little, then wait
};

/// Shares an endpoint's completions among the readers of one thread. Outlives them.
class ReadQueue {
 public:
  ReadQueue(std::unique_ptr<rdma::Endpoint> endpoint, const Clock& clock);
  ~ReadQueue();
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  [[nodiscard]] rdma::Endpoint& endpoint() { return *endpoint_; }
  [[nodiscard]] Landings& landings() { return landings_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }
  /// The fault that ended the endpoint, if one did.
  [[nodiscard]] std::optional<rdma::Fault> broken() const { return broken_; }
  /// Takes completions off the endpoint. Never blocks. True if any came.
  bool poll();
  [[nodiscard]] bool reading() const { return in_flight_ > 0; }
  /// The endpoint's `arm`, unless completions have come since: then -1.
  [[nodiscard]] int arm();
  /// Ends the endpoint: pending READs are flushed. Readers answer qp_in_error from then on.
  void close();

  /// A READ under way. Slots are a fixed table: no allocation.
  using Ticket = std::uint32_t;
  static constexpr std::uint32_t tickets_max = 256;
  [[nodiscard]] rdma::Result<Ticket> post(const rdma::RemoteSpan& from, MutableBytes to, Clock::TimePoint deadline);
  /// would_block while it is under way; else its end, once. A READ past its deadline ends the endpoint: read_timed_out,
  /// for what it may still write must not be anybody's.
  [[nodiscard]] rdma::Result<void> take(Ticket ticket);
  /// Nobody will take it. `landing` is what it may still write to: kept until it completed or the endpoint is closed.
  void abandon(Ticket ticket, std::unique_ptr<rdma::Landing> landing);

 private:
  enum class State : std::uint8_t { free, under_way, abandoned, done };
  struct Entry {
    State state = State::free;
    std::optional<rdma::Fault> fault{};
    Clock::TimePoint deadline{};
    std::unique_ptr<rdma::Landing> kept{};
  };
  void break_with(rdma::Fault fault);

  std::unique_ptr<rdma::Endpoint> endpoint_;
  Landings landings_;
  const Clock& clock_;
  std::optional<rdma::Fault> broken_{};
  std::array<Entry, tickets_max> entries_{};
  std::uint32_t next_ = 0;
  std::uint32_t in_flight_ = 0;
};

/// Reads one partition under a grant. One thread (the queue's). No allocation on the steady path.
///
///     for (;;) { auto got = reader.read(); if (got) deliver(*got); else act(outcome_of(got.error())); }
class Reader {
 public:
  Reader(ReadQueue& queue, ReaderLimits limits);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// Takes a grant, and the offset of the first record wanted. A READ under way for the grant before is dropped.
  /// Errors: resources_exhausted, and the endpoint's.
  [[nodiscard]] rdma::Result<void> adopt(Grant grant, kafka::Offset position);
  /// The lease of the grant held was renewed: answered to a request sent at `sent_at`.
  void renewed(Clock::TimePoint sent_at, std::int32_t lease_ms) { renewed(lease_deadline(sent_at, lease_ms)); }
  /// The same, for a deadline computed elsewhere by `lease_deadline`; one that is earlier than the lease's changes
  /// nothing.
  void renewed(Clock::TimePoint deadline) { grant_.deadline = std::max(grant_.deadline, deadline); }
  /// Goes on elsewhere under the same grant.
  void seek(kafka::Offset position);

  /// One step. Never blocks (a mapper's first look at a chunk excepted). Faults and what follows:
  ///   would_block           a READ is under way or the next one due: `queue.poll()`, other readers, then again
  ///   lease_expired         renewing failed or came late: new grant
  ///   layout_changed        bytes go on in chunks that this grant does not name: new grant at `position()`
  ///   position_not_covered  the position is in none of its chunks: new grant
  ///   aborted_list_stale    read_committed: new grant, for its list of aborted transactions
  ///   landing_full          (over a program's memory) let go of batches, then again
  ///   chunk_revoked         bytes or slot stayed wrong over all retries: new grant
  ///   outcome reconnect     the endpoint is finished: a new one, and a new grant
  [[nodiscard]] rdma::Result<Delivery> read();
  /// Keeps the memory of the batches just delivered beyond the next call, while the handle lives; they need not be
  /// copied then. Null: copy them (over a mapper they lie in the broker's memory, a few bytes are not worth a landing,
  /// or much is kept already).
  [[nodiscard]] std::shared_ptr<const void> keep();

  /// The batches just delivered are not needed any more: their piece of a program's memory is free for others' READs.
  void let_go();
  /// Keeps nothing of the landings from others: READs under way are dropped, the next call of `read` begins them anew.
  /// Their memory comes back as they complete. True: it had a piece of a program's memory.
  bool rest();

  [[nodiscard]] kafka::Offset position() const { return position_; }
  /// Bytes that the next READ must be long at least, for the batch at the position; 0: not known to be long.
  [[nodiscard]] std::uint32_t next_batch_bytes() const { return larger_; }
  /// The chunk that is being read, over a mapper; empty: none now.
  [[nodiscard]] Bytes mapped() const { return mapped_; }
  [[nodiscard]] Clock::TimePoint deadline() const { return grant_.deadline; }
  [[nodiscard]] const Grant& grant() const { return grant_; }
  [[nodiscard]] const Slot& slot() const { return slot_; }
  [[nodiscard]] const ReaderCounters& counters() const { return counters_; }

 private:
  enum class Phase : std::uint8_t { idle, slot_read, data_read };
  enum class Walk : std::uint8_t { batches, nothing, larger, failed };
  /// Bytes that arrived, and how the CPU sees the headers in them.
  struct Arrived {
    Bytes bytes{};
    bool in_device = false;  ///< `found_` has the heads; else the bytes themselves
  };

  [[nodiscard]] rdma::Result<Delivery> step();
  [[nodiscard]] rdma::Result<void> refresh_slot();
  [[nodiscard]] rdma::Result<void> accept(const rdma::Result<Slot>& read);
  [[nodiscard]] rdma::Result<Delivery> view_bytes(std::uint32_t limit);
  [[nodiscard]] rdma::Result<Delivery> land_bytes(std::uint32_t limit);
  [[nodiscard]] rdma::Result<void> post_piece();
  [[nodiscard]] rdma::Result<Delivery> judge(Walk walk);
  [[nodiscard]] Walk walk(Arrived arrived, std::uint32_t room);
  [[nodiscard]] rdma::Result<Arrived> look(Bytes landed);
  [[nodiscard]] Bytes head_at(const Arrived& arrived, std::uint32_t at) const;
  [[nodiscard]] rdma::Result<bool> sums_match(const Arrived& arrived);
  [[nodiscard]] Delivery tail() const;
  [[nodiscard]] rdma::Fault failed(rdma::Fault fault, int& retries) const;
  [[nodiscard]] bool select_chunk();
  [[nodiscard]] kafka::Offset bound() const;
  [[nodiscard]] Clock::TimePoint read_deadline() const;
  void read_ahead(const Arrived& landed);
  [[nodiscard]] bool take_ahead();
  void drop_ahead();
  [[nodiscard]] std::uint32_t checked() const;
  void wipe_landing();
  void drop_pending();

  ReadQueue& queue_;
  ReaderLimits limits_;
  Grant grant_{};
  bool has_grant_ = false;
  kafka::Offset position_{};
  Slot slot_{};
  bool slot_fresh_ = false;  // read since the known bytes ran out
  Bytes mapped_slot_{};

  std::size_t chunk_ = 0;  // index in grant_.chunks
  std::uint32_t at_ = 0;   // bytes of it that are behind us
  bool selected_ = false;
  bool aligned_ = false;      // the batch at at_ holds position_, or is the first after it
  std::uint32_t gap_at_ = 0;  // where a gap was seen once, and what followed it
  kafka::Offset gap_base_{-1};
  Bytes mapped_{};  // the selected chunk, over a mapper

  Phase phase_ = Phase::idle;
  ReadQueue::Ticket ticket_ = 0;
  std::uint32_t reading_ = 0;  // bytes asked for from at_ on
  std::uint32_t arrived_ = 0;  // of them
  std::uint32_t larger_ = 0;   // the next batch needs this many
  int slot_retries_ = 0;
  int check_retries_ = 0;
  std::unique_ptr<rdma::Landing> slot_landing_;
  std::unique_ptr<rdma::Landing> landing_;
  std::uint32_t landed_ = 0;  // bytes of landing_ that may hold something
  // The READ of what follows, under way while landing_ is checked and handed out. Nothing but zeros is in its landing
  // before.
  struct Ahead {
    std::size_t chunk = 0;
    std::uint32_t at = 0;
    std::uint32_t reading = 0;  // 0: none is under way
    ReadQueue::Ticket ticket = 0;
    std::unique_ptr<rdma::Landing> landing{};
  } ahead_;
  std::vector<Bytes> batches_;
  std::vector<Bytes> heads_;
  // Of bytes in a device's memory: the heads found there, and what the device has still to check.
  std::vector<device::BatchHead> found_;
  std::size_t found_count_ = 0;
  std::vector<device::Slice> unchecked_;
  std::vector<std::uint32_t> wanted_sums_, sums_;
  kafka::Offset next_position_{};
  std::uint32_t consumed_ = 0;
  std::uint64_t delivered_bytes_ = 0;
  ReaderCounters counters_{};
};

}  // namespace ciuic::onesided
