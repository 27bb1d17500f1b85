#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/result.h"
#include "transport/kafka/messages/ciuic_onesided.h"
#include "transport/kafka/types.h"
#include "transport/rdma/provider.h"

namespace ciuic::onesided {

/// A chunk as a grant describes it. Bytes [0, length) of `memory` hold whole batches.
struct GrantedChunk {
  std::uint64_t sequence = 0;
  kafka::Offset base_offset{};
  std::optional<kafka::Offset> next_offset{};  ///< nothing: still growing, its length is the slot's
  std::uint32_t length = 0;                    ///< committed when granted; final where next_offset is there
  std::uint32_t start = 0;                     ///< of the batch that holds the offset asked for; 0 in all but the first
  rdma::RemoteSpan memory{};                   ///< as far as it may grow
};
struct GrantedAborted {
  kafka::ProducerId producer_id{};
  kafka::Offset first_offset{};
  auto operator<=>(const GrantedAborted&) const = default;
};

/// One partition's grant, as a client keeps it. Made from the response by `grant_of`, which checks every number.
struct Grant {
  std::int64_t id = 0;
  kafka::Offset asked{};  ///< the fetch offset of the request
  kafka::Isolation isolation = kafka::Isolation::read_uncommitted;
  kafka::LeaderEpoch leader_epoch{};
  kafka::Offset log_start_offset{};
  kafka::Offset high_watermark{};
  kafka::Offset last_stable_offset{};
  std::uint32_t aborted_count = 0;  ///< the slot's, when granted
  rdma::RemoteSpan slot{};
  std::vector<GrantedChunk> chunks{};     ///< in log order
  std::vector<GrantedAborted> aborted{};  ///< read_committed: overlapping the chunks, below last_stable_offset
  Clock::TimePoint deadline{};            ///< of the lease: counted from when the request was sent, with a margin
};

/// Of the client's own clock: request sent + lease, less a margin of 1/10 (at most 500 ms) for clocks that run apart.
[[nodiscard]] Clock::TimePoint lease_deadline(Clock::TimePoint sent_at, std::int32_t lease_ms);

/// The partition's grant in a response without error. `sent_at`: when the request was sent. Nothing: its numbers make
/// no sense (lengths, order, a growing chunk that is not the last).
[[nodiscard]] std::optional<Grant> grant_of(const kafka::OneSidedGrantResponse::GrantedPartition& from,
                                            kafka::Offset asked, kafka::Isolation isolation, Clock::TimePoint sent_at,
                                            std::int32_t lease_ms);

}  // namespace ciuic::onesided
