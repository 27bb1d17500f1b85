#pragma once
// Stop 1 of docs/tour.md: a frame becomes a request here. Next: broker/api/handlers.h
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/kafka/frame.h"

namespace ciuic::kafka::net {

/// A request's bytes, without the 4-byte length. Shared by whoever still reads from them.
struct RequestBytes {
  std::unique_ptr<std::byte[]> data;
  std::size_t size = 0;
  [[nodiscard]] Bytes bytes() const { return {data.get(), size}; }
};

/// Bytes of requests in memory, over all connections; reading stops above the limit (`queued.max.request.bytes`).
class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t limit) : limit_(limit) {}
  /// A request larger than the whole limit is let in when nothing else is.
  [[nodiscard]] bool take(std::size_t bytes) {
    auto used = used_.load(std::memory_order_relaxed);
    while (used == 0 || (bytes <= limit_ && used <= limit_ - bytes)) {
      if (used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void give(std::size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

struct ConnectionLimits {
  std::int32_t request_bytes_max = 100 << 20;  // socket.request.max.bytes
  std::size_t in_flight_max = 64;              // requests of one connection being answered; reading stops above it
  Milliseconds idle_max{600'000};              // connections.max.idle.ms; a write that stalls as long ends it too
};

class Connection;

/// What answers requests. Called on the connection's executor.
class Service {
 public:
  virtual ~Service() = default;
  struct Answer {
    std::optional<Frame> frame{};  // nothing: this request has no answer (Produce with acks=0)
    bool close = false;            // after the frame, if there is one
  };
  /// Answers one request. Requests of a connection start in arrival order, each up to its first suspension before the
  /// next one starts; answers are written in that order whenever they are ready. Cancelled when the peer is gone.
  virtual boost::asio::awaitable<Answer> handle(std::shared_ptr<Connection> connection,
                                                std::shared_ptr<const RequestBytes> request) = 0;
  /// Called before the body is read: the memory that answering takes, reserved from the budget meanwhile. Nothing:
  /// too large for this API, the connection ends.
  [[nodiscard]] virtual std::optional<std::size_t> memory_for(std::int16_t api_key,
                                                              std::size_t request_bytes) const = 0;
  /// The connection ended; no further call for it.
  virtual void closed(Connection& connection) = 0;
};

/// One client's TCP connection: framing, pipelining, limits. Lives on one io_context; shared by its coroutines.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::uint64_t id, Service& service, MemoryBudget& budget,
             const ConnectionLimits& limits);
  ~Connection();

  /// Reads, answers, writes until the peer goes, a limit is broken, or `close`.
  boost::asio::awaitable<void> run();
  /// Ends it now; pending requests are cancelled. On its executor.
  void close();
  /// Reads no more; ends when what was read is answered and written. On its executor.
  void drain();

  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] const std::string& peer() const { return peer_; }  // "127.0.0.1:5012"
  [[nodiscard]] const std::string& peer_host() const { return peer_host_; }
  [[nodiscard]] bool is_closed() const { return closed_; }
  /// The peer sends no more, or the broker stops: what waits for something to happen should answer with what there is.
  [[nodiscard]] bool is_leaving() const { return closed_ || draining_ || reading_ended_; }
  [[nodiscard]] boost::asio::any_io_executor executor() { return socket_.get_executor(); }

  /// What the client said of itself (ApiVersions v3+); empty before.
  std::string software_name{};
  std::string software_version{};
  /// What the service keeps with the connection (a principal, a session).
  std::shared_ptr<void> attachment{};

 private:
  struct Slot {
    std::optional<Frame> frame;
    bool done = false;
    bool close_after = false;
    std::size_t reserved = 0;  // of the memory budget
    boost::asio::cancellation_signal cancel;
  };

  boost::asio::awaitable<bool> read_loop();
  boost::asio::awaitable<bool> fill(std::byte* to, std::size_t bytes);
  boost::asio::awaitable<void> write_loop();
  boost::asio::awaitable<bool> write(std::span<const boost::asio::const_buffer> pieces);
  boost::asio::awaitable<void> watch_idle();
  boost::asio::awaitable<void> leave();
  void cancel_waiting();
  void start(std::shared_ptr<const RequestBytes> request, std::size_t reserved);
  void finished(Slot& slot, Service::Answer answer);

  boost::asio::ip::tcp::socket socket_;
  std::uint64_t id_;
  Service& service_;
  MemoryBudget& budget_;
  const ConnectionLimits& limits_;
  std::string peer_;
  std::string peer_host_;
  std::deque<std::shared_ptr<Slot>> slots_;
  boost::asio::steady_timer something_done_;  // cancelled: the writer looks again
  boost::asio::steady_timer room_;            // cancelled: the reader looks again
  boost::asio::steady_timer idle_;
  std::unique_ptr<std::byte[]> staging_;
  std::size_t staged_from_ = 0;
  std::size_t staged_to_ = 0;
  std::uint64_t progress_ = 0;  // reads and writes that moved; the idle watch compares
  bool closed_ = false;
  bool draining_ = false;
  bool reading_ended_ = false;
};

}  // namespace ciuic::kafka::net
