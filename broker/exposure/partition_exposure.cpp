// Stop 5 of docs/tour.md: the slot is written here, after the high watermark moved. Also who may read which chunk until
// when. Not here: sessions and requests (exposure.cpp), how chunks are
// registered (registration.cpp). Next: transport/rdma/provider.h
#include "broker/exposure/partition_exposure.h"

#include <algorithm>
#include <utility>

#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;
using kafka::Offset;

/// A partition's memfd, for providers that hand it to another process. It keeps the memory, not the partition.
class PartitionExposure::MemoryBacking final : public rdma::Backing {
 public:
  explicit MemoryBacking(std::shared_ptr<PartitionMemory> memory) : memory_(std::move(memory)) {}
  std::uint64_t id() const override { return memory_->id(); }
  UniqueFd read_only_descriptor() const override { return memory_->read_only_descriptor(); }

 private:
  std::shared_ptr<PartitionMemory> memory_;
};

PartitionExposure::PartitionExposure(const std::shared_ptr<Partition>& partition, std::shared_ptr<SlotBlock> block,
                                     Shared shared)
    : partition_(partition),
      executor_(partition->executor()),
      block_(std::move(block)),
      shared_(std::move(shared)),
      backing_(std::make_shared<MemoryBacking>(partition->memory())),
      writer_(block_->slot(partition->name().partition.value)) {
  committed(partition->committed());
  layout_version_ = writer_.version();
}

PartitionExposure::~PartitionExposure() {
  for (auto& [sequence, exposed] : chunks_) {
    for (auto& [domain, in] : exposed.domains) {
      // What is under way or ending holds all it needs, and ends without us.
      if (in.state == Registration::there) (void)dropped(in, in.region->revoke());
      shared_.metrics.chunk_leases.fetch_sub(static_cast<std::int64_t>(in.leases.size()));
    }
    if (exposed.draining) shared_.metrics.draining_chunks.fetch_sub(1);
  }
  // Its registrations may end with it.
  if (shared_.blocking) shared_.blocking([block = std::move(block_)] {}, Turn::first);
}

// --- Slot ---

void PartitionExposure::committed(const Committed& position) {
  if (position.last_stable_offset > slot_.last_stable_offset && slot_.version != 0 &&
      !partition_->aborted_between(slot_.last_stable_offset, position.last_stable_offset).empty())
    ++slot_.aborted_count;
  slot_.leader_epoch = std::max(position.leader_epoch, slot_.leader_epoch);
  slot_.log_start_offset = position.log_start_offset;
  slot_.high_watermark = position.high_watermark;
  slot_.last_stable_offset = std::max(position.last_stable_offset, position.log_start_offset);
  slot_.chunk_sequence = position.chunk_sequence;
  slot_.chunk_length = position.chunk_length;
  write_slot();
  wake();
}

void PartitionExposure::layout_changed(LayoutChange change) {
  ++slot_.layout;
  if (change == LayoutChange::partition_closed) {
    slot_.flags |= onesided::slot_flag::sealed;
    closed_ = true;
  }
  write_slot();
  layout_version_ = writer_.version();
  wake();
}

void PartitionExposure::write_slot() {
  writer_.write(slot_);
  slot_.version = writer_.version();
  shared_.metrics.slot_writes_total.fetch_add(1, std::memory_order_relaxed);
}

void PartitionExposure::wait(std::int64_t grant_id, Offset offset, kafka::Isolation isolation,
                             std::uint64_t slot_version, std::weak_ptr<WaitTicket> ticket) {
  // Readers that came and went leave their tickets here until the log moves.
  if (waiters_.size() >= 64) std::erase_if(waiters_, [](const Waiter& waiter) { return waiter.ticket.expired(); });
  // One that is named while it is waited for already is waited for as it was named last.
  const auto same = std::find_if(waiters_.begin(), waiters_.end(),
                                 [grant_id](const Waiter& waiter) { return waiter.grant_id == grant_id; });
  Waiter waiter{grant_id, offset, isolation, slot_version, std::move(ticket)};
  if (same == waiters_.end())
    waiters_.push_back(std::move(waiter));
  else
    *same = std::move(waiter);
  wake();
}

void PartitionExposure::wake() {
  if (waiters_.empty()) return;
  std::erase_if(waiters_, [this](const Waiter& waiter) {
    const auto ticket = waiter.ticket.lock();
    if (!ticket) return true;
    const auto end =
        waiter.isolation == kafka::Isolation::read_committed ? slot_.last_stable_offset : slot_.high_watermark;
    if (end <= waiter.offset && slot_.log_start_offset <= waiter.offset && layout_version_ <= waiter.slot_version &&
        !closed_)
      return false;
    ticket->ready(waiter.grant_id);
    return true;
  });
}

// --- Grant ---

void PartitionExposure::grant(PartitionGrantRequest request, Answer answer) {
  attempt(std::move(request), std::move(answer), 3);
}

void PartitionExposure::refuse(const Answer& answer, RefusalReason reason, kafka::Error error,
                               std::int32_t retry_after_ms) {
  PartitionGrantAnswer refused;
  refused.error = std::move(error);
  refused.reason = reason;
  refused.retry_after_ms = retry_after_ms;
  refused.grant.log_start_offset = partition_->log_start_offset();
  refused.grant.high_watermark = partition_->high_watermark();
  refused.grant.last_stable_offset = partition_->last_stable_offset();
  refused.grant.leader_epoch = partition_->latest_leader_epoch();
  answer(std::move(refused));
}

/// Chunks from `offset` on; at the log end the open one, so that a reader at the tail need not ask again at every
/// append.
std::vector<std::shared_ptr<Chunk>> PartitionExposure::chunks_for(const Partition& log, Offset offset) const {
  auto chunks = log.chunks_from(offset, shared_.settings.chunks_per_grant_max);
  if (chunks.empty() && offset == log.log_end_offset() && offset > log.log_start_offset())
    if (auto last = log.resident(offset - 1);
        last && last->state() == ChunkState::open && last->next_offset() == offset)
      chunks.push_back(std::move(last));
  return chunks;
}

void PartitionExposure::attempt(PartitionGrantRequest request, Answer answer, int attempts_left) {
  const auto& log = partition_;
  if (closed_) return refuse(answer, RefusalReason::unknown_partition, ErrorCode::not_leader_or_follower);
  if (log->offline()) return refuse(answer, RefusalReason::storage_error, ErrorCode::kafka_storage_error);
  const auto epoch = log->latest_leader_epoch().value;
  if (request.current_leader_epoch >= 0 && epoch >= 0 && request.current_leader_epoch != epoch)
    return refuse(
        answer, RefusalReason::stale_epoch,
        request.current_leader_epoch < epoch ? ErrorCode::fenced_leader_epoch : ErrorCode::unknown_leader_epoch);
  if (request.offset < log->log_start_offset() || request.offset > log->log_end_offset())
    return refuse(answer, RefusalReason::out_of_range, ErrorCode::offset_out_of_range);

  const auto position = log->committed();
  const auto chunks = chunks_for(*log, request.offset);
  if (chunks.empty() && request.offset < position.high_watermark) {
    if (attempts_left == 0)
      return refuse(answer, RefusalReason::no_memory, ErrorCode::throttling_quota_exceeded,
                    shared_.settings.retry_after_ms);
    return bring_in(std::move(request), std::move(answer), attempts_left - 1, request.offset);
  }
  auto planned = plan(chunks, request, position);
  // It comes back only when its leases are over: Fetch can read it meanwhile.
  if (planned.empty() && request.offset < position.high_watermark)
    return refuse(answer, RefusalReason::draining,
                  {ErrorCode::throttling_quota_exceeded, "These bytes are being taken out of memory"}, -1);
  const auto domain = request.domain;
  if (elsewhere(*domain)) {
    const auto giving = std::find_if(planned.begin(), planned.end(), [&](const Planned& one) {
      const auto* in = find(one.chunk->sequence(), domain.get());
      return in != nullptr && in->gives_way;
    });
    if (!planned.empty() && giving == planned.begin()) return refuse_over_share(answer);
    planned.erase(giving, planned.end());
  }
  if (elsewhere(*domain) && (!registered(planned, domain) || !block_->registered(domain.get()))) {
    if (const auto allowed = shared_.shares->allowance(domain->principal()); allowed) {
      const auto fits = within(*allowed, planned, domain);
      if (!fits || (*fits == 0 && !planned.empty())) return refuse_over_share(answer);
      planned.resize(*fits);
      request.chunks_max = std::min(request.chunks_max, *fits);
    }
    if (attempts_left == 0)
      return refuse(answer, RefusalReason::no_memory, ErrorCode::throttling_quota_exceeded,
                    shared_.settings.retry_after_ms);
    return register_first(planned, std::move(request), std::move(answer), attempts_left - 1);
  }
  grant_chunks(request, answer, position, planned);
}

/// The chunks that a grant names: as many as were asked for, up to one that still grows.
std::vector<PartitionExposure::Planned> PartitionExposure::plan(const std::vector<std::shared_ptr<Chunk>>& chunks,
                                                                const PartitionGrantRequest& request,
                                                                const Committed& position) const {
  std::vector<Planned> planned;
  const auto wanted = std::min<std::uint64_t>(request.bytes_wanted, shared_.settings.bytes_per_grant_max);
  std::uint64_t bytes = 0;
  for (const auto& chunk : chunks) {
    if (chunk->state() != ChunkState::open && chunk->state() != ChunkState::sealed) break;
    if (planned.size() >= request.chunks_max) break;
    const bool holds_the_end = chunk->sequence() == position.chunk_sequence;
    const bool whole =
        chunk->state() == ChunkState::sealed &&
        (holds_the_end ? position.chunk_length == chunk->length() : chunk->next_offset() <= position.high_watermark);
    const auto length = whole ? chunk->length() : holds_the_end ? position.chunk_length : 0U;
    const auto start = planned.empty() ? std::min(chunk->position_of(request.offset), length) : 0U;
    planned.push_back({chunk, whole, start, length});
    bytes += length - start;
    if (!whole || bytes >= wanted) break;
  }
  return planned;
}

void PartitionExposure::grant_chunks(const PartitionGrantRequest& request, const Answer& answer,
                                     const Committed& position, const std::vector<Planned>& planned) {
  const auto& log = partition_;
  PartitionGrantAnswer granted;
  auto& grant = granted.grant;
  auto lease = std::make_shared<Lease>(shared_.clock.now() + Milliseconds(shared_.settings.lease_ms));
  std::vector<InDomain*> covered;
  for (const auto& [chunk, whole, start, length] : planned) {
    const auto in = expose(chunk, request.domain);
    if (!in) {
      if (!grant.chunks.empty()) break;
      return refuse_registration(answer, *request.domain, in.error());
    }
    onesided::GrantedChunk one;
    one.sequence = chunk->sequence();
    one.base_offset = std::max(std::min(chunk->covers_from(), chunk->base_offset()), Offset(0));
    if (whole) one.next_offset = chunk->next_offset();
    one.length = length;
    one.start = start;
    one.memory = (*in)->remote;
    grant.chunks.push_back(one);
    covered.push_back(*in);
    if (shared_.arena) chunk->touch(shared_.arena->tick());
  }
  // Neighbouring chunks may claim the same gap: each begins where the one before ends.
  for (std::size_t i = 1; i < grant.chunks.size(); ++i)
    grant.chunks[i].base_offset = std::max(grant.chunks[i].base_offset, *grant.chunks[i - 1].next_offset);

  const auto slot = block_->remote(request.domain, log->name().partition.value);
  if (!slot)
    return refuse(answer, RefusalReason::registration_failed,
                  {ErrorCode::kafka_storage_error, std::string(rdma::text(slot.error()))}, -1);
  grant.id = request.grant_id;
  grant.isolation = request.isolation;
  grant.leader_epoch = slot_.leader_epoch;
  grant.log_start_offset = position.log_start_offset;
  grant.high_watermark = position.high_watermark;
  grant.last_stable_offset = position.last_stable_offset;
  grant.aborted_count = slot_.aborted_count;
  grant.slot = *slot;
  if (request.isolation == kafka::Isolation::read_committed)
    for (const auto& aborted : log->aborted_between(request.offset, position.last_stable_offset))
      grant.aborted.push_back({aborted.producer_id, aborted.first_offset});
  for (auto* in : covered) in->leases.push_back(lease);
  shared_.metrics.chunk_leases.fetch_add(static_cast<std::int64_t>(covered.size()));
  granted.lease = std::move(lease);
  const auto next = grant.chunks.empty() ? std::nullopt : grant.chunks.back().next_offset;
  answer(std::move(granted));
  if (next) read_ahead(*log, *next, position.high_watermark);
}

void PartitionExposure::bring_in(PartitionGrantRequest request, Answer answer, int attempts_left, Offset offset) {
  shared_.metrics.bring_ins_total.fetch_add(1);
  const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      std::max<std::uint64_t>(request.bytes_wanted, 64U << 10), shared_.settings.read_ahead_bytes));
  partition_->bring_in(offset, bytes, MemoryFor::exposure,
                       [weak = weak_from_this(), request = std::move(request), answer = std::move(answer),
                        attempts_left](const ResultOf<std::shared_ptr<Chunk>, kafka::Error>& chunk) mutable {
                         const auto self = weak.lock();  // the log holds this callback, and must not hold us
                         if (!self) return;
                         if (chunk) return self->attempt(std::move(request), std::move(answer), attempts_left);
                         if (chunk.error().code == ErrorCode::throttling_quota_exceeded)
                           return self->refuse(answer, RefusalReason::no_memory, chunk.error(),
                                               self->shared_.settings.retry_after_ms);
                         const bool range = chunk.error().code == ErrorCode::offset_out_of_range;
                         self->refuse(answer, range ? RefusalReason::out_of_range : RefusalReason::storage_error,
                                      chunk.error(), range ? 0 : -1);
                       });
}

/// A reader of old data asks for what follows next: it shall find it in memory.
void PartitionExposure::read_ahead(Partition& log, Offset next, Offset high_watermark) {
  if (reading_ahead_ || shared_.settings.read_ahead_bytes == 0 || next >= high_watermark || log.resident(next)) return;
  reading_ahead_ = true;
  log.bring_in(next, shared_.settings.read_ahead_bytes, MemoryFor::exposure,
               [weak = weak_from_this()](const ResultOf<std::shared_ptr<Chunk>, kafka::Error>&) {
                 if (const auto self = weak.lock()) self->reading_ahead_ = false;
               });
}

// --- Taking back ---

void PartitionExposure::chunk_wanted_back(const std::shared_ptr<Chunk>& chunk, Task done) {
  const auto found = chunks_.find(chunk->sequence());
  if (found == chunks_.end()) return done();
  auto& exposed = found->second;
  exposed.draining = true;
  exposed.done = std::move(done);
  shared_.metrics.draining_chunks.fetch_add(1);
  std::optional<Clock::TimePoint> last;
  for (auto& [domain, in] : exposed.domains)
    for (const auto& lease : in.leases)
      last = std::max(last.value_or(shared_.clock.now()), lease->freeze() + Milliseconds(shared_.settings.read_ms_max));
  if (settle(found->first, exposed)) {
    chunks_.erase(found);
    return;
  }
  if (!last) return;  // registrations alone: `revocation_done`
  executor_.post_at(*last, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->sweep();
  });
}

void PartitionExposure::passed(const Lease& lease, Offset position) {
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    auto& exposed = at->second;
    const bool behind = exposed.chunk->state() != ChunkState::open && exposed.chunk->next_offset() <= position;
    bool reads = false;
    for (auto& [domain, in] : exposed.domains) {
      const auto mine =
          std::find_if(in.leases.begin(), in.leases.end(), [&](const auto& one) { return one.get() == &lease; });
      if (mine == in.leases.end()) continue;
      reads = true;
      if (!behind) continue;
      in.leases.erase(mine);
      shared_.metrics.chunk_leases.fetch_sub(1);
      shared_.metrics.revocations[static_cast<std::size_t>(RevocationReason::position_passed)].fetch_add(1);
    }
    if (reads && !behind && shared_.arena) exposed.chunk->touch(shared_.arena->tick());
    at = settle(at->first, exposed) ? chunks_.erase(at) : std::next(at);
  }
}

void PartitionExposure::released(const Lease& lease, std::int64_t grant_id) {
  std::erase_if(waiters_, [grant_id](const Waiter& waiter) { return waiter.grant_id == grant_id; });
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    for (auto& [domain, in] : at->second.domains) {
      const auto gone = std::erase_if(in.leases, [&](const auto& one) { return one.get() == &lease; });
      shared_.metrics.chunk_leases.fetch_sub(static_cast<std::int64_t>(gone));
      shared_.metrics.revocations[static_cast<std::size_t>(RevocationReason::released)].fetch_add(
          static_cast<std::int64_t>(gone));
    }
    at = settle(at->first, at->second) ? chunks_.erase(at) : std::next(at);
  }
}

void PartitionExposure::sweep() {
  std::map<const rdma::Domain*, bool> may_read;  // asked once a sweep
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    auto& exposed = at->second;
    for (auto& [domain, in] : exposed.domains) {
      drop_leases_over(in, exposed.draining ? RevocationReason::chunk_wanted_back
                           : in.gives_way   ? RevocationReason::gave_way
                                            : RevocationReason::lease_over);
      // A registration that outlives its leases does not outlive the right to read.
      if (!in.leases.empty() || !keeps(exposed, in)) continue;
      auto asked = may_read.find(domain);
      if (asked == may_read.end())
        asked =
            may_read.emplace(domain, shared_.may_read(std::string(in.domain->principal()), partition_->name().topic))
                .first;
      in.unwanted = !asked->second;
    }
    at = settle(at->first, exposed) ? chunks_.erase(at) : std::next(at);
  }
  std::erase_if(waiters_, [](const Waiter& waiter) { return waiter.ticket.expired(); });
}

void PartitionExposure::drop_leases_over(InDomain& in, RevocationReason reason) {
  const auto now = shared_.clock.now();
  const auto gone = std::erase_if(
      in.leases, [&](const auto& lease) { return lease->over(now, Milliseconds(shared_.settings.read_ms_max)); });
  shared_.metrics.chunk_leases.fetch_sub(static_cast<std::int64_t>(gone));
  shared_.metrics.revocations[static_cast<std::size_t>(reason)].fetch_add(static_cast<std::int64_t>(gone));
}

/// Pinning a GiB takes a tenth of a second and more: a registration that cost so much stays for the principal's next
/// grant, until the log wants the chunk back or the principal has no session, or no right, any more.
bool PartitionExposure::keeps(const Exposed& exposed, const InDomain& in) const {
  return elsewhere(*in.domain) && in.state == Registration::there && !in.unwanted && !in.gives_way &&
         !exposed.draining && !closed_;
}

/// Drops what no lease covers. True: nothing of the chunk is exposed any more, its entry may go.
bool PartitionExposure::settle(std::uint64_t sequence, Exposed& exposed) {
  for (auto at = exposed.domains.begin(); at != exposed.domains.end();) {
    const auto& in = at->second;
    const bool gone = in.leases.empty() && !keeps(exposed, in) && drop_region(sequence, at->second);
    at = gone ? exposed.domains.erase(at) : std::next(at);
  }
  if (!exposed.domains.empty()) return false;
  if (exposed.draining) shared_.metrics.draining_chunks.fetch_sub(1);
  if (exposed.done) exposed.done();
  return true;
}

void PartitionExposure::settle(std::uint64_t sequence) {
  const auto found = chunks_.find(sequence);
  if (found != chunks_.end() && settle(sequence, found->second)) chunks_.erase(found);
}

/// True: nothing is registered any more. False: later (`revocation_done`), or never.
bool PartitionExposure::drop_region(std::uint64_t sequence, InDomain& in) {
  if (in.state != Registration::there) return in.state == Registration::none;
  if (!elsewhere(*in.domain)) return dropped(in, in.region->revoke());
  in.state = Registration::ending;
  shared_.blocking(
      [weak = weak_from_this(), executor = &executor_, domain = in.domain, chunk = chunks_.at(sequence).chunk,
       region = std::move(*in.region)]() mutable {
        const auto revoked = region.revoke();
        executor->post([weak, domain, chunk, revoked] {
          if (const auto self = weak.lock()) self->revocation_done(chunk->sequence(), domain.get(), revoked);
        });
      },
      Turn::first);
  return false;
}

bool PartitionExposure::dropped(InDomain& in, const rdma::Result<void>& revoked) {
  in.state = Registration::none;
  in.region.reset();
  end_share(in);
  shared_.metrics.regions.fetch_sub(1);
  shared_.metrics.exposed_bytes.fetch_sub(in.remote.length);
  if (revoked) return true;
  shared_.metrics.deregister_failures_total.fetch_add(1);
  log::error("exposure", "a region could not be deregistered, its memory is lost until restart: {}",
             rdma::text(revoked.error()));
  // As if a reader held it for ever.
  in.leases.push_back(std::make_shared<Lease>(Lease::for_ever));
  shared_.metrics.chunk_leases.fetch_add(1);
  return false;
}

void PartitionExposure::drop_kept(const std::string& principal) {
  for (auto at = chunks_.begin(); at != chunks_.end();) {
    for (auto& [domain, in] : at->second.domains)
      if (in.leases.empty() && keeps(at->second, in) && (principal.empty() || domain->principal() == principal))
        in.unwanted = true;
    at = settle(at->first, at->second) ? chunks_.erase(at) : std::next(at);
  }
}

void PartitionExposure::end_share(InDomain& in) {
  if (elsewhere(*in.domain) && !std::exchange(in.gives_way, false))
    shared_.shares->remove(in.domain->principal(), in.remote.length);
}

void PartitionExposure::give_way(const PinnedShares::Excess& of, std::atomic<std::int64_t>& amount) {
  for (auto& [sequence, exposed] : chunks_) {
    for (auto& [domain, in] : exposed.domains) {
      if (in.state != Registration::there || in.gives_way || domain->principal() != of.principal) continue;
      const std::int64_t each = of.of == PinnedShares::Of::bytes ? in.remote.length : 1;
      if (amount.fetch_sub(each) <= 0) return;
      end_share(in);
      in.gives_way = true;
      for (const auto& lease : in.leases) (void)lease->freeze();
    }
  }
}

void PartitionExposure::drop_domain(const rdma::Domain* domain) {
  for (auto& [sequence, exposed] : chunks_) {
    const auto found = exposed.domains.find(domain);
    if (found == exposed.domains.end()) continue;
    found->second.unwanted = true;
    for (const auto& lease : found->second.leases) (void)lease->freeze();
    shared_.metrics.revocations[static_cast<std::size_t>(RevocationReason::forced)].fetch_add(
        static_cast<std::int64_t>(found->second.leases.size()));
    found->second.doomed = found->second.state == Registration::under_way;
    (void)drop_region(sequence, found->second);
  }
}

}  // namespace ciuic::broker
