// The metadata log and its records as found at start. The first byte: odd, the rest is the file (3: its batches get
// their checksums and offsets mended); even, it is records, each with two bytes of length before it, in batches that
// are right.
#include "broker/metadata/metadata_log.h"

#include "broker/metadata/metadata_image.h"
#include "tests/fuzz/support/input.h"
#include "tests/unit/log/support/simulated_files.h"
#include "transport/base/log.h"
#include "transport/kafka/record_batch.h"

using namespace ciuic;
using namespace ciuic::broker;
using fuzz::must;

namespace {

Buffer file_of(fuzz::Input input) {
  const auto kind = input.number<std::uint8_t>();
  Buffer file;
  if ((kind & 1) != 0) {
    file = to_buffer(input.rest());
    std::int64_t offset = 0;
    for (auto left = MutableBytes(file); (kind & 2) != 0 && kafka::batch_size(left) >= kafka::batch_header_bytes;) {
      const auto batch = left.first(*kafka::batch_size(left));
      kafka::store_be(batch.data(), offset);
      kafka::set_crc(batch);
      offset = kafka::RecordBatchView::parse(batch) ? kafka::RecordBatchView::parse(batch)->next_offset().value : 0;
      left = left.subspan(batch.size());
    }
    return file;
  }
  for (std::int64_t offset = 0; !input.empty(); ++offset) {
    kafka::RecordBatchBuilder builder;
    builder.add({1, std::nullopt, input.piece(), {}});
    kafka::BatchHeader header;
    header.base_offset = kafka::Offset(offset);
    Buffer batch;
    must(builder.finish(header, batch).has_value());
    file.insert(file.end(), batch.begin(), batch.end());
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::set_level(log::Level::off);
  constexpr auto path = "/logs/__cluster_metadata-0/00000000000000000000.log";
  const auto file = file_of(fuzz::Input(data, size));
  broker::testing::SimulatedFiles files;
  must(files.make_directories("/logs/__cluster_metadata-0").has_value() && write_file(files, path, file).has_value());
  ImageBuilder builder;
  auto opened = MetadataLog::open(files, "/logs",
                                  [&](Bytes record, std::int64_t offset) { return builder.replay(record, offset); });
  const auto image = builder.build();
  for (const auto& [name, topic] : image->topics()) {
    must(image->topic(name) != nullptr && topic->name == name);
    must(topic->partition(kafka::PartitionIndex(-1)) == nullptr);
    (void)image->topic_config(name);
  }
  if (!opened) return 0;
  // What was kept is whole: it can be appended to and read again.
  const auto next = opened->next_offset();
  must(next >= 0 && opened->append({to_buffer(as_bytes("x"))}, 1).has_value());
  std::int64_t records = 0;
  const auto again = MetadataLog::open(files, "/logs", [&](Bytes, std::int64_t) { return ++records > 0; });
  must(again && again->next_offset() == next + 1);
  return 0;
}
