#include "broker/metadata/metadata_log.h"

#include <fmt/core.h>

#include <algorithm>

#include "transport/base/log.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::broker {
namespace {
constexpr auto folder = "__cluster_metadata-0";
constexpr auto file_name = "00000000000000000000.log";
constexpr kafka::LeaderEpoch first_epoch{1};  // of a log that no quorum has written in before

/// True if a whole batch lies behind what cannot be read: then the end is not torn, the middle is damaged. A change is
/// on the disk before the next is written.
bool batch_within(Bytes left, std::int64_t next_offset) {
  for (std::size_t at = 1; at + kafka::batch_header_bytes <= left.size(); ++at) {
    const auto batch = kafka::RecordBatchView::parse(left.subspan(at));
    if (batch && batch->base_offset().value > next_offset && batch->crc_valid()) return true;
  }
  return false;
}
}  // namespace

ResultOf<MetadataLog, std::string> MetadataLog::open(Files& files, const std::string& log_dir,
                                                     const std::function<bool(Bytes, std::int64_t)>& replay) {
  const auto directory = log_dir + "/" + folder;
  const auto path = directory + "/" + file_name;
  if (const auto made = files.make_directories(directory); !made) return made.error().text;
  auto entries = files.list(directory);
  if (!entries) return entries.error().text;
  for (const auto& entry : *entries) {
    // Apache's controller rolls its log after a week and deletes what a snapshot holds: then this file is not all there
    // is.
    if (entry.name.ends_with(".log") && entry.name != file_name) {
      return fmt::format(
          "{}/{}: the metadata log has been rolled by an Apache controller, which this broker cannot read; "
          "start on an empty directory and copy the topics with a client",
          directory, entry.name);
    }
  }
  auto file = files.open(path, OpenMode::create);
  if (!file) return file.error().text;
  const auto content = read_file(files, path);
  if (!content) return content.error().text;

  Bytes left(*content);
  std::int64_t next = 0;
  auto epoch = first_epoch;
  Buffer scratch;
  while (!left.empty()) {
    const auto batch = kafka::RecordBatchView::parse(left);
    if (!batch || !batch->crc_valid() || batch->base_offset().value != next) break;
    auto records = kafka::RecordReader::open(*batch, scratch, 64U << 20);
    if (!records) break;
    std::int32_t count = 0;
    for (; const auto record = records->next(); ++count) {
      if (!batch->control() && (!record->value || !replay(*record->value, record->offset.value))) {
        return fmt::format(
            "{}: the record at offset {} is no metadata record; restore the file or start on an empty directory", path,
            record->offset.value);
      }
    }
    // Whole, and yet wrong: nothing is torn here, and cutting it would lose what was acknowledged.
    if (records->error() != nullptr || count == 0 || batch->last_offset_delta() != count - 1) {
      return fmt::format("{}: the batch at offset {} is damaged; restore the file or start on an empty directory", path,
                         next);
    }
    next = batch->next_offset().value;
    epoch = std::max(epoch, batch->leader_epoch());  // epochs never fall, whoever writes next
    left = left.subspan(batch->size());
  }
  const std::uint64_t good = content->size() - left.size();
  if (!left.empty()) {
    if (batch_within(left, next))
      return fmt::format(
          "{}: the batch at offset {} is damaged, and others follow it; restore the file, or cut it at byte "
          "{} to go on without the changes from there on",
          path, next, good);
    log::warn("metadata", "torn tail cut file={} bytes={} kept={}", path, left.size(), good);
    if (const auto cut = (*file)->truncate(good); !cut) return cut.error().text;
  }
  if (const auto synced = files.sync_directory(directory); !synced) return synced.error().text;
  return MetadataLog(std::move(*file), good, next, epoch);
}

IoResult<std::int64_t> MetadataLog::append(const std::vector<Buffer>& records, std::int64_t timestamp_ms) {
  kafka::RecordBatchBuilder builder;
  for (const auto& record : records) builder.add({timestamp_ms, std::nullopt, Bytes(record), {}});
  kafka::BatchHeader header;
  header.base_offset = kafka::Offset(next_offset_);
  header.leader_epoch = epoch_;
  Buffer batch;
  if (const auto built = builder.finish(header, batch); !built) return IoError(0, built.error().text);
  const Bytes pieces[] = {Bytes(batch)};
  if (const auto written = file_->write_at(bytes_, pieces); !written) return written.error();
  if (const auto synced = file_->sync(); !synced) return synced.error();
  bytes_ += batch.size();
  next_offset_ += static_cast<std::int64_t>(records.size());
  return next_offset_ - 1;
}

}  // namespace ciuic::broker
