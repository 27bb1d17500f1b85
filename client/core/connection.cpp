// One TCP connection: dial, pipeline, frames in and out, deadlines.
#include "client/core/connection.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ciuic/client.h"
#include "transport/kafka/wire.h"

namespace ciuic::client::core {
namespace {

constexpr std::int16_t api_versions_asked = 3;
constexpr std::size_t pieces_max = 64;  // of one gather write
constexpr Milliseconds sweep{100};      // how exactly deadlines are kept

struct Resolved {
  std::vector<std::pair<sockaddr_storage, socklen_t>> addresses{};
  std::string why{};
};

Resolved resolve(const Address& address) {
  Resolved out;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      error != 0) {
    out.why = gai_strerror(error);
    return out;
  }
  for (const auto* each = found; each != nullptr; each = each->ai_next) {
    sockaddr_storage storage{};
    std::memcpy(&storage, each->ai_addr, each->ai_addrlen);
    out.addresses.emplace_back(storage, each->ai_addrlen);
  }
  freeaddrinfo(found);
  return out;
}

}  // namespace

Connection::Connection(Loop& loop, Address address, const CommonSettings& settings)
    : loop_(loop), address_(std::move(address)), settings_(settings), writable_(loop) {}

Connection::~Connection() { close(lost("closed")); }

std::string Connection::address_text() const {
  return address_.host.find(':') == std::string::npos ? fmt::format("{}:{}", address_.host, address_.port)
                                                      : fmt::format("[{}]:{}", address_.host, address_.port);
}
Error Connection::lost(const std::string& why) const {
  return failure(Trouble::disconnected, address_text() + ": " + why, true);
}
Error Connection::lacks(std::int16_t api) const {
  const auto* const info = kafka::find_api(api);
  return failure(Trouble::unsupported, fmt::format("{} has no version of {} that this client speaks", address_text(),
                                                   info == nullptr ? "an API" : info->name));
}

std::optional<std::int16_t> Connection::version(std::int16_t api, kafka::VersionRange ours) const {
  const auto found = versions_.find(api);
  if (found == versions_.end()) return std::nullopt;
  const auto newest = std::min(found->second.max, ours.max);
  if (newest < std::max(found->second.min, ours.min)) return std::nullopt;
  return newest;
}

Co<Result<std::shared_ptr<Connection>>> Connection::open(Loop& loop, Address address, const CommonSettings& settings) {
  auto connection = std::make_shared<Connection>(loop, std::move(address), settings);
  auto started = co_await connection->start();
  if (!started) co_return started.error();
  co_return connection;
}

Co<Result<void>> Connection::start() {
  const auto self = shared_from_this();
  auto dialled = co_await dial();
  if (!dialled) co_return dialled.error();
  auto versions = co_await ask_versions();
  if (!versions) close(versions.error());
  co_return versions;
}

Co<Result<void>> Connection::dial() {
  std::function<Resolved()> work = [address = address_] { return resolve(address); };
  const auto resolved = co_await loop_.offload<Resolved>(std::move(work));
  auto why = resolved.why.empty() ? std::string("no address") : resolved.why;
  const auto until = loop_.clock().now() + Milliseconds(settings_.connect_timeout_ms);
  for (const auto& [storage, size] : resolved.addresses) {
    if (loop_.closing()) break;
    if (broken_) co_return *broken_;
    socket_ = UniqueFd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) {
      why = std::strerror(errno);
      continue;
    }
    int error = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&storage), size) == 0 ? 0 : errno;
    connecting_ = error == EINPROGRESS;
    loop_.watch(socket_.get(), connecting_ ? EPOLLIN | EPOLLOUT : EPOLLIN, *this);
    while (connecting_ && !broken_ && !loop_.closing() && loop_.clock().now() < until) {
      (void)co_await writable_.wait(until - loop_.clock().now());
    }
    if (broken_) co_return *broken_;
    if (error == EINPROGRESS) {
      error = ETIMEDOUT;
      socklen_t length = sizeof error;
      if (!connecting_) ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      connecting_ = false;
    }
    if (error == 0) {
      const int on = 1;
      ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      loop_.change(socket_.get(), EPOLLIN);
      co_return Result<void>();
    }
    why = std::strerror(error);
    loop_.forget(socket_.get());
    socket_ = {};
  }
  auto error = lost("cannot connect: " + why);
  broken_ = error;
  co_return error;
}

Co<Result<void>> Connection::ask_versions() {
  kafka::ApiVersionsRequest request;
  request.client_software_name = "ciuickafka";
  request.client_software_version = client::version();
  auto frame = kafka::encode_request(++correlation_, settings_.client_id, request, api_versions_asked);
  auto reply = co_await exchange(std::move(frame), kafka::ApiVersionsRequest::api_key, api_versions_asked,
                                 Milliseconds(settings_.request_timeout_ms));
  if (!reply) co_return reply.error();
  auto answer = kafka::decode<kafka::ApiVersionsResponse>(reply->body, api_versions_asked);
  // A broker that does not know this version answers in version 0 (KIP-511).
  if (!answer || answer->error_code == kafka::ErrorCode::unsupported_version)
    answer = kafka::decode<kafka::ApiVersionsResponse>(reply->body, 0);
  if (!answer)
    co_return failure(Trouble::unsupported,
                      address_text() + " does not speak Kafka's protocol: is it a PLAINTEXT listener?");
  for (const auto& api : answer->api_keys) versions_[api.api_key] = {api.min_version, api.max_version};
  co_return Result<void>();
}

Co<Result<Connection::Reply>> Connection::exchange(kafka::Frame frame, std::int16_t api, std::int16_t version,
                                                   Clock::Duration timeout) {
  const auto self = shared_from_this();
  if (broken_) co_return *broken_;
  OneShot<Result<Reply>> done(loop_);
  const auto deadline = loop_.clock().now() + timeout;
  pending_.push_back({correlation_, api, version, deadline, done});
  queue(std::move(frame));
  watch(deadline);
  co_return co_await done;
}

void Connection::watch(Clock::TimePoint deadline) {
  const auto when = std::max(deadline, loop_.clock().now() + sweep);
  if (when >= watched_) return;
  watched_ = when;
  loop_.post_at(when, [weak = weak_from_this(), when] {
    const auto self = weak.lock();
    if (self && self->watched_ == when) self->sweep_deadlines();
  });
}

void Connection::sweep_deadlines() {
  watched_ = Clock::TimePoint::max();
  if (pending_.empty() || broken_) return;
  const auto first = std::min_element(pending_.begin(), pending_.end(),
                                      [](const Pending& a, const Pending& b) { return a.deadline < b.deadline; });
  if (first->deadline > loop_.clock().now()) return watch(first->deadline);
  const auto* const info = kafka::find_api(first->api);
  const auto error = failure(
      Trouble::timed_out,
      fmt::format("{}: no answer to {} in time", address_text(), info == nullptr ? "a request" : info->name), true);
  close(error);
}

void Connection::queue(kafka::Frame frame) {
  unsent_ += frame.size();
  outgoing_.push_back({std::move(frame), 0});
  if (!wants_write_) write_some();
}

void Connection::write_some() {
  while (!outgoing_.empty() && !broken_) {
    std::array<iovec, pieces_max> pieces{};
    std::size_t count = 0;
    auto& first = outgoing_.front();
    auto skip = first.sent;
    for (const auto& piece : first.frame.gather()) {
      if (skip >= piece.size()) {
        skip -= piece.size();
        continue;
      }
      if (count == pieces.size()) break;
      // iovec is not const-correct; nothing is written through it.
      pieces[count++] = {const_cast<std::byte*>(piece.data()) + skip, piece.size() - skip};
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const auto sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return close(lost(std::strerror(errno)));
      if (!wants_write_) loop_.change(socket_.get(), EPOLLIN | EPOLLOUT);
      wants_write_ = true;
      return;
    }
    unsent_ -= static_cast<std::size_t>(sent);
    first.sent += static_cast<std::size_t>(sent);
    if (first.sent == first.frame.size()) outgoing_.pop_front();
  }
  if (wants_write_ && !broken_) {
    loop_.change(socket_.get(), EPOLLIN);
    wants_write_ = false;
  }
}

void Connection::ready(std::uint32_t events) {
  const auto self = shared_from_this();
  if (connecting_) {
    connecting_ = false;
    writable_.notify();
    return;
  }
  if ((events & EPOLLOUT) != 0 && wants_write_) write_some();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !broken_) read_some();
}

void Connection::read_some() {
  // One frame at a time goes into memory of its own, so that its records can be handed out where they are.
  for (int rounds = 0; rounds < 64 && !broken_; ++rounds) {
    const bool in_head = head_bytes_ < sizeof head_;
    auto* const to = in_head ? head_ + head_bytes_ : frame_.get() + frame_bytes_;
    const auto room = in_head ? sizeof head_ - head_bytes_ : frame_size_ - frame_bytes_;
    const auto got = ::recv(socket_.get(), to, room, 0);
    if (got == 0) return close(lost("the broker closed the connection"));
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      return close(lost(std::strerror(errno)));
    }
    if (in_head) {
      head_bytes_ += static_cast<std::size_t>(got);
      if (head_bytes_ < sizeof head_) continue;
      const auto size = kafka::load_be<std::int32_t>(head_);
      if (size < 4 || size > settings_.answer_bytes_max)
        return close(lost(fmt::format("an answer of {} bytes; receive.message.max.bytes allows {}", size,
                                      settings_.answer_bytes_max)));
      frame_size_ = static_cast<std::size_t>(size);
      frame_bytes_ = 0;
      frame_ = memory_->take(frame_size_, loop_.clock().now());
    } else {
      frame_bytes_ += static_cast<std::size_t>(got);
      if (frame_bytes_ == frame_size_ && !take_frame()) return;
    }
  }
}

bool Connection::take_frame() {
  head_bytes_ = 0;
  const auto memory = std::exchange(frame_, nullptr);
  const Bytes bytes(memory.get(), frame_size_);
  if (pending_.empty()) {
    close(lost("an answer that nobody asked for"));
    return false;
  }
  const auto split = kafka::split_response(bytes, pending_.front().api, pending_.front().version);
  if (!split || split->correlation_id != pending_.front().correlation) {
    close(lost("an answer to another question"));
    return false;
  }
  const auto one = std::move(pending_.front());
  pending_.pop_front();
  Reply reply;
  reply.memory = memory;
  reply.body = split->body;
  one.done.set(Result<Reply>(std::move(reply)));
  return true;
}

void Connection::close(const Error& why) {
  if (broken_) return;
  broken_ = why;
  if (socket_) {
    loop_.forget(socket_.get());
    socket_ = {};
  }
  outgoing_.clear();
  unsent_ = 0;
  for (auto& one : std::exchange(pending_, {})) one.done.set(Result<Reply>(why));
  writable_.notify();
}

}  // namespace ciuic::client::core
