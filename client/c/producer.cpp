// The producer across the C ABI.
#include "client/c/handles.h"

using namespace ciuic;  // NOLINT: a file of one-line bridges

struct ciuic_producer {
  client::Producer producer;
};

namespace {
std::optional<client::Bytes> bytes_of(const void* data, std::size_t length) {
  if (data == nullptr) return std::nullopt;
  return client::Bytes(static_cast<const std::byte*>(data), length);
}
client::Milliseconds ms(std::int64_t count) {
  return client::Milliseconds(std::clamp<std::int64_t>(count, 0, 86'400'000));
}
}  // namespace

extern "C" {

int32_t ciuic_producer_open(const ciuic_config_entry* config, size_t count, ciuic_producer** producer,
                            ciuic_error* error) {
  *producer = nullptr;
  return c::guarded(error, [&] {
    auto opened = client::Producer::open(c::config_of(config, count));
    if (!opened) return c::report(opened.error(), error);
    *producer = new ciuic_producer{*std::move(opened)};
    return 0;
  });
}

int32_t ciuic_producer_close(ciuic_producer* producer, int64_t timeout_ms, ciuic_error* error) {
  if (producer == nullptr) return 0;
  return c::guarded(error, [&] {
    const auto code = c::outcome(producer->producer.close(ms(timeout_ms)), error);
    delete producer;
    return code;
  });
}

int32_t ciuic_producer_send(ciuic_producer* producer, const ciuic_record_to_send* record,
                            ciuic_delivery_callback callback, void* opaque, ciuic_error* error) {
  return c::guarded(error, [&] {
    ciuic_record_to_send given{};
    std::memcpy(&given, record, std::min<std::size_t>(record->size, sizeof given));
    if (given.topic == nullptr) return c::report(client::Trouble::invalid_argument, "topic is NULL", error);
    std::vector<client::Header> headers;
    for (std::size_t i = 0; i < given.header_count; ++i) {
      const auto& one = given.headers[i];
      headers.push_back({std::string_view(one.key, one.key_length), bytes_of(one.value, one.value_length)});
    }
    client::RecordToSend send;
    send.topic = given.topic;
    if (given.partition >= 0) send.partition = given.partition;
    send.key = bytes_of(given.key, given.key_length);
    send.value = bytes_of(given.value, given.value_length);
    if (given.timestamp >= 0) send.timestamp = given.timestamp;
    send.headers = headers;
    client::DeliveryCallback done;
    if (callback != nullptr) {
      done = [callback, opaque](const client::Result<client::Written>& written) {
        if (written) return callback(opaque, written->partition, written->offset, written->timestamp, nullptr);
        ciuic_error told{};
        told.size = sizeof told;
        (void)c::report(written.error(), &told);
        callback(opaque, -1, -1, -1, &told);
      };
    }
    return c::outcome(producer->producer.send(send, std::move(done)), error);
  });
}

int32_t ciuic_producer_flush(ciuic_producer* producer, int64_t timeout_ms, ciuic_error* error) {
  return c::guarded(error, [&] { return c::outcome(producer->producer.flush(ms(timeout_ms)), error); });
}
int32_t ciuic_producer_partition_count(ciuic_producer* producer, const char* topic, int64_t timeout_ms,
                                       int32_t* partitions, ciuic_error* error) {
  return c::guarded(error, [&] {
    const auto found = producer->producer.partition_count(topic, ms(timeout_ms));
    if (found) *partitions = *found;
    return c::outcome(found, error);
  });
}
char* ciuic_producer_metrics_json(ciuic_producer* producer) {
  char* out = nullptr;
  (void)c::guarded(nullptr, [&] {
    out = c::text_of(c::json_of(producer->producer.metrics()));
    return 0;
  });
  return out;
}
}
