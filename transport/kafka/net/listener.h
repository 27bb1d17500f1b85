#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <string>

#include "transport/base/result.h"

namespace ciuic::kafka::net {

/// A listening TCP socket. `accepted` decides where a connection lives.
class Listener {
 public:
  /// Binds and listens. Port 0: the kernel chooses (see `port`). Errors: words that name address and reason.
  [[nodiscard]] static ResultOf<Listener, std::string> open(boost::asio::io_context& context, const std::string& host,
                                                            std::uint16_t port);

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Accepts until `close`. A full descriptor table is waited out, not spun on.
  /// `next` gives the io_context of the coming connection.
  boost::asio::awaitable<void> run(std::function<boost::asio::io_context&()> next,
                                   std::function<void(boost::asio::ip::tcp::socket)> accepted);
  void close();

 private:
  Listener(boost::asio::ip::tcp::acceptor acceptor, std::uint16_t port) : acceptor_(std::move(acceptor)), port_(port) {}
  boost::asio::ip::tcp::acceptor acceptor_;
  std::uint16_t port_;
};

}  // namespace ciuic::kafka::net
