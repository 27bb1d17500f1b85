// Errors of the client.
#include "client/core/error.h"

#include <array>

namespace ciuic::client {

const char* name(Trouble trouble) {
  static constexpr std::array names{
      "none",        "invalid_config", "invalid_argument",  "invalid_state", "timed_out",
      "interrupted", "queue_full",     "forked_child",      "broker",        "disconnected",
      "unsupported", "corrupt",        "no_one_sided_path", "data_loss",     "fatal"};
  const auto at = static_cast<std::size_t>(trouble);
  return at < names.size() ? names[at] : "unknown";
}

}  // namespace ciuic::client

namespace ciuic::client::core {

Error broker_error(kafka::ErrorCode code, const std::string& what, const std::string& words) {
  std::string text = what + ": " + std::string(kafka::name(code));
  if (!words.empty()) text += ": " + words;
  return Error{Trouble::broker, static_cast<std::int16_t>(code), kafka::retriable(code), std::move(text)};
}

bool passes(const Error& error) {
  return error.retriable || error.trouble == Trouble::disconnected || error.trouble == Trouble::timed_out;
}

std::string to_text(const TopicPartition& at) { return at.topic + "-" + std::to_string(at.partition); }

Error forked_child() {
  return failure(Trouble::forked_child,
                 "this process is a forked child of the one that opened the client: open another client here");
}

}  // namespace ciuic::client::core
