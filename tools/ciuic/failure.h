#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace ciuic::tool {

/// What the command ends with. Documented in `ciuic --help`.
enum class Exit : int {
  ok = 0,
  failed = 1,       ///< the broker refused, or a file could not be used
  usage = 2,        ///< the command line is wrong
  unreachable = 3,  ///< no broker answered
  found_wrong = 4,  ///< what was looked at is damaged or missing something (log, doctor)
  interrupted = 130
};

/// What to do where no broker answers.
inline constexpr const char* no_broker_remedy = "start one with `ciuic-broker`, or name another with -b host:port";

/// Ends the command: what went wrong, and what to do about it.
class Failure : public std::runtime_error {
 public:
  Failure(Exit how, const std::string& what, std::string what_to_do = {})
      : std::runtime_error(what), exit(how), remedy(std::move(what_to_do)) {}
  Exit exit;
  std::string remedy;
};

}  // namespace ciuic::tool
