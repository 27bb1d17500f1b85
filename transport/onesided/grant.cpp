// Grants as they come over the wire become values that the reader may trust.
#include "transport/onesided/grant.h"

#include <algorithm>
#include <limits>

#include "transport/onesided/slot.h"

namespace ciuic::onesided {

namespace {

std::optional<rdma::RemoteSpan> span_of(std::int64_t address, std::int32_t length, std::int64_t key) {
  if (length <= 0) return std::nullopt;
  const auto from = static_cast<std::uint64_t>(address);
  if (from > std::numeric_limits<std::uint64_t>::max() - static_cast<std::uint64_t>(length)) return std::nullopt;
  return rdma::RemoteSpan{from, static_cast<std::uint32_t>(length), static_cast<std::uint64_t>(key)};
}

}  // namespace

Clock::TimePoint lease_deadline(Clock::TimePoint sent_at, std::int32_t lease_ms) {
  const auto lease = std::max(lease_ms, 0);
  return sent_at + Milliseconds(lease - std::min(lease / 10, 500));
}

std::optional<Grant> grant_of(const kafka::OneSidedGrantResponse::GrantedPartition& from, kafka::Offset asked,
                              kafka::Isolation isolation, Clock::TimePoint sent_at, std::int32_t lease_ms) {
  Grant grant;
  grant.id = from.grant_id;
  grant.asked = asked;
  grant.isolation = isolation;
  grant.leader_epoch = kafka::LeaderEpoch(from.leader_epoch);
  grant.log_start_offset = kafka::Offset(from.log_start_offset);
  grant.high_watermark = kafka::Offset(from.high_watermark);
  grant.last_stable_offset = kafka::Offset(from.last_stable_offset);
  grant.aborted_count = static_cast<std::uint32_t>(from.aborted_count);
  const auto slot = span_of(from.slot.address, from.slot.length, from.slot.key);
  if (!slot || slot->length != slot_bytes) return std::nullopt;
  grant.slot = *slot;
  grant.chunks.reserve(from.chunks.size());
  auto covered_to = std::numeric_limits<std::int64_t>::min();
  for (const auto& chunk : from.chunks) {
    const auto memory = span_of(chunk.address, chunk.capacity, chunk.key);
    const bool growing = chunk.next_offset == -1;
    const bool in_order = chunk.base_offset >= 0 && chunk.base_offset >= covered_to && covered_to != -1 &&
                          (growing || chunk.next_offset > chunk.base_offset);
    if (!memory || !in_order || chunk.length < 0 || chunk.length > chunk.capacity || chunk.start < 0 ||
        chunk.start > chunk.length)
      return std::nullopt;
    grant.chunks.push_back({static_cast<std::uint64_t>(chunk.sequence), kafka::Offset(chunk.base_offset),
                            growing ? std::nullopt : std::optional(kafka::Offset(chunk.next_offset)),
                            static_cast<std::uint32_t>(chunk.length), static_cast<std::uint32_t>(chunk.start),
                            *memory});
    covered_to = chunk.next_offset;
  }
  if (from.aborted_transactions) {
    grant.aborted.reserve(from.aborted_transactions->size());
    for (const auto& aborted : *from.aborted_transactions)
      grant.aborted.push_back({kafka::ProducerId(aborted.producer_id), kafka::Offset(aborted.first_offset)});
  }
  grant.deadline = lease_deadline(sent_at, lease_ms);
  return grant;
}

}  // namespace ciuic::onesided
