// Small text files of a log directory, and its names: checkpoints, leader epochs, partition.metadata, directories.
#include "broker/log/checkpoints.h"

#include "broker/log/leader_epochs.h"
#include "broker/log/segment.h"
#include "tests/fuzz/support/input.h"
#include "tests/unit/log/support/simulated_files.h"
#include "transport/base/log.h"

using namespace ciuic;
using namespace ciuic::broker;
using fuzz::must;

namespace {

void epochs_of(std::string_view text) {
  auto epochs = LeaderEpochs::parse(text);
  if (!epochs) return;
  const auto& entries = epochs->entries();
  for (std::size_t i = 1; i < entries.size(); ++i)
    must(entries[i - 1].epoch < entries[i].epoch && entries[i - 1].start < entries[i].start);
  const auto again = LeaderEpochs::parse(epochs->to_text());
  must(again && again->entries() == entries);
  if (entries.empty()) return;
  const auto middle = entries[entries.size() / 2];
  must(epochs->epoch_of(middle.start) == middle.epoch);
  must(epochs->end_of(middle.epoch, entries.back().start).has_value());
  (void)epochs->truncate_from_start(middle.start);
  must(!epochs->entries().empty() && epochs->entries().front().start >= middle.start);
  (void)epochs->truncate_from_end(middle.start);
  must(epochs->entries().empty() || epochs->entries().back().start < middle.start);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::set_level(log::Level::off);
  const fuzz::Input input(data, size);
  const auto text = as_text(input.rest());
  broker::testing::SimulatedFiles files;
  must(files.make_directories("/logs").has_value() && write_file(files, "/logs/checkpoint", input.rest()).has_value());
  const auto checkpoint = read_checkpoint(files, "/logs/checkpoint");
  must(checkpoint.has_value());
  must(write_checkpoint(files, "/logs/again", *checkpoint).has_value());
  const auto again = read_checkpoint(files, "/logs/again");
  must(again && *again == *checkpoint);

  if (const auto id = parse_partition_metadata(text))
    must(parse_partition_metadata(partition_metadata_text(*id)) == id);
  if (const auto name = parse_partition_directory(text))
    must(parse_partition_directory(partition_directory(*name)) == name);
  if (const auto base = segment_base_of(text, log_suffix))
    must(segment_file("/logs", *base, log_suffix).ends_with(text));
  epochs_of(text);
  return 0;
}
