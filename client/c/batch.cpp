// Batches and records across the C ABI.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <optional>
#include <vector>

#include "client/c/handles.h"

using namespace ciuic;  // NOLINT: a file of one-line bridges

namespace {

/// The record for C, but for `headers`, which it appends to a list that may still move.
ciuic_record to_c(const client::Record& record, std::vector<ciuic_header>& headers) {
  // An empty value is a pointer that is not null.
  static constexpr char nothing = 0;
  const auto at = [](const std::optional<client::Bytes>& bytes) -> const void* {
    if (!bytes) return nullptr;
    return bytes->data() == nullptr ? static_cast<const void*>(&nothing) : bytes->data();
  };
  ciuic_record ours{};
  ours.timestamp_type = static_cast<std::int32_t>(record.timestamp_type);
  ours.offset = record.offset;
  ours.timestamp = record.timestamp;
  ours.key = at(record.key);
  ours.key_length = record.key ? record.key->size() : 0;
  ours.value = at(record.value);
  ours.value_length = record.value ? record.value->size() : 0;
  ours.header_count = record.headers.size();
  for (const auto& header : record.headers) {
    headers.push_back(
        {header.key.data(), header.key.size(), at(header.value), header.value ? header.value->size() : 0});
  }
  return ours;
}

/// No next record: the end, or a malformed one.
std::int32_t ended(const ciuic_reader& reader, ciuic_error* error) {
  return reader.reader.error() == nullptr ? 0 : c::report(*reader.reader.error(), error);
}

}  // namespace

extern "C" {

int32_t ciuic_batch_info_get(const ciuic_batch* batch, ciuic_batch_info* info) {
  ciuic_batch_info ours{};
  const auto& view = batch->view;
  ours.partition = view.partition();
  ours.topic = view.topic().c_str();
  ours.bytes = view.bytes().data();
  ours.length = view.size();
  ours.device_bytes = view.device_bytes().address;
  ours.memory = ours.device_bytes == 0 ? CIUIC_MEMORY_HOST : CIUIC_MEMORY_CUDA;
  ours.base_offset = view.base_offset();
  ours.last_offset = view.last_offset();
  ours.first_wanted_offset = view.first_wanted_offset();
  ours.max_timestamp = view.max_timestamp();
  ours.leader_epoch = view.leader_epoch();
  ours.record_count = view.record_count();
  ours.compression = view.compression();
  ours.in_place = view.in_place() ? 1 : 0;
  c::give(ours, info);
  return 0;
}

ciuic_batch* ciuic_batch_retain(const ciuic_batch* batch) { return new (std::nothrow) ciuic_batch{batch->view}; }
void ciuic_batch_free(ciuic_batch* batch) { delete batch; }
int32_t ciuic_batch_in_force(const ciuic_batch* batch) { return batch->view.in_force() ? 1 : 0; }

int32_t ciuic_batch_copy(const ciuic_batch* batch, ciuic_batch** copy, ciuic_error* error) {
  return c::guarded(error, [&] {
    auto copied = batch->view.copy();
    if (!copied) return c::report(copied.error(), error);
    *copy = new ciuic_batch{*std::move(copied)};
    return 0;
  });
}

ciuic_reader* ciuic_reader_new(void) {
  try {
    return new ciuic_reader{client::RecordReader(), {}};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void ciuic_reader_free(ciuic_reader* reader) { delete reader; }

int32_t ciuic_reader_open(ciuic_reader* reader, const ciuic_batch* batch, ciuic_error* error) {
  return c::guarded(error, [&] {
    return c::outcome(reader->reader.open(batch == nullptr ? client::RecordBatch() : batch->view), error);
  });
}

int32_t ciuic_reader_next(ciuic_reader* reader, ciuic_record* record, ciuic_error* error) {
  return c::guarded(error, [&] {
    const auto* const next = reader->reader.next();
    if (next == nullptr) return ended(*reader, error);
    reader->headers.clear();
    auto ours = to_c(*next, reader->headers);
    ours.headers = reader->headers.data();
    c::give(ours, record);
    return 1;
  });
}

int32_t ciuic_reader_next_many(ciuic_reader* reader, ciuic_record* records, size_t capacity, ciuic_error* error) {
  return c::guarded(error, [&] {
    const std::size_t stride = capacity == 0 ? 0 : records[0].size;
    constexpr std::size_t shortest = offsetof(ciuic_record, header_count) + sizeof(std::size_t);  // of ABI version 1
    if (capacity != 0 && stride < shortest)
      return c::report(client::Trouble::invalid_argument, "records[0].size: set it to sizeof(ciuic_record)", error);
    const auto at = [&](std::size_t i) {
      return reinterpret_cast<ciuic_record*>(reinterpret_cast<std::byte*>(records) + i * stride);
    };
    const auto most = std::min<std::size_t>(capacity, std::numeric_limits<std::int32_t>::max());
    reader->headers.clear();
    std::size_t count = 0;
    while (count < most) {
      const auto* const next = reader->reader.next();
      if (next == nullptr) break;
      const auto ours = to_c(*next, reader->headers);
      at(count)->size = static_cast<std::uint32_t>(stride);
      c::give(ours, at(count++));
    }
    if (count == 0 && most != 0) return ended(*reader, error);
    // The list of headers has stopped moving only now.
    const auto* headers = reader->headers.data();
    for (std::size_t i = 0; i < count; ++i) {
      at(i)->headers = headers;
      headers += at(i)->header_count;
    }
    return static_cast<std::int32_t>(count);
  });
}
}
