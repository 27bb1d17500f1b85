#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/core/error.h"
#include "client/core/frame_memory.h"
#include "client/core/loop.h"
#include "client/core/settings.h"
#include "transport/kafka/codec.h"
#include "transport/kafka/messages/api_versions.h"

namespace ciuic::client::core {

/// An answer, and the bytes that its `Records` fields lie in.
template <class Response>
struct Answer {
  Response body{};
  std::shared_ptr<const std::byte[]> memory{};
};

/// One TCP connection to a broker, with the versions it speaks. Requests are pipelined, answers come in their order. On
/// the loop's thread. Next: cluster.h.
class Connection final : public IoHandler, public std::enable_shared_from_this<Connection> {
 public:
  /// Resolves, connects, asks ApiVersions. Errors: disconnected, timed_out, unsupported.
  [[nodiscard]] static Co<Result<std::shared_ptr<Connection>>> open(Loop& loop, Address address,
                                                                    const CommonSettings& settings);
  /// Not yet connected: `start` does what `open` does.
  Connection(Loop& loop, Address address, const CommonSettings& settings);
  ~Connection() override;
  /// `close` ends it early, but for the resolving of a name.
  [[nodiscard]] Co<Result<void>> start();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] bool usable() const { return !broken_.has_value(); }
  [[nodiscard]] const Address& address() const { return address_; }
  /// The newest version of the API that both sides have, at most `newest`; nothing: none.
  [[nodiscard]] std::optional<std::int16_t> version(std::int16_t api, kafka::VersionRange ours) const;
  template <class Request>
  [[nodiscard]] bool has() const {
    return version(Request::api_key, Request::valid_versions).has_value();
  }

  /// Sends and waits for the answer. Errors: unsupported, disconnected, timed_out (the connection is closed then, for
  /// answers come in order).
  template <class Response, class Request>
  Co<Result<Answer<Response>>> call(Request request, Clock::Duration timeout,
                                    std::int16_t newest = Request::valid_versions.max) {
    const auto at = version(Request::api_key, {Request::valid_versions.min, newest});
    if (!at) co_return lacks(Request::api_key);
    auto frame = kafka::encode_request(++correlation_, settings_.client_id, request, *at);
    auto reply = co_await exchange(std::move(frame), Request::api_key, *at, timeout);
    if (!reply) co_return reply.error();
    auto body = kafka::decode<Response>(reply->body, *at);
    if (!body) {
      auto error = failure(Trouble::disconnected,
                           address_text() + ": an answer that cannot be read (" + body.error().what + ")");
      close(error);
      co_return error;
    }
    Answer<Response> answer;
    answer.body = std::move(*body);
    answer.memory = std::move(reply->memory);
    co_return answer;
  }
  /// Sends a request that has no answer (Produce with acks=0). Errors: unsupported, disconnected.
  template <class Request>
  Result<void> send_only(const Request& request, std::int16_t newest = Request::valid_versions.max) {
    const auto at = version(Request::api_key, {Request::valid_versions.min, newest});
    if (!at) return lacks(Request::api_key);
    if (broken_) return *broken_;
    queue(kafka::encode_request(++correlation_, settings_.client_id, request, *at));
    return {};
  }
  /// Everything that waits gets `why`. Idempotent.
  void close(const Error& why);
  /// Bytes queued and not yet taken by the kernel.
  [[nodiscard]] std::size_t unsent() const { return unsent_; }

 private:
  struct Reply {
    std::shared_ptr<const std::byte[]> memory{};
    Bytes body{};
  };
  struct Pending {
    std::int32_t correlation;
    std::int16_t api, version;
    Clock::TimePoint deadline;
    OneShot<Result<Reply>> done;
  };
  struct Outgoing {
    kafka::Frame frame;
    std::size_t sent = 0;
  };
  void ready(std::uint32_t events) override;
  void queue(kafka::Frame frame);
  void write_some();
  void read_some();
  [[nodiscard]] bool take_frame();
  Co<Result<Reply>> exchange(kafka::Frame frame, std::int16_t api, std::int16_t version, Clock::Duration timeout);
  Co<Result<void>> dial();
  Co<Result<void>> ask_versions();
  void watch(Clock::TimePoint deadline);
  void sweep_deadlines();
  [[nodiscard]] Error lacks(std::int16_t api) const;
  [[nodiscard]] std::string address_text() const;
  [[nodiscard]] Error lost(const std::string& why) const;

  Loop& loop_;
  const Address address_;
  const CommonSettings& settings_;
  UniqueFd socket_;
  Signal writable_;
  bool connecting_ = false;
  bool wants_write_ = false;
  std::optional<Error> broken_{};
  std::map<std::int16_t, kafka::VersionRange> versions_;
  std::int32_t correlation_ = 0;
  std::deque<Outgoing> outgoing_;
  std::size_t unsent_ = 0;
  std::deque<Pending> pending_;
  Clock::TimePoint watched_ = Clock::TimePoint::max();  ///< when deadlines are looked at next
  std::byte head_[4] = {};
  std::size_t head_bytes_ = 0;
  const std::shared_ptr<FrameMemory> memory_ = std::make_shared<FrameMemory>();
  std::shared_ptr<std::byte[]> frame_;
  std::size_t frame_size_ = 0, frame_bytes_ = 0;
};

}  // namespace ciuic::client::core
