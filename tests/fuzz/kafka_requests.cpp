// A frame as a broker gets it: header, then the body by API and version. Every message of the schemas that is no
// response is reached, those that are no request by a first byte of 0xFF.
#include <cstdlib>

#include "tests/unit/kafka/support/message_table.h"

using namespace ciuic;

namespace {

void must_be_stable(const kafka::testing::MessageCase& message, Bytes body, std::int16_t version) {
  const auto again = message.again(body, version);
  if (again.error == nullptr && !again.stable) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (size >= 3 && data[0] == 0xFF) {
    const auto every = kafka::testing::every_message();
    const auto& message = every[data[1] % every.size()];
    if (message.kind != kafka::testing::MessageKind::request && message.kind != kafka::testing::MessageKind::response) {
      must_be_stable(message, bytes.subspan(3), static_cast<std::int16_t>(data[2] % 8));
    }
    return 0;
  }
  const auto request = kafka::split_request(bytes);
  if (!request) return 0;
  for (const auto& message : kafka::testing::every_message()) {
    if (message.kind == kafka::testing::MessageKind::request && message.api_key == request->api_key) {
      must_be_stable(message, request->body, request->api_version);
    }
  }
  return 0;
}
