#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "broker/log/files.h"
#include "transport/base/clock.h"
#include "transport/base/executor.h"
#include "transport/kafka/types.h"

namespace ciuic::broker {

/// `ciuic-journal-<n>` in a log directory.
inline constexpr std::string_view journal_file_prefix = "ciuic-journal-";

/// Where bytes of the log belong: at `position` of the file of a partition's segment.
struct JournalPlace {
  kafka::PartitionId partition;
  kafka::Offset segment_base;
  std::uint32_t position = 0;
};

/// The short cut to an acknowledgement: a ring in a mapped file of the log directory, one for each executor that owns
/// partitions there. What is copied into it is in the kernel at once, without a system call or another thread, and
/// outlives the process as bytes in a segment's file do; those follow a little later in large writes, and cost a
/// fraction of small ones. After a kill `replay_journal` puts into the segment files what had not got there.
///
/// Owner's executor, every call not marked otherwise. Not thread-safe.
class Journal : public std::enable_shared_from_this<Journal> {
 public:
  /// One partition's share. `file_now`: posted when its oldest bytes should go to their file (age, or the ring is
  /// filling).
  class Share {
   public:
    explicit Share(std::function<void()> file_now) : file_now_(std::move(file_now)) {}

   private:
    friend class Journal;
    std::function<void()> file_now_;
    std::uint64_t filed_to_ = 0;
  };

  /// Any thread, as `join`. Makes the file anew. `bytes`: rounded down to pages, at least four. The ring's file lies
  /// there until `remove`.
  [[nodiscard]] static IoResult<std::shared_ptr<Journal>> make(Files& files, const std::string& path,
                                                               std::uint64_t bytes, Executor& executor,
                                                               const Clock& clock);

  [[nodiscard]] std::shared_ptr<Share> join(std::function<void()> file_now);
  /// Copies `bytes` in: they are in the kernel now. False, and nothing done, when the ring has no room for them.
  [[nodiscard]] bool append(const std::shared_ptr<Share>& share, const JournalPlace& place, Bytes bytes);
  /// Behind the last append: what a partition remembers with a write to its file.
  [[nodiscard]] std::uint64_t end() const { return head_; }
  /// Everything of the share below `position` is in its files (or is of no account: its partition was deleted).
  void filed(Share& share, std::uint64_t position);
  static constexpr std::uint64_t everything = ~std::uint64_t{0};
  /// Runs `then(true)`, inside this or a later call, when no replay after a kill can give anything below `position` any
  /// more; `then(false)` when the ring stops before.
  void when_past(std::uint64_t position, std::function<void(bool past)> then);
  /// The tail of now is on the device: from here on `when_past` holds after the machine's end too. Any thread; blocks.
  [[nodiscard]] IoResult<void> sync_tail();
  /// The directory is offline: what the ring holds stays for the next start, nothing is added, nobody waits any more.
  void stop();
  /// After a clean stop: there is nothing in it. Any thread.
  [[nodiscard]] IoResult<void> remove();

 private:
  struct Entry {
    std::uint64_t begin;
    std::uint64_t end;
    std::shared_ptr<Share> share;
    Clock::TimePoint since;
  };
  struct Waiter {
    std::uint64_t position;
    std::function<void(bool)> then;
  };

  Journal(Files& files, std::string path, std::shared_ptr<MappedFile> file, Executor& executor, const Clock& clock);
  void put(std::uint64_t position, bool turn, const JournalPlace& place, Bytes bytes);
  void store_tail();
  void advance();
  [[nodiscard]] std::deque<Entry>::iterator first_from(std::uint64_t position);
  void ask_until(std::uint64_t position);
  void watch_age();

  Files& files_;
  std::string path_;
  std::shared_ptr<MappedFile> file_;
  Executor& executor_;
  const Clock& clock_;
  MutableBytes ring_;
  std::uint64_t size_;
  std::uint64_t secret_;
  // Positions count up for ever; the place in the ring is the position modulo its size.
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t asked_ = 0;  // shares of entries that begin below it were asked to file
  bool watching_ = false;
  bool stopped_ = false;
  std::deque<Entry> entries_;
  std::deque<Waiter> waiters_;
};

/// What a journal held, for the log of the start.
struct Replayed {
  std::uint64_t bytes = 0;     ///< put into segment files
  std::uint64_t gone = 0;      ///< of partitions that are not here any more
  std::uint64_t left_out = 0;  ///< that fit nowhere: the files end before or hold something else
  std::map<kafka::PartitionId, kafka::Offset> kept_back{};  ///< partitions without their files: where their records end
};
/// Where a journal's records of a partition go.
struct ReplayTo {
  enum class Kind { directory, gone, kept_back };  ///< of a deleted one; of one whose files are missing: left out
  Kind kind = Kind::gone;
  std::string directory{};
};
/// Writes into the segment files what a journal's process had acknowledged and not put there. May be repeated; blocks;
/// belongs to the start, before the logs are opened. The caller removes the file afterwards.
[[nodiscard]] IoResult<Replayed> replay_journal(Files& files, const std::string& path,
                                                const std::function<ReplayTo(const kafka::PartitionId&)>& where);

}  // namespace ciuic::broker
