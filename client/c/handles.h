#pragma once
#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ciuic/ciuic.h"
#include "ciuic/client.h"

/// What the handles of ciuic.h are. A handle owns C++ objects; nothing of them shows outside.
struct ciuic_batch {
  ciuic::client::RecordBatch view;
};

struct ciuic_reader {
  ciuic::client::RecordReader reader;
  std::vector<ciuic_header> headers;
};

namespace ciuic::c {

/// Fills *out (may be null) as far as its `size` goes; gives the code to return.
std::int32_t report(const client::Error& error, ciuic_error* out);
std::int32_t report(client::Trouble trouble, const char* text, ciuic_error* out);
/// 0, or what `report` says.
template <class T>
std::int32_t outcome(const client::Result<T>& result, ciuic_error* out) {
  return result ? 0 : report(result.error(), out);
}
/// No exception may leave: what cannot be (no memory, a callback's own) becomes CIUIC_FATAL.
template <class Call>
std::int32_t guarded(ciuic_error* error, Call call) noexcept {
  try {
    return call();
  } catch (const std::exception& failure) {
    return report(client::Trouble::fatal, failure.what(), error);
  }
}
/// A copy to be freed by ciuic_text_free; null: out of memory.
char* text_of(const std::string& text) noexcept;

[[nodiscard]] client::Config config_of(const ciuic_config_entry* config, std::size_t count);
[[nodiscard]] std::vector<client::TopicPartition> partitions_of(const ciuic_topic_partition* partitions,
                                                                std::size_t count);
[[nodiscard]] std::vector<client::TopicPartitionOffset> offsets_of(const ciuic_topic_partition* partitions,
                                                                   std::size_t count);
/// For C: names point into `partitions`, which must outlive it.
[[nodiscard]] std::vector<ciuic_topic_partition> to_c(std::span<const client::TopicPartition> partitions);
/// "…" with JSON's escapes.
[[nodiscard]] std::string json_string(const std::string& text);
[[nodiscard]] std::string json_of(const std::vector<client::Metric>& metrics);

/// The caller's struct may be older and shorter than ours: only what it has is written.
template <class Struct>
void give(const Struct& ours, Struct* theirs) {
  const auto size = std::min<std::size_t>(theirs->size, sizeof(Struct));
  const auto kept = theirs->size;
  std::memcpy(theirs, &ours, size);
  theirs->size = kept;
}

}  // namespace ciuic::c
