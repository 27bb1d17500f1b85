// A response as a client gets it. The first three bytes are the API's key and the version, the rest is the frame.
#include <algorithm>
#include <cstdlib>

#include "tests/unit/kafka/support/message_table.h"

using namespace ciuic;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto key = kafka::load_be<std::int16_t>(bytes.data());
  const auto every = kafka::testing::every_message();
  const auto message = std::find_if(every.begin(), every.end(), [&](const auto& row) {
    return row.kind == kafka::testing::MessageKind::response && row.api_key == key;
  });
  if (message == every.end()) return 0;
  const auto version = static_cast<std::int16_t>(data[2]);
  const auto response = kafka::split_response(bytes.subspan(3), key, version);
  if (!response) return 0;
  const auto again = message->again(response->body, version);
  if (again.error == nullptr && !again.stable) std::abort();
  return 0;
}
