// The program's thread: whose turn it is, batches that were fetched, one-sided reads, rebalances.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "client/core/consumer_impl.h"
#include "transport/base/log.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::client {

using core::Assigned;
using core::Delivery;
using core::failure;
using core::GroupEvent;
using core::NotOneSided;
using kafka::Offset;
using rdma::Fault;

namespace core {

void AbortedFilter::start(std::vector<onesided::GrantedAborted> aborted) {
  std::sort(aborted.begin(), aborted.end(),
            [](const auto& a, const auto& b) { return a.first_offset < b.first_offset; });
  ahead_.assign(aborted.begin(), aborted.end());
  aborting_.clear();
}

bool AbortedFilter::passes(const kafka::RecordBatchView& batch) {
  while (!ahead_.empty() && ahead_.front().first_offset <= batch.last_offset()) {
    aborting_.insert(ahead_.front().producer_id.value);
    ahead_.pop_front();
  }
  if (batch.control()) {
    // A marker ends its producer's transaction; of what follows from it the list speaks anew.
    aborting_.erase(batch.producer_id().value);
    return false;
  }
  return aborting_.empty() || !batch.transactional() || !aborting_.contains(batch.producer_id().value);
}

}  // namespace core

namespace {
/// How long the end of a partition is looked at before the broker is asked to tell: about what asking costs.
constexpr auto tail_spin = std::chrono::microseconds(50);
/// How long READs under way are polled for before their completion is waited for: some waits and wakes would take as
/// long. What else there may be to do is looked at every millisecond.
constexpr auto read_spin = std::chrono::microseconds(50);
constexpr int read_wait_ms = 1;
constexpr Milliseconds full_pause{1};
/// How long a partition whose batches found no room is passed by.
constexpr Milliseconds short_patience{20};
}  // namespace

Result<std::span<const RecordBatch>> Consumer::Impl::poll(Milliseconds timeout) {
  if (auto ok = usable(); !ok) return ok.error();
  drop_batches();
  const auto& clock = loop_.clock();
  const auto now = clock.now();
  last_poll_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  const auto deadline = now + std::max(timeout, Milliseconds(0));
  auto_commit_if_due();
  auto spin_until = now + read_spin;
  while (true) {
    run_commit_callbacks();
    run_rebalances();
    auto progress = poll_once();
    if (!progress) return progress.error();
    if (std::exchange(tails_untold_, false)) {
      if (*progress == Progress::nothing)
        tell_loop();
      else
        tell_loop_soon();
    }
    if (*progress == Progress::batches) return std::span<const RecordBatch>(batches_);
    if (clock.now() >= deadline) {
      if (*progress != Progress::full) return std::span<const RecordBatch>();
      auto full =
          failure(Trouble::queue_full, "the landing buffer is full of batches that are still held: let go of some");
      full.retriable = true;
      return full;
    }
    if (*progress == Progress::full) {
      std::this_thread::sleep_for(full_pause);  // whoever lets go of batches does it elsewhere
    } else if (*progress == Progress::nothing) {
      wait_for_news(deadline);
      spin_until = clock.now() + read_spin;
    } else if (clock.now() < spin_until || !wait_for_reads()) {
      std::this_thread::yield();
    }
    last_poll_.store(clock.now().time_since_epoch().count(), std::memory_order_relaxed);
  }
}

void Consumer::Impl::drop_batches() { batches_.clear(); }

void Consumer::Impl::tell_loop() {
  if (told_.exchange(true)) return;
  loop_.post([this] {
    told_.store(false);
    plan_again_.notify();
  });
}

/// One by one they would each cost the broker a question.
void Consumer::Impl::tell_loop_soon() {
  if (told_soon_.exchange(true)) return;
  loop_.post([this] { loop_.spawn(plan_soon()); });
}

void Consumer::Impl::wait_for_news(Clock::TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const auto left = deadline - loop_.clock().now();
  // Of a group's member not for ever: positions are committed and max.poll.interval.ms is kept while we wait.
  const auto most = std::min<Clock::Duration>(left, Milliseconds(settings_.group_id.empty() ? 60'000 : 500));
  ready_.wait_for(lock, most,
                  [this] { return news_ || interrupted_ || !rebalances_.empty() || !commits_done_.empty() || fatal_; });
}

/// False, at once: nothing to wait for, or no way to.
bool Consumer::Impl::wait_for_reads() {
  std::array<pollfd, 16> waited{};
  std::array<const onesided::ReadQueue*, waited.size()> seen{};
  nfds_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto* one : order_) {
      if (!one->read || !one->read->reader) continue;
      auto* const queue = one->read->session->queue.get();
      if (!queue->reading() || std::find(seen.begin(), seen.begin() + count, queue) != seen.begin() + count) continue;
      const int descriptor = count < waited.size() ? queue->arm() : -1;
      if (descriptor < 0) return false;
      seen[count] = queue;
      waited[count++] = {descriptor, POLLIN, 0};
    }
  }
  return count > 0 && ::poll(waited.data(), count, read_wait_ms) >= 0;
}

Result<Consumer::Impl::Progress> Consumer::Impl::poll_once() {
  std::unique_lock lock(mutex_);
  // Before anything is read under a grant that came after them: a pin of the same chunk would be in the way.
  while (!left_reads_.empty()) {
    auto left = std::exchange(left_reads_, {});
    lock.unlock();
    left.clear();
    lock.lock();
  }
  news_ = false;
  if (std::exchange(interrupted_, false)) return failure(Trouble::interrupted, "wakeup was called");
  if (fatal_) return *fatal_;
  // Short batches would go before a long one for ever: once it waited for long it is alone.
  if (auto* const one = longest_short()) {
    auto got = step(*one, lock);
    if (got && *got == Progress::full && make_room(one)) return Progress::soon;
    return got;
  }
  auto progress = Progress::nothing;
  bool full = false;
  const auto count = order_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto index = (turn_ + i) % count;
    auto& one = *order_[index];
    if (one.paused) continue;
    if (one.error) {
      auto error = *std::exchange(one.error, std::nullopt);
      turn_ = index + 1;
      return error;
    }
    const auto got = step(one, lock);
    if (!got || *got == Progress::batches) {
      turn_ = index + 1;  // the others come before this one again
      return got;
    }
    full |= *got == Progress::full;
    progress = std::max(progress, *got);
  }
  if (full && make_room(nullptr)) progress = Progress::soon;
  return progress;
}

Result<Consumer::Impl::Progress> Consumer::Impl::step(Assigned& one, std::unique_lock<std::mutex>& lock) {
  auto got = !one.fetched.empty()       ? take_fetched(one)
             : one.read && !one.at_tail ? read_granted(one, lock)
                                        : Result<Progress>(Progress::nothing);
  if (!got || *got != Progress::full) {
    one.short_since = {};
  } else if (one.short_since == Clock::TimePoint{}) {
    one.short_since = loop_.clock().now();
  }
  return got;
}

Assigned* Consumer::Impl::longest_short() const {
  Assigned* longest = nullptr;
  if (!destination_) return longest;
  for (auto* const one : order_) {
    if (one->paused || one->error || one->short_since == Clock::TimePoint{}) continue;
    if (longest == nullptr || one->short_since < longest->short_since) longest = one;
  }
  return longest != nullptr && loop_.clock().now() - longest->short_since > short_patience ? longest : nullptr;
}

/// Takes back what readers have of the program's memory that nobody waits for now, or all but `for_one` have. True:
/// some of it came, or comes when READs complete.
bool Consumer::Impl::make_room(const Assigned* for_one) {
  bool coming = false;
  for (auto* const one : order_) {
    if (!one->read || !one->read->reader) continue;
    const bool stands = for_one != nullptr ? one != for_one : one->paused || one->at_tail || one->error;
    if (stands) coming |= one->read->reader->rest();
    auto& queue = *one->read->session->queue;
    coming |= queue.poll();
    coming |= queue.reading();
  }
  return coming;
}

/// Views of the batches that the program may see, in `batches_`. Where they lie in a device, `heads` are their headers.
void Consumer::Impl::show(Delivery::Source source, std::span<const Bytes> batches, std::span<const Bytes> heads,
                          core::AbortedFilter& filter, std::int64_t wanted) {
  source.unpacked_bytes_max = static_cast<std::size_t>(settings_.decompressed_batch_bytes_max);
  const bool in_device = source.device != nullptr;
  if (in_device) source.heads = std::make_unique_for_overwrite<std::byte[]>(batches.size() * kafka::batch_header_bytes);
  auto* copy = source.heads.get();
  auto* const delivery = Delivery::make(std::move(source));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto* head = batches[i].data();
    if (in_device) {
      std::memcpy(copy, heads[i].data(), kafka::batch_header_bytes);
      head = copy;
      copy += kafka::batch_header_bytes;
    }
    const auto batch = kafka::RecordBatchView::of_head({head, kafka::batch_header_bytes});
    if (!batch || batch->last_offset().value < wanted) continue;
    if (!filter.passes(*batch)) {
      counters_.skipped_batches.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    batches_.push_back(Delivery::view(delivery, batches[i], head, wanted));
  }
  delivery->drop();
}

Result<Consumer::Impl::Progress> Consumer::Impl::take_fetched(Assigned& one) {
  auto& item = one.fetched.front();
  auto batches = std::span<const Bytes>(item.batches).subspan(item.given);
  Delivery::Source source;
  source.at = one.name;
  source.memory = item.memory;
  std::vector<Bytes> landed;
  if (destination_ && !batches.empty()) {
    std::size_t count = 0, bytes = 0;
    do {
      bytes += batches[count++].size();
    } while (count < batches.size() && bytes + batches[count].size() <= destination_->bytes_at_a_time());
    batches = batches.first(count);
    auto placed = destination_->place(batches);
    if (!placed) return placed.error();
    if (!*placed) return Progress::full;
    source.memory = std::move((*placed)->memory);
    if (!destination_->area()->of_host()) source.device = destination_->area();
    landed = std::move((*placed)->batches);
    counters_.landed_by_copy_bytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
  if (item.given == 0) one.filter.start(std::move(item.aborted));
  show(std::move(source), landed.empty() ? batches : landed, batches, one.filter, one.position);
  item.given += batches.size();
  if (item.given < item.batches.size()) {
    const auto last = kafka::RecordBatchView::of_head(batches.back().first(kafka::batch_header_bytes));
    if (last) one.position = std::max(one.position, last->next_offset().value);
  } else {
    one.position = std::max(one.position, item.next_offset);
    one.fetched_bytes -= item.bytes;
    counters_.tcp_bytes.fetch_add(static_cast<std::int64_t>(item.bytes), std::memory_order_relaxed);
    one.fetched.pop_front();
    tell_loop();
  }
  counters_.tcp_batches.fetch_add(static_cast<std::int64_t>(batches_.size()), std::memory_order_relaxed);
  return batches_.empty() ? Progress::soon : Progress::batches;
}

Result<Consumer::Impl::Progress> Consumer::Impl::read_granted(Assigned& one, std::unique_lock<std::mutex>& lock) {
  const auto read = one.read;
  const auto position = Offset(one.position);
  if (read->session->over.load(std::memory_order_acquire)) return after_fault(one, Fault::peer_gone);
  if (read->lease->refused()) return after_fault(one, Fault::layout_changed);
  // No READ for bytes that could go nowhere.
  if (destination_ && !read->session->landing.direct &&
      !destination_->area()->has_room(
          std::max(read->room_wanted, std::min<std::size_t>(destination_->bytes_at_a_time(),
                                                            static_cast<std::size_t>(settings_.onesided_read_bytes)))))
    return Progress::full;
  const auto granted = std::exchange(read->session->granted, {});
  lock.unlock();
  auto& queue = *read->session->queue;
  // Of all partitions at once: one by one each would cost a round trip.
  if (!granted.empty()) queue.endpoint().mapper()->expect(granted);
  std::optional<Fault> fault;
  if (read->grant) {
    onesided::ReaderLimits limits;
    limits.read_bytes = static_cast<std::uint32_t>(settings_.onesided_read_bytes);
    if (destination_)
      limits.read_bytes =
          static_cast<std::uint32_t>(std::min<std::size_t>(limits.read_bytes, destination_->bytes_at_a_time()));
    read->reader = std::make_unique<onesided::Reader>(queue, limits);
    read->filter.start(read->grant->aborted);
    auto adopted = read->reader->adopt(*std::exchange(read->grant, std::nullopt), position);
    if (!adopted) fault = adopted.error();
  }
  auto progress = Progress::nothing;
  if (!fault) {
    (void)queue.poll();
    // A renewal came to the loop; the reader must know before it looks at its own deadline.
    read->reader->renewed(read->lease->deadline());
    const auto got = read->reader->read();
    if (got) {
      const auto delivered = deliver_read(one, *read, *got);
      lock.lock();
      if (!delivered || *delivered == Progress::full) return delivered;
      if (*delivered == Progress::nothing) return after_fault(one, Fault::lease_expired);
      progress = *delivered;
      one.high_watermark = got->high_watermark.value;
      one.last_stable_offset = got->last_stable_offset.value;
      if (got->batches.empty() && got->log_start_offset > Offset(one.position)) {
        one.read.reset();
        reset_offset(one, "the log now starts at " + std::to_string(got->log_start_offset.value));
        tell_loop();
        return Progress::soon;
      }
      one.position = std::max(one.position, read->reader->position().value);
      if (!got->batches.empty()) {
        one.failures = 0;
        one.tail_since = {};
        return progress;
      }
      if (!got->at_tail) return Progress::soon;
      read->slot_version = got->slot_version;
      const auto now = loop_.clock().now();
      if (one.tail_since == Clock::TimePoint{}) one.tail_since = now;
      if (now - one.tail_since < tail_spin) return Progress::soon;
      one.at_tail = true;
      one.tail_since = {};
      tails_untold_ = true;
      return Progress::nothing;
    }
    fault = got.error();
  }
  lock.lock();
  if (*fault == Fault::landing_full) {
    const auto needed = read->reader->next_batch_bytes();
    if (needed > destination_->area()->capacity()) return destination_->too_large(needed);
    return Progress::full;
  }
  if (*fault == Fault::landing_failed) {
    destination_->give_up_direct();
    fault = Fault::peer_gone;  // a new session, which copies
  }
  // Beyond what the reader stepped over (records that compaction took away), or the next grant names the same again.
  if (read->reader) one.position = std::max(one.position, read->reader->position().value);
  return after_fault(one, *fault);
}

/// Progress::nothing: the lease ran out before the batches were looked at (a stopped process wakes up here): none is
/// delivered.
Result<Consumer::Impl::Progress> Consumer::Impl::deliver_read(Assigned& one, core::GrantedRead& read,
                                                              const onesided::Delivery& got) {
  if (got.batches.empty()) return Progress::soon;
  const auto wanted = one.position;  // only this thread changes it
  auto& session = *read.session;
  Delivery::Source source;
  source.at = one.name;
  std::vector<Bytes> elsewhere;  // the batches, where they are copied
  const bool in_broker = session.in_place && !destination_;
  if (session.landing.direct) {
    source.memory = read.reader->keep();
    if (!destination_->area()->of_host()) source.device = destination_->area();
    counters_.landed_directly_bytes.fetch_add(static_cast<std::int64_t>(got.bytes), std::memory_order_relaxed);
  } else if (destination_) {
    if (session.in_place) read.pin.hold(*destination_, read.reader->mapped());
    read.room_wanted = 0;
    auto placed = destination_->place(got.batches);
    if (!placed || !*placed) {
      read.reader->seek(Offset(wanted));  // the same again, when there is room
      if (!placed) return placed.error();
      read.room_wanted = static_cast<std::size_t>(got.bytes);
      return Progress::full;
    }
    source.memory = std::move((*placed)->memory);
    if (!destination_->area()->of_host()) source.device = destination_->area();
    elsewhere = std::move((*placed)->batches);
    counters_.landed_by_copy_bytes.fetch_add(static_cast<std::int64_t>(got.bytes), std::memory_order_relaxed);
  } else if (in_broker) {
    source.memory = session.queue;
    source.lease = read.lease;
    source.in_place = true;
    const auto first = kafka::RecordBatchView::parse(got.batches.front());
    if (!first) return Progress::nothing;
    source.first_offset = first->base_offset().value;
  } else if (auto kept = read.reader->keep()) {
    source.memory = std::move(kept);
  } else {
    // The landing is read into again by the next READ: what is handed out must outlive it.
    std::size_t size = 0;
    for (const auto& bytes : got.batches) size += bytes.size();
    auto memory = std::make_shared_for_overwrite<std::byte[]>(size);
    auto* to = memory.get();
    for (const auto& bytes : got.batches) {
      std::memcpy(to, bytes.data(), bytes.size());
      elsewhere.emplace_back(to, bytes.size());
      to += bytes.size();
    }
    source.memory = std::move(memory);
  }
  show(std::move(source), elsewhere.empty() ? got.batches : elsewhere, got.heads, read.filter, wanted);
  if (!elsewhere.empty()) read.reader->let_go();
  // What was copied out of the broker's memory, or is shown there, was there all the while only if the lease still is.
  if (session.in_place && !read.lease->in_force(loop_.clock().now())) {
    batches_.clear();
    return Progress::nothing;
  }
  read.lease->moved_to(got.next_offset.value);
  counters_.onesided_bytes.fetch_add(static_cast<std::int64_t>(got.bytes), std::memory_order_relaxed);
  counters_.onesided_batches.fetch_add(static_cast<std::int64_t>(batches_.size()), std::memory_order_relaxed);
  return batches_.empty() ? Progress::soon : Progress::batches;
}

Consumer::Impl::Progress Consumer::Impl::after_fault(Assigned& one, Fault fault) {
  switch (rdma::outcome_of(fault)) {
    case rdma::Outcome::retry_here:
      return Progress::soon;
    case rdma::Outcome::new_grant:
      if (fault == Fault::lease_expired) counters_.lease_losses.fetch_add(1, std::memory_order_relaxed);
      // Bytes that stay wrong are not cured by asking for the same ones at once.
      if (fault == Fault::chunk_revoked) one.not_before = loop_.clock().now() + Milliseconds(++one.failures * 5);
      break;
    case rdma::Outcome::reconnect:
      one.read->session->over.store(true, std::memory_order_release);
      ++one.failures;
      break;
    case rdma::Outcome::fall_back:
      // Of this partition's memory (no more may be locked, say): what others have is good.
      fall_back(one, NotOneSided::fault, std::string(rdma::text(fault)), std::chrono::seconds(30));
      break;
  }
  one.read.reset();
  one.at_tail = false;
  one.tail_since = {};
  tell_loop();
  return Progress::nothing;
}

void Consumer::Impl::run_commit_callbacks() {
  while (true) {
    std::pair<CommitCallback, Result<void>> done;
    {
      const std::scoped_lock lock(mutex_);
      if (commits_done_.empty()) return;
      done = std::move(commits_done_.front());
      commits_done_.pop_front();
    }
    if (done.first) done.first(done.second);
  }
}

void Consumer::Impl::auto_commit_if_due() {
  if (!settings_.auto_commit || settings_.group_id.empty()) return;
  const auto now = loop_.clock().now();
  if (now < next_auto_commit_) return;
  next_auto_commit_ = now + Milliseconds(settings_.auto_commit_interval_ms);
  (void)commit_async({}, [](const Result<void>& result) {
    if (!result) log::warn("client", "auto commit failed, the next one will try again error={}", result.error().text);
  });
}

void Consumer::Impl::run_rebalances() {
  while (true) {
    Rebalance event;
    {
      const std::scoped_lock lock(mutex_);
      if (rebalances_.empty()) return;
      event = std::move(rebalances_.front());
      rebalances_.pop_front();
    }
    if (!subscribed_) {
      loop_.post([this] { group_.handed_over(); });
      continue;
    }
    if (event.event == GroupEvent::assigned) {
      {
        const std::scoped_lock lock(mutex_);
        clear_assignment();
        for (const auto& at : event.partitions) assigned_.emplace(at, make_assigned(at, offset_stored));
        for (auto& [at, one] : assigned_) order_.push_back(one.get());
      }
      if (listener_.assigned) listener_.assigned(event.partitions);
    } else {
      if (event.event == GroupEvent::revoked) {
        if (settings_.auto_commit) {
          if (auto done = commit_sync({}, Milliseconds(5000)); !done)
            log::warn("client", "positions could not be committed before partitions went error={}", done.error().text);
        }
        if (listener_.revoked) listener_.revoked(event.partitions);
      } else if (listener_.lost) {
        listener_.lost(event.partitions);
      } else if (listener_.revoked) {
        listener_.revoked(event.partitions);
      }
      const std::scoped_lock lock(mutex_);
      clear_assignment();
    }
    loop_.post([this] { group_.handed_over(); });
    tell_loop();
  }
}

}  // namespace ciuic::client
