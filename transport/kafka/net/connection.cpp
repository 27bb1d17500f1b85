// One client's connection. Not here: what a request means (broker/dispatcher), accepting (listener.cpp).
#include "transport/kafka/net/connection.h"

#include <fmt/core.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <utility>

#include "transport/base/log.h"
#include "transport/kafka/wire.h"

namespace ciuic::kafka::net {
namespace asio = boost::asio;
using asio::use_awaitable;
using boost::system::error_code;

namespace {
// One read takes what the socket has; small requests then come several to a system call.
constexpr std::size_t staging_bytes = 32 * 1024;
// Ready answers are written together up to this many pieces (asio hands the kernel 64 at a time).
constexpr std::size_t pieces_per_write = 64;
// Key, version and correlation id: what every request begins with.
constexpr std::size_t request_start_bytes = 8;
// A peer that closed its sending half may still read its answers, but is not waited for longer.
constexpr std::chrono::seconds leave_max{1};
}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, std::uint64_t id, Service& service, MemoryBudget& budget,
                       const ConnectionLimits& limits)
    : socket_(std::move(socket)),
      id_(id),
      service_(service),
      budget_(budget),
      limits_(limits),
      something_done_(socket_.get_executor(), asio::steady_timer::time_point::max()),
      room_(socket_.get_executor(), asio::steady_timer::time_point::max()),
      idle_(socket_.get_executor()),
      staging_(std::make_unique_for_overwrite<std::byte[]>(staging_bytes)) {
  error_code ignored;  // a peer that is gone already has no name; reading will say so
  const auto endpoint = socket_.remote_endpoint(ignored);
  peer_host_ = endpoint.address().to_string();
  peer_ = fmt::format("{}:{}", peer_host_, endpoint.port());
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  // A host that lost its power says nothing: it is known after two minutes. What its one-sided session holds goes
  // sooner.
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  for (const auto& [option, value] :
       {std::pair(TCP_KEEPIDLE, 60), std::pair(TCP_KEEPINTVL, 10), std::pair(TCP_KEEPCNT, 6)})
    (void)::setsockopt(socket_.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  socket_.non_blocking(true, ignored);
}

Connection::~Connection() {
  for (const auto& slot : slots_) budget_.give(slot->reserved);
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  asio::co_spawn(
      socket_.get_executor(), [self]() { return self->write_loop(); }, asio::detached);
  asio::co_spawn(
      socket_.get_executor(), [self]() { return self->watch_idle(); }, asio::detached);
  const bool orderly = co_await read_loop();
  reading_ended_ = true;
  if (orderly && !closed_) {
    co_await leave();
  } else {
    close();
  }
}

/// What was asked is still answered: a peer may have closed its sending half only. Long polls end at once.
asio::awaitable<void> Connection::leave() {
  something_done_.cancel();
  if (draining_) co_return;  // the server sets the limit
  cancel_waiting();
  const auto deadline = asio::steady_timer(room_.get_executor(), leave_max).expiry();
  while (!closed_) {
    error_code woken;
    room_.expires_at(deadline);
    co_await room_.async_wait(asio::redirect_error(use_awaitable, woken));
    if (!woken) break;  // not cancelled: the time is up
  }
  close();
}

void Connection::cancel_waiting() {
  const auto waiting = slots_;  // what is cancelled may finish at once and change the list
  for (const auto& slot : waiting) {
    if (!slot->done) slot->cancel.emit(asio::cancellation_type::terminal);
  }
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  something_done_.cancel();
  room_.cancel();
  idle_.cancel();
  cancel_waiting();
  service_.closed(*this);
}

void Connection::drain() {
  draining_ = true;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_receive, ignored);
  room_.cancel();
  something_done_.cancel();
  cancel_waiting();
}

/// Takes `bytes` from the staging area and the socket. False: the peer is gone.
asio::awaitable<bool> Connection::fill(std::byte* to, std::size_t bytes) {
  while (bytes > 0) {
    if (staged_from_ < staged_to_) {
      const auto n = std::min(bytes, staged_to_ - staged_from_);
      std::memcpy(to, staging_.get() + staged_from_, n);
      staged_from_ += n;
      to += n;
      bytes -= n;
      continue;
    }
    error_code error;
    if (bytes >= staging_bytes) {  // a large body goes straight to its place
      const auto n =
          co_await socket_.async_read_some(asio::buffer(to, bytes), asio::redirect_error(use_awaitable, error));
      to += n;
      bytes -= n;
    } else {
      staged_from_ = 0;
      staged_to_ = co_await socket_.async_read_some(asio::buffer(staging_.get(), staging_bytes),
                                                    asio::redirect_error(use_awaitable, error));
    }
    if (error) co_return false;
    ++progress_;
  }
  co_return true;
}

/// False where the connection must end at once.
asio::awaitable<bool> Connection::read_loop() {
  const auto self = shared_from_this();
  for (;;) {
    std::byte prefix[4];
    if (!co_await fill(prefix, sizeof prefix)) co_return true;
    const auto size = load_be<std::int32_t>(prefix);
    if (size < static_cast<std::int32_t>(request_start_bytes) || size > limits_.request_bytes_max) {
      log::bounded(log::Level::warn, "net",
                   "request refused, connection closed peer={} size={} allowed=8…{} (socket.request.max.bytes)", peer_,
                   size, limits_.request_bytes_max);
      co_return false;
    }
    const auto bytes = static_cast<std::size_t>(size);
    std::byte begin[request_start_bytes];
    if (!co_await fill(begin, sizeof begin)) co_return true;
    const auto api_key = load_be<std::int16_t>(begin);
    const auto reserved = service_.memory_for(api_key, bytes);
    if (!reserved) {
      log::bounded(log::Level::warn, "net",
                   "request refused, connection closed: too large for its api peer={} api={} size={}", peer_, api_key,
                   size);
      co_return false;
    }
    while (!closed_ && !draining_ && slots_.size() >= limits_.in_flight_max) {
      error_code woken;
      room_.expires_at(asio::steady_timer::time_point::max());
      co_await room_.async_wait(asio::redirect_error(use_awaitable, woken));
    }
    while (!closed_ && !draining_ && !budget_.take(*reserved)) {
      error_code woken;
      room_.expires_after(std::chrono::milliseconds(2));
      co_await room_.async_wait(asio::redirect_error(use_awaitable, woken));
    }
    if (closed_ || draining_) co_return !closed_;
    auto request = std::make_shared<RequestBytes>();
    request->data = std::make_unique_for_overwrite<std::byte[]>(bytes);
    request->size = bytes;
    std::memcpy(request->data.get(), begin, sizeof begin);
    if (!co_await fill(request->data.get() + sizeof begin, bytes - sizeof begin)) {
      budget_.give(*reserved);
      co_return true;
    }
    start(std::move(request), *reserved);
  }
}

void Connection::start(std::shared_ptr<const RequestBytes> request, std::size_t reserved) {
  auto slot = std::make_shared<Slot>();
  slot->reserved = reserved;
  slots_.push_back(slot);
  auto self = shared_from_this();
  asio::co_spawn(
      socket_.get_executor(), service_.handle(self, std::move(request)),
      asio::bind_cancellation_slot(slot->cancel.slot(), [self, slot](std::exception_ptr bug, Service::Answer answer) {
        if (bug) answer = {std::nullopt, true};  // the service logged it
        self->finished(*slot, std::move(answer));
      }));
}

void Connection::finished(Slot& slot, Service::Answer answer) {
  slot.frame = std::move(answer.frame);
  slot.close_after = answer.close;
  slot.done = true;
  something_done_.cancel();
}

/// All pieces; waits only while the socket's buffer is full. Not asio::async_write: that hands the kernel 64 KiB a
/// call. False: the peer is gone.
asio::awaitable<bool> Connection::write(std::span<const asio::const_buffer> pieces) {
  std::size_t skip = 0;  // of the first piece, which is written in part
  std::array<asio::const_buffer, pieces_per_write> now;
  while (!pieces.empty()) {
    const auto count = std::min(pieces.size(), now.size());
    std::copy_n(pieces.begin(), count, now.begin());
    now[0] += skip;
    error_code error;
    auto written = socket_.write_some(std::span<const asio::const_buffer>(now.data(), count), error);
    if (error && error != asio::error::would_block && error != asio::error::try_again) co_return false;
    if (written > 0) ++progress_;
    const bool full = written < asio::buffer_size(std::span<const asio::const_buffer>(now.data(), count));
    for (written += skip; !pieces.empty() && written >= pieces.front().size(); pieces = pieces.subspan(1))
      written -= pieces.front().size();
    skip = written;
    if (!full) continue;
    error = {};
    co_await socket_.async_wait(asio::ip::tcp::socket::wait_write, asio::redirect_error(use_awaitable, error));
    if (error || closed_) co_return false;
  }
  co_return true;
}

asio::awaitable<void> Connection::write_loop() {
  const auto self = shared_from_this();
  std::vector<asio::const_buffer> pieces;
  std::vector<std::shared_ptr<Slot>> writing;
  for (;;) {
    pieces.clear();
    writing.clear();
    bool last = false;
    while (!slots_.empty() && slots_.front()->done && !last && pieces.size() < pieces_per_write) {
      auto slot = std::move(slots_.front());
      slots_.pop_front();
      last = slot->close_after;
      if (slot->frame) {
        for (const auto piece : slot->frame->gather()) pieces.emplace_back(piece.data(), piece.size());
      }
      writing.push_back(std::move(slot));
    }
    if (!pieces.empty() && !closed_) {
      if (!co_await write(pieces)) last = true;
    }
    for (const auto& slot : writing) budget_.give(slot->reserved);
    if (!writing.empty()) room_.cancel();
    if (closed_) co_return;
    if (last || ((reading_ended_ || draining_) && slots_.empty())) {
      close();
      co_return;
    }
    if (writing.empty()) {
      error_code woken;
      something_done_.expires_at(asio::steady_timer::time_point::max());
      co_await something_done_.async_wait(asio::redirect_error(use_awaitable, woken));
      if (closed_) co_return;
    }
  }
}

asio::awaitable<void> Connection::watch_idle() {
  const auto self = shared_from_this();
  while (!closed_) {
    const auto before = progress_;
    idle_.expires_after(limits_.idle_max);
    error_code error;
    co_await idle_.async_wait(asio::redirect_error(use_awaitable, error));
    if (closed_) co_return;
    // A request that is being waited for (a long poll) keeps the connection; a peer that takes no bytes does not.
    const bool waiting = !slots_.empty() && !slots_.front()->done;
    if (progress_ == before && !waiting) {
      log::bounded(log::Level::info, "net", "connection closed, idle peer={} limit_ms={} (connections.max.idle.ms)",
                   peer_, limits_.idle_max.count());
      close();
    }
  }
}

}  // namespace ciuic::kafka::net
