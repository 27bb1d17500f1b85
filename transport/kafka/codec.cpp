#include "transport/kafka/codec.h"

namespace ciuic::kafka {
namespace {

void skip_tags(WireReader& reader) {
  for (auto count = reader.uvarint(); count > 0 && reader.ok(); --count) {
    (void)reader.uvarint();
    reader.skip(reader.uvarint());
  }
}

}  // namespace

ResultOf<RequestView, DecodeError> split_request(Bytes frame) {
  WireReader reader(frame);
  RequestView request;
  request.api_key = reader.number<std::int16_t>();
  request.api_version = reader.number<std::int16_t>();
  request.correlation_id = reader.number<std::int32_t>();
  if (!reader.ok()) return DecodeError{"request header is shorter than 8 bytes"};
  // The client id keeps its old encoding in flexible headers too (KIP-482): it is read whatever the version, for the
  // log.
  const auto length = reader.number<std::int16_t>();
  if (length >= 0) request.client_id = as_text(reader.take(static_cast<std::size_t>(length)));
  if (length < -1) reader.fail();
  const auto* api = find_api(request.api_key);
  if (api == nullptr || !api->versions.holds(request.api_version)) {
    if (!reader.ok()) request.client_id.reset();
    return request;
  }
  if (request.api_version >= api->flexible_from) skip_tags(reader);
  if (!reader.ok()) return DecodeError{"request header is truncated"};
  request.body = reader.rest();
  return request;
}

ResultOf<ResponseView, DecodeError> split_response(Bytes frame, std::int16_t api_key, std::int16_t version) {
  WireReader reader(frame);
  const auto correlation_id = reader.number<std::int32_t>();
  const auto* api = find_api(api_key);
  if (api != nullptr && version >= api->flexible_from && api_key != api_versions_key) skip_tags(reader);
  if (!reader.ok()) return DecodeError{"response header is truncated"};
  return ResponseView{correlation_id, reader.rest()};
}

namespace detail {

void begin_request(Frame& frame, std::int16_t api_key, std::int16_t version, std::int32_t correlation_id,
                   std::optional<std::string_view> client_id, bool flexible) {
  WireWriter out(frame.head);
  out.number(std::int32_t{0});
  out.number(api_key);
  out.number(version);
  out.number(correlation_id);
  out.number(static_cast<std::int16_t>(client_id ? static_cast<int>(client_id->size()) : -1));
  if (client_id) out.bytes(as_bytes(*client_id));
  if (flexible) out.number(std::int8_t{0});
}

void begin_response(Frame& frame, std::int16_t api_key, std::int32_t correlation_id, bool flexible) {
  WireWriter out(frame.head);
  out.number(std::int32_t{0});
  out.number(correlation_id);
  if (flexible && api_key != api_versions_key) out.number(std::int8_t{0});
}

void finish(Frame& frame) { store_be(frame.head.data(), static_cast<std::int32_t>(frame.size() - 4)); }

}  // namespace detail
}  // namespace ciuic::kafka
