// The read loop of one partition. Slot first, then bytes below its committed position, then the check; a retry reads
// again, everything else is the caller's. Not here: talking to the broker (client/core).
#include "transport/onesided/reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/log.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::onesided {

using kafka::Offset;
using rdma::Fault;
using rdma::Result;

Reader::Reader(ReadQueue& queue, ReaderLimits limits) : queue_(queue), limits_(limits) {
  batches_.reserve(256);
  heads_.reserve(256);
}

Reader::~Reader() { drop_pending(); }

Result<void> Reader::adopt(Grant grant, Offset position) {
  if (const auto broken = queue_.broken()) return *broken;
  drop_pending();
  // Another partition's bytes, or the same ones of another life, must not be taken for fresh.
  wipe_landing();
  if (!(has_grant_ && grant_.slot == grant.slot)) slot_ = Slot{};
  grant_ = std::move(grant);
  has_grant_ = true;
  slot_fresh_ = false;
  slot_retries_ = check_retries_ = 0;
  mapped_slot_ = {};
  if (auto* mapper = queue_.endpoint().mapper()) {
    const auto slot = mapper->view(grant_.slot);
    if (!slot) return slot.error();
    mapped_slot_ = *slot;
  }
  seek(position);
  return {};
}

void Reader::seek(Offset position) {
  drop_pending();
  wipe_landing();
  position_ = position;
  selected_ = false;
  chunk_ = 0;
  at_ = 0;
  larger_ = 0;
}

Result<Delivery> Reader::read() {
  if (!has_grant_) return Fault::position_not_covered;
  if (const auto broken = queue_.broken()) return *broken;
  if (queue_.clock().now() >= grant_.deadline) {
    drop_pending();
    return Fault::lease_expired;
  }
  auto got = step();
  // Whatever was checked was checked too late if the lease ran out meanwhile (a stopped process wakes up here).
  if (got && !got->batches.empty() && queue_.clock().now() >= grant_.deadline) {
    seek(position_);
    return Fault::lease_expired;
  }
  if (got && !got->batches.empty()) {
    position_ = next_position_;
    at_ += consumed_;
    aligned_ = true;
    slot_fresh_ = false;  // it was read before these bytes: the tail is told from a later one
    counters_.batches += got->batches.size();
    counters_.bytes += got->bytes;
  }
  return got;
}

Result<Delivery> Reader::step() {
  // Over a mapper the slot costs a cache line: look every time. Else only when the known bytes ran out.
  if (!mapped_slot_.empty()) slot_fresh_ = false;
  for (int round = 0; round < 64; ++round) {
    if (phase_ == Phase::data_read) return land_bytes(reading_);
    if (slot_.version == 0 || !mapped_slot_.empty() || phase_ == Phase::slot_read) {
      if (!slot_fresh_)
        if (const auto refreshed = refresh_slot(); !refreshed) return refreshed.error();
    }
    if (position_ < slot_.log_start_offset) {
      if (slot_fresh_) return tail();
      if (const auto refreshed = refresh_slot(); !refreshed) return refreshed.error();
      continue;
    }
    const auto end = bound();
    if (position_ < end && select_chunk()) {
      auto& chunk = grant_.chunks[chunk_];
      if (at_ < chunk.length) {
        if (mapped_slot_.empty()) return land_bytes(chunk.length);
        auto got = view_bytes(chunk.length);
        if (got || got.error() != Fault::would_block) return got;
        continue;  // batches below the position were stepped over
      }
      // What is behind us ends here; a later chunk of the grant follows without a hole.
      if (chunk.next_offset && chunk_ + 1 < grant_.chunks.size()) {
        ++chunk_;
        at_ = 0;
        aligned_ = true;
        gap_base_ = kafka::no_offset;
        mapped_ = {};
        if (position_ < *chunk.next_offset) position_ = *chunk.next_offset;
        continue;
      }
      if (chunk.next_offset && position_ < *chunk.next_offset) position_ = *chunk.next_offset;
    }
    if (!slot_fresh_) {
      if (const auto refreshed = refresh_slot(); !refreshed) return refreshed.error();
      continue;
    }
    slot_fresh_ = false;
    if (position_ >= bound()) {
      const auto readable =
          grant_.isolation == kafka::Isolation::read_committed ? slot_.last_stable_offset : slot_.high_watermark;
      return position_ < readable ? Result<Delivery>(Fault::aborted_list_stale) : Result<Delivery>(tail());
    }
    return selected_ ? Fault::layout_changed : Fault::position_not_covered;
  }
  return Fault::would_block;
}

Result<void> Reader::refresh_slot() {
  if (!mapped_slot_.empty()) {
    ++counters_.slot_reads;
    return accept(read_slot(mapped_slot_));
  }
  if (phase_ == Phase::idle) {
    if (!slot_landing_) {
      auto landing = queue_.endpoint().make_landing(slot_bytes);
      if (!landing) return landing.error();
      slot_landing_ = std::move(*landing);
    }
    auto bytes = slot_landing_->bytes();
    std::memset(bytes.data(), 0, bytes.size());
    const auto ticket = queue_.post(grant_.slot, bytes, read_deadline());
    if (!ticket) return ticket.error();
    ticket_ = *ticket;
    phase_ = Phase::slot_read;
    ++counters_.slot_reads;
  }
  const auto taken = queue_.take(ticket_);
  if (!taken && taken.error() == Fault::would_block) return Fault::would_block;
  phase_ = Phase::idle;
  if (!taken) {
    ++(taken.error() == Fault::read_timed_out ? counters_.timeouts : counters_.read_errors);
    return taken.error();
  }
  return accept(parse_slot(slot_landing_->bytes()));
}

Result<void> Reader::accept(const Result<Slot>& read) {
  const bool sane = read && read->version >= slot_.version && read->leader_epoch >= grant_.leader_epoch &&
                    read->log_start_offset <= read->last_stable_offset &&
                    read->last_stable_offset <= read->high_watermark;
  if (!sane) {
    ++counters_.torn_slots;
    return failed(Fault::torn_slot, slot_retries_);
  }
  slot_retries_ = 0;
  drop_ahead();  // bytes are read after the slot that tells of them
  slot_ = *read;
  slot_fresh_ = true;
  if ((slot_.flags & (slot_flag::sealed | slot_flag::fenced)) != 0) return Fault::layout_changed;
  if (!grant_.chunks.empty()) {
    auto& last = grant_.chunks.back();
    if (!last.next_offset && slot_.chunk_sequence == last.sequence) {
      if (slot_.chunk_length > last.memory.length) return Fault::chunk_revoked;
      last.length = std::max(last.length, slot_.chunk_length);
    }
  }
  return {};
}

Offset Reader::bound() const {
  if (grant_.isolation == kafka::Isolation::read_uncommitted) return slot_.high_watermark;
  // Past the grant's own end the list of aborted transactions is whole only while none was added.
  return slot_.aborted_count == grant_.aborted_count ? slot_.last_stable_offset
                                                     : std::min(grant_.last_stable_offset, slot_.last_stable_offset);
}

bool Reader::select_chunk() {
  if (selected_) return true;
  for (std::size_t i = 0; i < grant_.chunks.size(); ++i) {
    const auto& chunk = grant_.chunks[i];
    if (position_ < chunk.base_offset) return false;
    if (chunk.next_offset && position_ >= *chunk.next_offset) continue;
    chunk_ = i;
    at_ = i == 0 && position_ >= grant_.asked ? chunk.start : 0;
    // The grant points at the batch that holds the offset asked for; from elsewhere the way there is walked.
    aligned_ = i == 0 && position_ == grant_.asked;
    gap_base_ = kafka::no_offset;
    mapped_ = {};
    selected_ = true;
    return true;
  }
  return false;
}

Result<Delivery> Reader::view_bytes(std::uint32_t limit) {
  if (mapped_.empty()) {
    const auto bytes = queue_.endpoint().mapper()->view(grant_.chunks[chunk_].memory);
    if (!bytes) return bytes.error();
    mapped_ = *bytes;
  }
  ++counters_.data_reads;
  return judge(walk({mapped_.subspan(at_, limit - at_)}, limit - at_));
}

Result<Delivery> Reader::land_bytes(std::uint32_t limit) {
  const auto& caps = queue_.endpoint().caps();
  if (phase_ == Phase::idle && !take_ahead()) {
    reading_ = std::min(limit - at_, std::max(limits_.read_bytes, larger_));
    arrived_ = 0;
    wipe_landing();
    if (!landing_ || landing_->bytes().size() < reading_) {
      // One for all READs to come; of a program's memory, where pieces are lent for long, no more than is needed.
      const auto size =
          queue_.landings().area() != nullptr
              ? reading_
              : std::max<std::size_t>(reading_,
                                      std::min<std::size_t>(limits_.read_bytes, grant_.chunks[chunk_].memory.length));
      auto landing = queue_.landings().take(queue_.endpoint(), size);
      if (!landing) return landing.error();
      landing_ = std::move(*landing);
    }
    if (const auto posted = post_piece(); !posted) return posted.error();
  }
  while (true) {
    const auto taken = queue_.take(ticket_);
    if (!taken && taken.error() == Fault::would_block) return Fault::would_block;
    phase_ = Phase::idle;
    if (!taken) {
      ++(taken.error() == Fault::read_timed_out ? counters_.timeouts : counters_.read_errors);
      return taken.error();
    }
    arrived_ += std::min(caps.read_bytes_max, reading_ - arrived_);
    if (arrived_ == reading_) break;
    if (const auto posted = post_piece(); !posted) return posted.error();
  }
  landed_ = reading_;
  const auto room = grant_.chunks[chunk_].length - at_;
  const auto arrived = look(Bytes(landing_->bytes()).first(reading_));
  if (!arrived) return arrived.error();
  read_ahead(*arrived);
  auto walked = walk(*arrived, room);
  if (walked == Walk::batches && arrived->in_device) {
    const auto match = sums_match(*arrived);
    if (!match) return match.error();
    if (!*match) walked = Walk::failed;
  }
  return judge(walked);
}

/// The device finds the heads of batches where the CPU cannot.
Result<Reader::Arrived> Reader::look(Bytes landed) {
  auto* const area = queue_.landings().area();
  if (area == nullptr || area->of_host()) return Arrived{landed};
  constexpr std::size_t heads_max = 4096;
  found_.resize(heads_max);
  unchecked_.clear();
  wanted_sums_.clear();
  const auto found = area->heads({reinterpret_cast<std::uintptr_t>(landed.data()), landed.size()}, found_);
  if (!found) {
    log::warn("client", "finding batches in {} failed: {}", area->device_name(), found.error().text);
    return Fault::landing_failed;
  }
  found_count_ = *found;
  return Arrived{landed, true};
}

/// The header of the batch at `at`; empty where there is no whole one, or the device told of no more.
Bytes Reader::head_at(const Arrived& arrived, std::uint32_t at) const {
  if (!arrived.in_device)
    return arrived.bytes.size() - at < kafka::batch_header_bytes ? Bytes{}
                                                                 : arrived.bytes.subspan(at, kafka::batch_header_bytes);
  const auto end = found_.begin() + static_cast<std::ptrdiff_t>(found_count_);
  const auto head =
      std::lower_bound(found_.begin(), end, at, [](const auto& one, auto wanted) { return one.at < wanted; });
  return head != end && head->at == at ? Bytes(head->bytes) : Bytes{};
}

/// Whether the batches that `walk` found are what their checksums say; the device computes them.
Result<bool> Reader::sums_match(const Arrived& arrived) {
  auto* const area = queue_.landings().area();
  sums_.resize(unchecked_.size());
  const auto done = area->checksums({reinterpret_cast<std::uintptr_t>(arrived.bytes.data()), arrived.bytes.size()},
                                    unchecked_, sums_);
  if (!done) {
    log::warn("client", "checking batches in {} failed: {}", area->device_name(), done.error().text);
    return Fault::landing_failed;
  }
  return std::equal(sums_.begin(), sums_.end(), wanted_sums_.begin(), wanted_sums_.end());
}

/// Asks for the bytes behind the whole batches in `landed`, by their lengths alone, so that they come while these are
/// checked and consumed. A wrong guess costs that READ: `take_ahead` takes only what begins where it has to.
void Reader::read_ahead(const Arrived& landed) {
  std::uint32_t end = 0;
  auto next = kafka::no_offset;
  while (true) {
    const auto head = head_at(landed, end);
    if (head.empty()) break;
    const auto length = kafka::load_be<std::int32_t>(head.data() + kafka::batch_at::length);
    if (length < 0) return;
    const auto size = static_cast<std::uint64_t>(length) + kafka::batch_overhead_bytes;
    if (size > landed.bytes.size() - end || end + size > limits_.read_bytes) break;
    const auto base = kafka::load_be<std::int64_t>(head.data() + kafka::batch_at::base_offset);
    const auto delta = kafka::load_be<std::int32_t>(head.data() + kafka::batch_at::last_offset_delta);
    next = Offset(kafka::wrapping_add(base, delta));
    end += static_cast<std::uint32_t>(size);
  }
  const auto& chunk = grant_.chunks[chunk_];
  // What follows is more than a trickle, and not beyond what isolation lets us see.
  const auto left = chunk.length - at_ - end;
  if (end == 0 || left < landed.bytes.size() / 2 || next >= Offset(bound().value - 1)) return;
  const auto reading = std::min(left, limits_.read_bytes);
  if (!ahead_.landing || ahead_.landing->bytes().size() < reading) {
    const auto size = queue_.landings().area() != nullptr ? reading : landing_->bytes().size();
    auto landing = queue_.landings().take(queue_.endpoint(), size);
    if (!landing || (*landing)->bytes().size() < reading) return;  // one at a time, then
    ahead_.landing = std::move(*landing);
  }
  const auto piece = std::min(queue_.endpoint().caps().read_bytes_max, reading);
  const auto from = chunk.memory.sub(at_ + end, piece);
  if (!from) return;
  const auto ticket = queue_.post(*from, ahead_.landing->bytes().first(piece), read_deadline());
  if (!ticket) return;  // no room now; a broken queue says so itself
  ahead_.chunk = chunk_;
  ahead_.at = at_ + end;
  ahead_.reading = reading;
  ahead_.ticket = *ticket;
  ++counters_.data_reads;
  ++counters_.reads_ahead;
}

/// Goes on with the READ ahead, if it is of the bytes wanted now.
bool Reader::take_ahead() {
  if (ahead_.reading == 0) return false;
  if (ahead_.chunk != chunk_ || ahead_.at != at_ || larger_ > ahead_.reading) {
    drop_ahead();
    return false;
  }
  wipe_landing();
  std::swap(landing_, ahead_.landing);
  reading_ = std::exchange(ahead_.reading, 0);
  arrived_ = 0;
  landed_ = std::min(queue_.endpoint().caps().read_bytes_max, reading_);
  ticket_ = ahead_.ticket;
  phase_ = Phase::data_read;
  return true;
}

void Reader::drop_ahead() {
  if (std::exchange(ahead_.reading, 0) > 0) queue_.abandon(ahead_.ticket, std::move(ahead_.landing));
}

Result<void> Reader::post_piece() {
  const auto length = std::min(queue_.endpoint().caps().read_bytes_max, reading_ - arrived_);
  const auto from = grant_.chunks[chunk_].memory.sub(at_ + arrived_, length);
  if (!from) return Fault::position_not_covered;
  landed_ = std::max(landed_, arrived_ + length);
  const auto ticket = queue_.post(*from, landing_->bytes().subspan(arrived_, length), read_deadline());
  if (!ticket) return ticket.error();
  ticket_ = *ticket;
  phase_ = Phase::data_read;
  ++counters_.data_reads;
  return {};
}

Result<Delivery> Reader::judge(Walk walked) {
  switch (walked) {
    case Walk::failed:
      ++counters_.failed_checks;
      consumed_ = 0;
      batches_.clear();
      slot_fresh_ = false;
      return failed(Fault::batch_check_failed, check_retries_);
    case Walk::larger:
      return Fault::would_block;
    case Walk::nothing:
      at_ += consumed_;
      consumed_ = 0;
      if (next_position_ > position_) position_ = next_position_;
      return Fault::would_block;
    case Walk::batches:
      break;
  }
  check_retries_ = 0;
  Delivery delivery = tail();
  delivery.batches = batches_;
  delivery.heads = heads_;
  delivery.bytes = delivered_bytes_;
  delivery.next_offset = next_position_;
  delivery.at_tail = false;
  return delivery;
}

/// Finds whole batches from the front of `bytes`; `room` committed bytes are left in the chunk, there or not.
Reader::Walk Reader::walk(Arrived arrived, std::uint32_t room) {
  const auto bytes = arrived.bytes;
  batches_.clear();
  heads_.clear();
  consumed_ = 0;
  delivered_bytes_ = 0;
  larger_ = 0;
  next_position_ = position_;
  const auto end = bound();
  auto least = aligned_ ? position_ : grant_.chunks[chunk_].base_offset;  // of the next batch's last offset
  std::uint32_t at = 0;
  while (at < bytes.size()) {
    const auto rest = bytes.subspan(at);
    const auto head = head_at(arrived, at);
    if (head.empty()) {
      if (room - at < kafka::batch_header_bytes) return Walk::failed;
      if (at == 0) larger_ = static_cast<std::uint32_t>(kafka::batch_header_bytes);
      break;
    }
    const auto length = kafka::load_be<std::int32_t>(head.data() + kafka::batch_at::length);
    if (length < static_cast<std::int32_t>(kafka::batch_header_bytes - kafka::batch_overhead_bytes))
      return Walk::failed;
    const auto size = static_cast<std::uint32_t>(length) + static_cast<std::uint32_t>(kafka::batch_overhead_bytes);
    // No batch crosses its chunk's committed end.
    if (size > room - at || size > limits_.batch_bytes_max) return Walk::failed;
    if (size > rest.size()) {
      if (at == 0) larger_ = size;
      break;
    }
    if (!batches_.empty() && at - (batches_.front().data() - bytes.data()) + size > limits_.read_bytes) break;
    const auto batch = kafka::RecordBatchView::of_head(head);
    if (!batch) return Walk::failed;
    const auto base = batch->base_offset();
    const auto last = batch->last_offset();
    if (last < least || last < base || (at > 0 && base < least) || batch->leader_epoch() > slot_.leader_epoch)
      return Walk::failed;
    // A batch's checksum does not cover its base offset. A gap may be compaction's: then it is there at a second look
    // too.
    if (base > std::max(least, position_) && !(gap_at_ == at_ + at && gap_base_ == base)) {
      if (!batches_.empty()) break;
      gap_at_ = at_ + at;
      gap_base_ = base;
      return Walk::failed;
    }
    if (base >= end) {
      // Isolation's bound; a compacted log may leave a gap below it.
      if (next_position_ < end) next_position_ = end;
      break;
    }
    if (last >= end) return Walk::failed;
    least = last + 1;
    at += size;
    if (last < position_) {
      // A place in the middle of a chunk was asked for; not delivered, so not checked.
      if (batches_.empty()) consumed_ = at;
      continue;
    }
    if (arrived.in_device) {
      constexpr auto covered = static_cast<std::uint32_t>(kafka::batch_at::attributes);
      unchecked_.push_back({at - size + covered, size - covered});  // `at` is behind it
      wanted_sums_.push_back(batch->crc());
    } else if (const auto whole = kafka::RecordBatchView::parse(rest.first(size));
               !whole || whole->size() != size || !whole->crc_valid()) {
      return Walk::failed;
    }
    batches_.push_back(rest.first(size));
    heads_.push_back(head);
    delivered_bytes_ += size;
    next_position_ = last + 1;
    consumed_ = at;
  }
  if (!batches_.empty()) return Walk::batches;
  return larger_ > 0 ? Walk::larger : Walk::nothing;
}

Delivery Reader::tail() const {
  Delivery delivery;
  delivery.next_offset = position_;
  delivery.high_watermark = slot_.high_watermark;
  delivery.last_stable_offset = slot_.last_stable_offset;
  delivery.log_start_offset = slot_.log_start_offset;
  delivery.slot_version = slot_.version;
  delivery.at_tail = true;
  return delivery;
}

Fault Reader::failed(Fault fault, int& retries) const {
  if (++retries <= limits_.retries_max) return fault;
  retries = 0;
  return Fault::chunk_revoked;
}

Clock::TimePoint Reader::read_deadline() const {
  return std::min(queue_.clock().now() + limits_.read_timeout, grant_.deadline);
}

/// Bytes at the front of the landing that are whole checked batches.
std::uint32_t Reader::checked() const {
  std::uint32_t known = 0;
  for (const auto batch : batches_) {
    if (batch.data() != landing_->bytes().data() + known) break;
    known += static_cast<std::uint32_t>(batch.size());
  }
  return known;
}

void Reader::wipe_landing() {
  if (queue_.landings().area() != nullptr) {
    landing_.reset();  // pieces are wiped when they are taken
  } else if (landing_ && landed_ > 0) {
    Landings::wipe(landing_->bytes(), checked(), landed_);
  }
  landed_ = 0;
  batches_.clear();
}

std::shared_ptr<const void> Reader::keep() {
  if (!landing_ || batches_.empty()) return nullptr;
  if (queue_.landings().area() == nullptr && delivered_bytes_ < landing_->bytes().size() / 2) return nullptr;
  auto kept = queue_.landings().lend(landing_, checked(), landed_);
  if (kept) landed_ = 0;
  return kept;
}

void Reader::let_go() {
  if (phase_ != Phase::data_read && queue_.landings().area() != nullptr) wipe_landing();
}

bool Reader::rest() {
  const bool of_program = queue_.landings().area() != nullptr;
  const bool had = of_program && (landing_ || ahead_.landing);
  drop_pending();
  wipe_landing();
  if (of_program) ahead_.landing.reset();
  return had;
}

void Reader::drop_pending() {
  if (phase_ == Phase::slot_read) queue_.abandon(ticket_, std::move(slot_landing_));
  if (phase_ == Phase::data_read) {
    queue_.abandon(ticket_, std::move(landing_));
    landed_ = 0;
    batches_.clear();
  }
  phase_ = Phase::idle;
  drop_ahead();
}

}  // namespace ciuic::onesided
