// One row a generated message. Slow to compile (it walks every message), so tests and fuzz targets share it.
#include "tests/unit/kafka/support/message_table.h"

#include <algorithm>

#include "tests/kafka/every_message.h"
#include "tests/unit/kafka/support/filler.h"

namespace ciuic::kafka::testing {
namespace {

template <class M>
Again again(Bytes bytes, std::int16_t version) {
  const auto message = decode<M>(bytes, version);
  if (!message) return {message.error().what, {}, false};
  Again result;
  result.bytes = encode(*message, version).flatten();
  const auto second = decode<M>(result.bytes, version);
  result.stable = second.has_value() && *second == *message;
  return result;
}

template <class M>
bool decodes(Bytes bytes, std::int16_t version) {
  return decode<M>(bytes, version).has_value();
}

template <class M>
Buffer defaults(std::int16_t version) {
  return encode(M{}, version).flatten();
}

template <class M, class Walk>
std::optional<Buffer> random_by(std::mt19937_64& dice, std::int16_t version, Walk&& walk_message) {
  M message;
  Filler filler(dice);
  walk_message(filler, message, version, version >= M::flexible_from);
  auto bytes = encode(message, version).flatten();
  const auto back = decode<M>(bytes, version);
  if (!back || !(*back == message)) return std::nullopt;
  return bytes;
}

constexpr MessageCase cases[] = {
#define CIUIC_CASE(M, kind)                                                               \
  {#M,                                                                                    \
   MessageKind::kind,                                                                     \
   M::api_key,                                                                            \
   M::valid_versions,                                                                     \
   M::flexible_from,                                                                      \
   again<M>,                                                                              \
   decodes<M>,                                                                            \
   defaults<M>,                                                                           \
   [](std::mt19937_64& dice, std::int16_t version) {                                      \
     return random_by<M>(dice, version, [](auto& w, auto& m, std::int16_t v, bool flex) { \
       walk_##M##_::walk_message(w, m, v, flex);                                          \
     });                                                                                  \
   }},
    CIUIC_EVERY_MESSAGE(CIUIC_CASE)
#undef CIUIC_CASE
};

}  // namespace

std::span<const MessageCase> every_message() { return cases; }

const MessageCase* find_message(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(cases), std::end(cases), [&](const auto& row) { return row.name == name; });
  return found == std::end(cases) ? nullptr : found;
}

}  // namespace ciuic::kafka::testing
