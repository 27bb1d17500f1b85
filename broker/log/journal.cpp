// The ring behind an acknowledgement: what is copied in, and when its place is free again. Not here: what a start makes
// of it (journal_replay.cpp), when a partition uses it (partition_write.cpp).
#include "broker/log/journal.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "broker/log/journal_format.h"

namespace ciuic::broker {

namespace {

/// Bytes that nobody adds to go to their file after this long: long enough for a busy partition to fill a large write.
constexpr Milliseconds age_max{200};
constexpr std::uint64_t bytes_min = 4 * journal::page;
/// An empty ring begins anew once it has come this far: a quiet broker then stays in the same few pages.
constexpr std::uint64_t begin_anew_after = 256U << 10;

}  // namespace

Journal::Journal(Files& files, std::string path, std::shared_ptr<MappedFile> file, Executor& executor,
                 const Clock& clock)
    : files_(files),
      path_(std::move(path)),
      file_(std::move(file)),
      executor_(executor),
      clock_(clock),
      ring_(file_->bytes().subspan(journal::ring_begin)),
      size_(ring_.size()) {
  std::random_device device;
  secret_ = (std::uint64_t{device()} << 32) | device();
}

IoResult<std::shared_ptr<Journal>> Journal::make(Files& files, const std::string& path, std::uint64_t bytes,
                                                 Executor& executor, const Clock& clock) {
  const auto whole = std::max(bytes, bytes_min) / journal::page * journal::page;
  auto file = files.make_mapped(path, whole + journal::ring_begin);
  if (!file) return file.error();
  auto made = std::shared_ptr<Journal>(new Journal(files, path, std::move(*file), executor, clock));
  journal::FileHead head;
  head.ring_bytes = whole;
  head.secret = made->secret_;
  std::memcpy(made->file_->bytes().data(), &head, sizeof head);
  return made;
}

std::shared_ptr<Journal::Share> Journal::join(std::function<void()> file_now) {
  return std::make_shared<Share>(std::move(file_now));
}

/// The bytes first, then the head that makes them count: whenever the process ends, a replay sees whole records only.
void Journal::put(std::uint64_t position, bool turn, const JournalPlace& place, Bytes bytes) {
  const auto to = ring_.subspan(position % size_);
  journal::RecordHead head;
  head.at = position;
  head.bytes = static_cast<std::uint32_t>(bytes.size());
  head.turn = turn ? 1 : 0;
  head.topic = place.partition.topic;
  head.partition = place.partition.partition.value;
  head.segment_base = place.segment_base.value;
  head.position = place.position;
  head.secret = static_cast<std::uint32_t>(secret_);
  head.crc = journal::crc_of(head, bytes, secret_);
  if (!bytes.empty()) std::memcpy(to.data() + sizeof head, bytes.data(), bytes.size());
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(to.data(), &head, sizeof head);
}

bool Journal::append(const std::shared_ptr<Share>& share, const JournalPlace& place, Bytes bytes) {
  const auto need = journal::record_bytes(bytes.size());
  if (stopped_ || need > size_) return false;
  if (entries_.empty() && head_ % size_ > std::min(begin_anew_after, size_ / 2)) {
    head_ = tail_ = asked_ = journal::next_turn(head_, size_);
    store_tail();
  }
  const auto to_end = size_ - head_ % size_;
  const auto begin = need <= to_end ? head_ : head_ + to_end;
  if (begin + need - tail_ > size_) {
    ask_until(head_);
    return false;
  }
  if (begin != head_ && to_end >= sizeof(journal::RecordHead)) put(head_, true, {}, {});
  put(begin, false, place, bytes);
  head_ = begin + need;
  entries_.push_back({begin, head_, share, clock_.now()});
  // Early, so that the large writes are over before the ring is full.
  if (head_ - tail_ > size_ / 2) ask_until(head_ - size_ / 4);
  watch_age();
  return true;
}

void Journal::filed(Share& share, std::uint64_t position) {
  share.filed_to_ = std::max(share.filed_to_, position);
  if (!stopped_) advance();
}

void Journal::advance() {
  const auto before = tail_;
  while (!entries_.empty() && entries_.front().end <= entries_.front().share->filed_to_) {
    tail_ = entries_.front().end;
    entries_.pop_front();
  }
  if (entries_.empty()) tail_ = head_;
  if (tail_ != before) store_tail();
  while (!waiters_.empty() && waiters_.front().position <= tail_) {
    const auto then = std::move(waiters_.front().then);
    waiters_.pop_front();
    then(true);
  }
}

void Journal::store_tail() {
  auto* where = reinterpret_cast<std::uint64_t*>(file_->bytes().data() + offsetof(journal::FileHead, tail));
  std::atomic_ref(*where).store(tail_, std::memory_order_release);
}

std::deque<Journal::Entry>::iterator Journal::first_from(std::uint64_t position) {
  return std::partition_point(entries_.begin(), entries_.end(),
                              [position](const Entry& entry) { return entry.begin < position; });
}

void Journal::ask_until(std::uint64_t position) {
  // From the first not yet asked on; a share may be asked again, for what came since.
  auto at = first_from(asked_);
  std::vector<std::shared_ptr<Share>> shares;
  for (; at != entries_.end() && at->begin < position; ++at)
    if (shares.empty() || shares.back() != at->share) shares.push_back(at->share);
  asked_ = std::max(asked_, position);
  // Behind this call: who is asked may be the one that appends just now.
  for (auto& share : shares) executor_.post([share = std::move(share)] { share->file_now_(); });
}

/// Of what was asked for nothing need be watched: it is on its way.
void Journal::watch_age() {
  if (watching_) return;
  const auto oldest = first_from(asked_);
  if (oldest == entries_.end()) return;
  watching_ = true;
  executor_.post_at(oldest->since + age_max, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->stopped_) return;
    self->watching_ = false;
    const auto old = self->clock_.now() - age_max;
    const auto young = std::partition_point(self->entries_.begin(), self->entries_.end(),
                                            [old](const Entry& entry) { return entry.since <= old; });
    self->ask_until(young == self->entries_.end() ? self->head_ : young->begin);
    self->watch_age();
  });
}

void Journal::when_past(std::uint64_t position, std::function<void(bool past)> then) {
  if (stopped_ || position <= tail_) return then(position <= tail_);
  // In order of position, as advance() takes them.
  const auto after = std::upper_bound(waiters_.begin(), waiters_.end(), position,
                                      [](std::uint64_t at, const Waiter& waiter) { return at < waiter.position; });
  waiters_.insert(after, {position, std::move(then)});
  ask_until(position);
}

void Journal::stop() {
  stopped_ = true;
  for (auto& waiter : std::exchange(waiters_, {})) waiter.then(false);
}

IoResult<void> Journal::sync_tail() { return file_->sync(journal::ring_begin); }

IoResult<void> Journal::remove() { return files_.remove(path_); }

}  // namespace ciuic::broker
