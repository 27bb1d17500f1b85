// The arena: who holds how much, and the memfds behind it. Not here: what is in a chunk, and when one may go
// (Partition).
#include "broker/log/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "broker/log/chunk.h"
#include "transport/base/log.h"

namespace ciuic::broker {

namespace {

constexpr std::uint64_t huge_page_bytes = 2U << 20;
constexpr std::uint64_t page_bytes = 4096;

/// A huge page is faulted in at once, 512 small ones are not.
bool shared_memory_may_be_huge() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string line;
  std::getline(file, line);
  return !line.empty() && line.find("[never]") == std::string::npos && line.find("[deny]") == std::string::npos;
}

std::uint64_t eighths(std::uint64_t budget, unsigned n) { return budget / 8 * n; }

}  // namespace

std::shared_ptr<Arena> Arena::make(ArenaConfig config) {
  config.chunk_bytes_min = std::max<std::uint32_t>(std::bit_ceil(config.chunk_bytes_min), 4096);
  config.chunk_bytes_max = std::max(std::bit_ceil(config.chunk_bytes_max), config.chunk_bytes_min);
  config.extent_bytes = std::max<std::uint64_t>(std::bit_ceil(config.extent_bytes), config.chunk_bytes_max);
  return std::shared_ptr<Arena>(new Arena(config));
}

Arena::Arena(ArenaConfig config) : config_(config), huge_pages_(shared_memory_may_be_huge()) {}
Arena::~Arena() = default;

std::optional<std::uint32_t> Arena::class_for(std::uint64_t bytes) const {
  const auto largest = std::min<std::uint64_t>(config_.extent_bytes, 1ULL << 30);
  if (bytes > largest) return std::nullopt;
  return std::max(static_cast<std::uint32_t>(std::bit_ceil(std::max<std::uint64_t>(bytes, 1))),
                  config_.chunk_bytes_min);
}

bool Arena::may_take(std::uint64_t bytes, MemoryFor purpose) const {
  if (purpose == MemoryFor::append) return true;
  const auto limit = eighths(config_.budget_bytes, purpose == MemoryFor::exposure ? 7 : 9);
  const auto used = in_use_bytes();
  return used <= limit && bytes <= limit - used;
}

std::uint64_t Arena::in_use_bytes() const {
  // Two counters: for an instant one may be ahead of the other.
  const auto kept = kept_free_bytes();
  const auto used = used_bytes();
  return used - std::min(used, kept);
}

std::shared_ptr<PartitionMemory> Arena::make_memory() {
  static std::atomic<std::uint64_t> ids{1};
  auto memory = std::shared_ptr<PartitionMemory>(new PartitionMemory(shared_from_this(), ids.fetch_add(1)));
  const std::scoped_lock lock(mutex_);
  if (memories_.size() >= 64 && (memories_.size() & (memories_.size() - 1)) == 0)
    std::erase_if(memories_, [](const auto& weak) { return weak.expired(); });
  memories_.push_back(memory);
  return memory;
}

void Arena::watch(const std::shared_ptr<Chunk>& chunk, std::function<void(const std::shared_ptr<Chunk>&)> evict) {
  const std::scoped_lock lock(mutex_);
  if (watched_.size() >= 64 && (watched_.size() & (watched_.size() - 1)) == 0)
    std::erase_if(watched_, [](const Watched& one) { return one.chunk.expired(); });
  watched_.push_back({chunk, std::move(evict)});
}

void Arena::relieve(std::uint64_t coming) {
  // What is coming counts: else an allocation that does not fit below the limit would be refused for ever, with nobody
  // asked to make room.
  const auto room_below = [coming](std::uint64_t limit) { return limit - std::min(coming, limit); };
  const auto chunks_max = room_below(eighths(config_.budget_bytes, 7));
  const auto all_max = room_below(config_.budget_bytes);
  if ((in_use_bytes() <= chunks_max && used_bytes() <= all_max) || relieving_.exchange(true)) return;
  if (used_bytes() > all_max) punch_kept(all_max);
  if (in_use_bytes() > chunks_max) evict_coldest(std::min(eighths(config_.budget_bytes, 6), chunks_max));
  relieving_.store(false);
}

void Arena::punch_kept(std::uint64_t target) {
  std::vector<std::shared_ptr<PartitionMemory>> quiet;
  std::vector<std::shared_ptr<PartitionMemory>> busy;
  {
    const std::scoped_lock lock(mutex_);
    if (kept_free_bytes() == 0) return;
    for (const auto& weak : memories_)
      if (auto memory = weak.lock()) (memory->took_of_late() ? busy : quiet).push_back(std::move(memory));
  }
  // Of the quiet ones more at once, so that this is seldom; a busy one takes its pages soon.
  const auto punch = [this](const auto& memories, std::uint64_t down_to) {
    for (const auto& memory : memories) {
      if (used_bytes() <= down_to) return;
      memory->punch_free();
    }
  };
  punch(quiet, std::min(target, eighths(config_.budget_bytes, 7)));
  punch(busy, target);
}

void Arena::evict_coldest(std::uint64_t target) {
  struct Candidate {
    std::shared_ptr<Chunk> chunk;
    std::function<void(const std::shared_ptr<Chunk>&)> evict;
  };
  std::vector<Candidate> cold;
  std::uint64_t on_the_way = 0;
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(watched_, [](const Watched& one) { return one.chunk.expired(); });
    for (const auto& one : watched_) {
      auto chunk = one.chunk.lock();
      if (!chunk) continue;
      if (chunk->state() == ChunkState::open || chunk->state() == ChunkState::sealed)
        cold.push_back({std::move(chunk), one.evict});
      else
        on_the_way += chunk->memory().size();
    }
  }
  const auto used = in_use_bytes();
  if (used <= target || used - target <= on_the_way) return;
  round_.fetch_add(1, std::memory_order_relaxed);
  std::sort(cold.begin(), cold.end(),
            [](const Candidate& a, const Candidate& b) { return a.chunk->last_used() < b.chunk->last_used(); });
  auto wanted = used - target - on_the_way;
  for (const auto& one : cold) {
    evictions_.fetch_add(1, std::memory_order_relaxed);
    one.evict(one.chunk);
    const auto size = one.chunk->memory().size();
    if (size >= wanted) break;
    wanted -= size;
  }
}

PartitionMemory::~PartitionMemory() {
  for (const auto extent : extents_) ::munmap(extent.data(), extent.size());
  arena_->used_.fetch_sub(kept_);
  arena_->kept_free_.fetch_sub(kept_);
}

void PartitionMemory::follow_round() {
  const auto now = arena_->round_.load(std::memory_order_relaxed);
  if (now == round_) return;
  taken_last_ = now == round_ + 1 ? taken_ : 0;
  taken_ = 0;
  round_ = now;
}

bool PartitionMemory::took_of_late() {
  const std::scoped_lock lock(mutex_);
  follow_round();
  return taken_ > 0 || taken_last_ > 0;
}

std::vector<PartitionMemory::Free>& PartitionMemory::free_of(std::uint64_t bytes) {
  const auto smallest = std::bit_width(static_cast<std::uint64_t>(arena_->config().chunk_bytes_min));
  return free_[std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes) - smallest), class_count - 1)];
}

std::optional<ChunkRange> PartitionMemory::allocate(std::uint64_t bytes, MemoryFor purpose) {
  const auto size = arena_->class_for(bytes);
  if (!size) return std::nullopt;
  arena_->tick_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::scoped_lock lock(mutex_);
    follow_round();
    auto& free = free_of(*size);
    const auto warm = std::find_if(free.begin(), free.end(), [](const Free& one) { return one.has_pages; });
    if (warm != free.end()) {
      const auto range = warm->range;
      free.erase(warm);
      kept_ -= *size;
      taken_ += *size;
      arena_->kept_free_.fetch_sub(*size);
      return range;
    }
  }
  arena_->relieve(*size);
  if (!arena_->may_take(*size, purpose)) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  auto& free = free_of(*size);
  std::optional<ChunkRange> range;
  if (!free.empty()) {
    // Another thread may have put back a warm one meanwhile: it is counted already.
    const auto taken = free.back();
    free.pop_back();
    if (taken.has_pages) {
      kept_ -= *size;
      taken_ += *size;
      arena_->kept_free_.fetch_sub(*size);
      return taken.range;
    }
    range = taken.range;
  } else {
    range = carve(*size);
  }
  if (range) {
    taken_ += *size;
    arena_->used_.fetch_add(*size);
    range->paged = *size >= huge_page_bytes && arena_->huge_pages_ ? *size : 0;
  }
  return range;
}

std::optional<ChunkRange> PartitionMemory::carve(std::uint32_t bytes) {
  const auto align = std::min<std::uint64_t>(bytes, huge_page_bytes);
  auto at = (carved_ + align - 1) / align * align;
  if (extents_.empty() || at > extents_.back().size() || bytes > extents_.back().size() - at) {
    if (!add_extent()) return std::nullopt;
    at = 0;
  }
  const auto extent = extents_.back();
  carved_ = at + bytes;
  const ChunkRange range{extent.subspan(at, bytes), (extents_.size() - 1) * arena_->config().extent_bytes + at};
  // Where the kernel does not want huge pages here the call fails and small ones do.
  if (bytes >= huge_page_bytes) ::madvise(range.bytes.data(), range.bytes.size(), MADV_HUGEPAGE);
  return range;
}

bool PartitionMemory::add_extent() {
  const auto refused = [this](const char* call) {
    log::error("log",
               "no memory for a partition: {} failed, {} ({} extents mapped); raise vm.max_map_count, the open "
               "file limit or the memory limit of the process",
               call, std::strerror(errno), extents_.size());
    return false;
  };
  if (!memfd_) {
    memfd_ = UniqueFd(::memfd_create("ciuic-partition", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memfd_) return refused("memfd_create");
    // Nobody may reopen it for writing, and a reader that mapped it must never meet an end moved under it.
    if (::fchmod(memfd_.get(), 0400) != 0) return refused("fchmod");
    if (::fcntl(memfd_.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return refused("fcntl(F_SEAL_SHRINK)");
  }
  const auto size = arena_->config().extent_bytes;
  const auto from = extents_.size() * size;
  if (::ftruncate(memfd_.get(), static_cast<off_t>(from + size)) != 0) return refused("ftruncate");
  const auto padded = size + huge_page_bytes;
  void* reserved = ::mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return refused("mmap");
  auto* start = static_cast<std::byte*>(reserved);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(start) + huge_page_bytes - 1) /
                                               huge_page_bytes * huge_page_bytes);
  void* mapped = ::mmap(aligned, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, memfd_.get(),
                        static_cast<off_t>(from));
  if (mapped == MAP_FAILED) {
    refused("mmap");
    ::munmap(reserved, padded);
    return false;
  }
  if (aligned > start) ::munmap(start, static_cast<std::size_t>(aligned - start));
  const auto behind = static_cast<std::size_t>(start + padded - (aligned + size));
  if (behind > 0) ::munmap(aligned + size, behind);
  extents_.push_back({aligned, size});
  carved_ = 0;
  return true;
}

bool PartitionMemory::punch(const ChunkRange& range) {
  if (::fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.memfd_offset),
                  static_cast<off_t>(range.bytes.size())) == 0)
    return true;
  log::error("log", "pages could not be given back: {}", std::strerror(errno));
  return false;
}

void PartitionMemory::release(const ChunkRange& range) {
  const std::scoped_lock lock(mutex_);
  const auto size = range.bytes.size();
  follow_round();
  const auto used = arena_->used_bytes();
  const bool easy = used <= eighths(arena_->config().budget_bytes, 6);
  const bool soon_again = used <= arena_->config().budget_bytes && kept_ + size <= std::max(taken_, taken_last_);
  const bool has_pages = easy || soon_again || !punch(range);
  if (has_pages) {
    kept_ += size;
    arena_->kept_free_.fetch_add(size);
  } else {
    arena_->used_.fetch_sub(size);
  }
  free_of(size).push_back({range, has_pages});
}

void PartitionMemory::punch_free() {
  const std::scoped_lock lock(mutex_);
  for (auto& list : free_) {
    for (auto& one : list) {
      if (!one.has_pages || !punch(one.range)) continue;
      one.has_pages = false;
      kept_ -= one.range.bytes.size();
      arena_->used_.fetch_sub(one.range.bytes.size());
      arena_->kept_free_.fetch_sub(one.range.bytes.size());
    }
  }
}

bool PartitionMemory::fill(const ChunkRange& range, std::uint32_t at, const std::array<Bytes, 2>& pieces) const {
  std::array<iovec, 2> rest{};
  std::span<iovec> left(rest);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    rest[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};  // NOLINT: pwritev only reads
  auto to = static_cast<off_t>(range.memfd_offset + at);
  while (!left.empty()) {
    const auto n = ::pwritev(memfd_.get(), left.data(), static_cast<int>(left.size()), to);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    auto done = static_cast<std::size_t>(n);
    while (!left.empty() && done >= left.front().iov_len) {
      done -= left.front().iov_len;
      left = left.subspan(1);
    }
    if (done > 0) left.front() = {static_cast<std::byte*>(left.front().iov_base) + done, left.front().iov_len - done};
  }
  // Who writes the segment file reads through the mapping: one call here spares a fault, and a write that the kernel
  // begins in vain, every 64 KiB there. Linux before 5.14 does not know the advice and faults.
  const auto* end = range.bytes.data() + (static_cast<std::uint64_t>(to) - range.memfd_offset);
  auto* begin = range.bytes.data() + at / page_bytes * page_bytes;
  ::madvise(begin, static_cast<std::size_t>(end - begin), MADV_POPULATE_READ);
  return true;
}

UniqueFd PartitionMemory::read_only_descriptor() const {
  const std::scoped_lock lock(mutex_);
  if (!memfd_) return {};
  const auto path = "/proc/self/fd/" + std::to_string(memfd_.get());
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

std::uint64_t PartitionMemory::memfd_bytes() const {
  const std::scoped_lock lock(mutex_);
  return extents_.size() * arena_->config().extent_bytes;
}

}  // namespace ciuic::broker
