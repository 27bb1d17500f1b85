#include "transport/base/clock.h"

namespace ciuic {
namespace {

class SystemClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    return TimePoint(std::chrono::steady_clock::now().time_since_epoch());
  }
  [[nodiscard]] std::int64_t wall_ms() const override {
    return std::chrono::duration_cast<Milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace ciuic
