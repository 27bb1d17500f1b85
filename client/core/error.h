#pragma once
#include <string>
#include <utility>

#include "ciuic/result.h"
#include "ciuic/types.h"
#include "transport/kafka/error_code.h"

namespace ciuic::client::core {

/// An error of the client's own making.
[[nodiscard]] inline Error failure(Trouble trouble, std::string text, bool retriable = false) {
  return Error{trouble, 0, retriable, std::move(text)};
}
/// What a broker answered: "data-3: NOT_LEADER_OR_FOLLOWER: …". `what` says on what.
[[nodiscard]] Error broker_error(kafka::ErrorCode code, const std::string& what, const std::string& words = {});

/// What another try, after a look at metadata or at the coordinator, may cure.
[[nodiscard]] bool passes(const Error& error);
/// "data-3"
[[nodiscard]] std::string to_text(const TopicPartition& at);

[[nodiscard]] Error forked_child();

}  // namespace ciuic::client::core
