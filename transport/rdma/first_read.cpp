#include "transport/rdma/first_read.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <thread>

namespace ciuic::rdma {

Result<void> first_read(Endpoint& endpoint, const Clock& clock, Clock::TimePoint deadline,
                        const std::function<Result<void>()>& post) {
  constexpr Milliseconds between{20};
  std::array<Completion, 1> done{};
  auto next = clock.now();
  std::size_t outstanding = 0;
  for (bool proven = false; !proven || outstanding > 0;) {
    const auto now = clock.now();
    if (now >= deadline) return Fault::address_unreachable;
    if (!proven && now >= next) {
      const auto posted = post();
      if (!posted && posted.error() != Fault::would_block) return posted.error();
      if (posted) {
        ++outstanding;
        next = now + between;
      }
    }
    const auto got = endpoint.poll(done);
    if (!got) return got.error();
    if (*got == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      continue;
    }
    if (done[0].fault) return *done[0].fault;
    --outstanding;
    proven = true;
  }
  return {};
}

}  // namespace ciuic::rdma
