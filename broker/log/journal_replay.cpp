// What a start makes of the journal that a killed process left. Not here: the ring while it is in use (journal.cpp).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "broker/log/journal.h"
#include "broker/log/journal_format.h"
#include "broker/log/segment.h"
#include "broker/log/stored_batch.h"

namespace ciuic::broker {

namespace {

struct Record {
  journal::RecordHead head;
  Bytes bytes;
};

/// The records from the tail on, up to the first that is not whole.
std::vector<Record> records_of(Bytes file) {
  std::vector<Record> found;
  journal::FileHead head;
  if (file.size() < journal::ring_begin) return found;
  std::memcpy(&head, file.data(), sizeof head);
  const auto ring = file.subspan(journal::ring_begin);
  if (head.magic != journal::FileHead::right_magic || head.ring_bytes != ring.size() || ring.empty()) return found;
  for (auto at = head.tail; at - head.tail < ring.size();) {
    const auto here = ring.subspan(at % ring.size());
    Record record;
    if (here.size() < sizeof record.head) {
      at = journal::next_turn(at, ring.size());
      continue;
    }
    std::memcpy(&record.head, here.data(), sizeof record.head);
    if (record.head.at != at || record.head.bytes > here.size() - sizeof record.head) break;
    // Nor does one reach back over the tail.
    if (journal::record_bytes(record.head.bytes) > ring.size() - (at - head.tail)) break;
    record.bytes = here.subspan(sizeof record.head, record.head.bytes);
    if (record.head.crc != journal::crc_of(record.head, record.bytes, head.secret)) break;
    if (record.head.secret != static_cast<std::uint32_t>(head.secret)) break;
    if (record.head.turn != 0) {
      at = journal::next_turn(at, ring.size());
      continue;
    }
    found.push_back(record);
    at += journal::record_bytes(record.head.bytes);
  }
  return found;
}

/// Puts a partition's records back. Its newest segment is the only one that may lack bytes: the file of a segment is
/// made when everything of the one before is in that one's file (Partition::finish_segment).
class PartitionReplay {
 public:
  PartitionReplay(Files& files, const std::string& directory, Replayed& replayed)
      : files_(files), directory_(directory), replayed_(replayed) {}

  IoResult<void> run(const std::vector<Record>& records) {
    const auto entries = files_.list(directory_);
    if (!entries) return entries.error();
    for (const auto& entry : *entries)
      if (const auto base = segment_base_of(entry.name, log_suffix)) newest_ = std::max(newest_, *base);
    bool fit = true;  // what follows a record that does not fit belongs behind it, and nowhere else
    for (const auto& record : records) {
      if (fit) {
        const auto done = put(record);
        if (!done) return done.error();
        fit = *done;
      }
      if (!fit) replayed_.left_out += record.bytes.size();
    }
    return {};
  }

 private:
  /// True if the segment's file holds the record now.
  IoResult<bool> put(const Record& record) {
    const kafka::Offset base(record.head.segment_base);
    if (base < newest_) return true;
    if (const auto opened = open(base, record.head.position == 0); !opened) {
      if (opened.error().number == ENOENT) return false;
      return opened.error();
    }
    const auto size = file_->size();
    if (!size) return size.error();
    if (*size < record.head.position) return false;
    // A write that the end of the process cut short left a part of these bytes. Others mean that somebody else went on
    // with this log: then they stand.
    Buffer there(std::min<std::uint64_t>(*size - record.head.position, record.bytes.size()));
    const auto got = file_->read_at(record.head.position, there);
    if (!got) return got.error();
    if (!std::equal(there.begin(), there.end(), record.bytes.begin())) return false;
    const auto rest = record.bytes.subspan(there.size());
    if (rest.empty()) return true;
    if (const auto done = file_->write_at(*size, std::span(&rest, 1)); !done) return done.error();
    replayed_.bytes += rest.size();
    return true;
  }

  IoResult<void> open(kafka::Offset base, bool may_be_new) {
    if (file_ && base == newest_) return {};
    file_.reset();
    auto file =
        files_.open(segment_file(directory_, base, log_suffix), may_be_new ? OpenMode::create : OpenMode::read_write);
    if (!file) return file.error();
    file_ = std::move(*file);
    newest_ = base;
    return {};
  }

  Files& files_;
  const std::string& directory_;
  Replayed& replayed_;
  kafka::Offset newest_{-1};
  std::shared_ptr<File> file_;  // of the newest
};

/// The offset behind the last batch.
kafka::Offset end_of(const std::vector<Record>& records) {
  kafka::Offset end;
  for (const auto& record : records) {
    end = std::max(end, kafka::Offset(record.head.segment_base));
    for (auto rest = record.bytes; rest.size() >= StoredBatch::bytes_v2;) {
      const auto size = stored_batch_size(rest);
      if (!size || *size > rest.size()) break;
      end = std::max(end, StoredBatch(rest).last_offset() + 1);
      rest = rest.subspan(*size);
    }
  }
  return end;
}

}  // namespace

IoResult<Replayed> replay_journal(Files& files, const std::string& path,
                                  const std::function<ReplayTo(const kafka::PartitionId&)>& where) {
  const auto file = read_file(files, path);
  if (!file) return file.error();
  Replayed replayed;
  std::map<kafka::PartitionId, std::vector<Record>> partitions;
  for (const auto& record : records_of(*file))
    partitions[{record.head.topic, kafka::PartitionIndex(record.head.partition)}].push_back(record);
  for (const auto& [id, records] : partitions) {
    const auto to = where(id);
    if (to.kind == ReplayTo::Kind::directory) {
      if (const auto done = PartitionReplay(files, to.directory, replayed).run(records); !done) return done.error();
      continue;
    }
    const bool gone = to.kind == ReplayTo::Kind::gone;
    for (const auto& record : records) (gone ? replayed.gone : replayed.left_out) += record.bytes.size();
    if (!gone) replayed.kept_back[id] = end_of(records);
  }
  return replayed;
}

}  // namespace ciuic::broker
