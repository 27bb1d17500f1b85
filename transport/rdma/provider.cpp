// The values of the seam that have behaviour: Region's life, tokens.
#include "transport/rdma/provider.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "transport/base/log.h"

namespace ciuic::rdma {

namespace {

void end_or_die(std::unique_ptr<Registration>& registration) {
  if (!registration) return;
  const auto ended = registration->deregister();
  registration.reset();
  if (ended) return;
  // Its memory may be reused by whoever dropped it, and peers would read that: no process may go on like this.
  log::error("rdma", "a region could not be revoked when dropped: {}", text(ended.error()));
  log::flush();
  std::abort();
}

}  // namespace

Region& Region::operator=(Region&& other) noexcept {
  if (this != &other) {
    end_or_die(registration_);
    registration_ = std::move(other.registration_);
    remote_ = other.remote_;
  }
  return *this;
}

Region::~Region() { end_or_die(registration_); }

Result<void> Region::revoke() {
  if (!registration_) return {};
  const auto ended = registration_->deregister();
  // On failure it is leaked on purpose: a second try is the device's, and dropping it must not look like success.
  if (!ended) (void)registration_.release();
  registration_.reset();
  return ended;
}

Token Token::random() {
  Token token;
  std::size_t have = 0;
  while (have < token.bytes.size()) {
    const auto got = ::getrandom(token.bytes.data() + have, token.bytes.size() - have, 0);
    if (got > 0)
      have += static_cast<std::size_t>(got);
    else if (errno != EINTR)
      std::abort();  // a guessable token is worse than no process
  }
  return token;
}

std::optional<Token> Token::from(Bytes bytes) {
  Token token;
  if (bytes.size() != token.bytes.size()) return std::nullopt;
  std::transform(bytes.begin(), bytes.end(), token.bytes.begin(),
                 [](std::byte b) { return static_cast<std::uint8_t>(b); });
  return token;
}

}  // namespace ciuic::rdma
