// A partition's chunks are registered with devices, elsewhere where that pins memory, within their principal's share.
// Not here: how long they stay (partition_exposure.cpp).
#include <algorithm>
#include <utility>

#include "broker/exposure/partition_exposure.h"
#include "transport/base/log.h"

namespace ciuic::broker {

using kafka::ErrorCode;

PartitionExposure::InDomain* PartitionExposure::find(std::uint64_t sequence, const rdma::Domain* domain) {
  const auto exposed = chunks_.find(sequence);
  if (exposed == chunks_.end()) return nullptr;
  const auto in = exposed->second.domains.find(domain);
  return in == exposed->second.domains.end() ? nullptr : &in->second;
}

PartitionExposure::InDomain& PartitionExposure::entry(const std::shared_ptr<Chunk>& chunk,
                                                      const std::shared_ptr<rdma::Domain>& domain) {
  auto& exposed = chunks_[chunk->sequence()];
  exposed.chunk = chunk;
  auto& in = exposed.domains[domain.get()];
  in.domain = domain;
  return in;
}

bool PartitionExposure::registered(const std::vector<Planned>& planned, const std::shared_ptr<rdma::Domain>& domain) {
  return std::all_of(planned.begin(), planned.end(), [&](const Planned& one) {
    const auto* in = find(one.chunk->sequence(), domain.get());
    return in != nullptr && in->state == Registration::there;
  });
}

/// How many of the chunks, from the first on, need no more than that; nothing: not even the slots.
std::optional<std::size_t> PartitionExposure::within(const PinnedShares::Allowance& allowed,
                                                     const std::vector<Planned>& planned,
                                                     const std::shared_ptr<rdma::Domain>& domain) {
  auto left = allowed.amount;
  const auto costs = [&](std::size_t bytes) {
    return allowed.of == PinnedShares::Of::bytes ? static_cast<std::int64_t>(bytes) : 1;
  };
  if (!block_->registered(domain.get())) left -= costs(SlotBlock::bytes);
  if (left < 0) return std::nullopt;
  std::size_t fits = 0;
  for (; fits < planned.size(); ++fits) {
    const auto& chunk = planned[fits].chunk;
    const auto* in = find(chunk->sequence(), domain.get());
    if (in == nullptr || in->state == Registration::none) left -= costs(chunk->memory().size());
    if (left < 0) break;
  }
  return fits;
}

/// Has missing registrations made elsewhere, then attempts the grant again: much may have changed meanwhile. What is
/// under way or ending was given to the worker before, and is done before.
void PartitionExposure::register_first(const std::vector<Planned>& planned, PartitionGrantRequest request,
                                       Answer answer, int attempts_left) {
  const auto domain = request.domain;
  std::vector<std::uint64_t> sequences;
  std::vector<std::shared_ptr<Chunk>> missing;
  for (const auto& one : planned) {
    sequences.push_back(one.chunk->sequence());
    auto& in = entry(one.chunk, domain);
    if (in.state != Registration::none) continue;
    in.state = Registration::under_way;
    missing.push_back(one.chunk);
  }
  auto then = [this, sequences = std::move(sequences), request = std::move(request), answer = std::move(answer),
               attempts_left](std::optional<rdma::Fault> fault) mutable {
    std::size_t there = 0;
    for (const auto sequence : sequences) {
      const auto* in = find(sequence, request.domain.get());
      if (in == nullptr || in->state != Registration::there) break;
      ++there;
    }
    if (fault && (there == 0 || !block_->registered(request.domain.get())))
      return refuse_registration(answer, *request.domain, *fault);
    // What could not be registered is left out of this grant; the reader asks again behind the rest.
    if (fault) request.chunks_max = there;
    attempt(std::move(request), std::move(answer), attempts_left);
  };
  shared_.blocking(
      [weak = weak_from_this(), executor = &executor_, domain, missing = std::move(missing), backing = backing_,
       block = block_, partition = partition_->name().partition.value, then = std::move(then)]() mutable {
        std::optional<rdma::Fault> fault;
        std::vector<Registered> done;
        if (const auto slots = block->remote(domain, partition); !slots) fault = slots.error();
        for (const auto& chunk : missing)
          done.push_back({chunk, domain->expose({chunk->memory(), backing, chunk->memfd_offset()})});
        executor->post([weak, domain, done = std::move(done), fault, then = std::move(then)]() mutable {
          // Without us the regions end with this task, before their memory.
          if (const auto self = weak.lock()) self->registration_done(domain.get(), done, fault, then);
        });
      },
      Turn::last);
}

void PartitionExposure::registration_done(const rdma::Domain* domain, std::vector<Registered>& done,
                                          std::optional<rdma::Fault> fault,
                                          const std::function<void(std::optional<rdma::Fault>)>& then) {
  for (auto& [chunk, region] : done) {
    auto* const in = find(chunk->sequence(), domain);
    if (in == nullptr) continue;
    in->state = Registration::none;
    if (region)
      now_registered(*in, std::move(*region));
    else
      fault = region.error();
    if (std::exchange(in->doomed, false)) {
      fault = rdma::Fault::refused;
      (void)drop_region(chunk->sequence(), *in);
    }
  }
  // The grant may need them all: nothing is dropped before it was attempted.
  then(fault);
  for (const auto& [chunk, region] : done) settle(chunk->sequence());
}

void PartitionExposure::revocation_done(std::uint64_t sequence, const rdma::Domain* domain,
                                        const rdma::Result<void>& revoked) {
  auto* const in = find(sequence, domain);
  if (in == nullptr) return;
  (void)dropped(*in, revoked);
  settle(sequence);
}

void PartitionExposure::now_registered(InDomain& in, rdma::Region region) {
  in.remote = region.remote();
  in.region.emplace(std::move(region));
  in.state = Registration::there;
  in.unwanted = in.gives_way = false;
  if (elsewhere(*in.domain)) shared_.shares->add(in.domain->principal(), in.remote.length);
  shared_.metrics.regions.fetch_add(1);
  shared_.metrics.exposed_bytes.fetch_add(in.remote.length);
}

rdma::Result<PartitionExposure::InDomain*> PartitionExposure::expose(const std::shared_ptr<Chunk>& chunk,
                                                                     const std::shared_ptr<rdma::Domain>& domain) {
  auto& in = entry(chunk, domain);
  if (in.state == Registration::there) return &in;
  auto region = domain->expose({chunk->memory(), backing_, chunk->memfd_offset()});
  if (!region) {
    const auto fault = region.error();
    settle(chunk->sequence());
    return fault;
  }
  now_registered(in, std::move(*region));
  return &in;
}

void PartitionExposure::refuse_registration(const Answer& answer, const rdma::Domain& domain, rdma::Fault fault) {
  log::bounded(log::Level::warn, "exposure", "chunk not exposed topic={} partition={} principal={}: {}; {}",
               partition_->name().topic, partition_->name().partition.value, domain.principal(), rdma::text(fault),
               rdma::remedy(fault));
  const bool no_room = fault == rdma::Fault::resources_exhausted || fault == rdma::Fault::memlock_limit;
  const bool again = no_room && shared_.make_room(domain.principal(), fault);
  refuse(
      answer, RefusalReason::registration_failed,
      {no_room ? ErrorCode::throttling_quota_exceeded : ErrorCode::kafka_storage_error, std::string(rdma::text(fault))},
      again ? shared_.settings.retry_after_ms : -1);
}

void PartitionExposure::refuse_over_share(const Answer& answer) {
  refuse(answer, RefusalReason::over_share,
         {ErrorCode::throttling_quota_exceeded,
          "Memory for readers' devices is short, and this principal has its share of it"},
         -1);
}

}  // namespace ciuic::broker
