#include "transport/kafka/net/listener.h"

#include <fmt/core.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "transport/base/log.h"

namespace ciuic::kafka::net {
namespace asio = boost::asio;
using asio::use_awaitable;
using boost::system::error_code;

ResultOf<Listener, std::string> Listener::open(asio::io_context& context, const std::string& host, std::uint16_t port) {
  error_code error;
  asio::ip::tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(host.empty() ? "0.0.0.0" : host, std::to_string(port),
                       asio::ip::tcp::resolver::passive | asio::ip::tcp::resolver::address_configured, error);
  if (error || found.empty()) {
    return fmt::format("listeners: '{}' is no address of this host ({}); use one, or leave it empty for all", host,
                       error.message());
  }
  const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
  asio::ip::tcp::acceptor acceptor(context);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::ip::tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1024, error);
  if (error) {
    return fmt::format("listeners: cannot listen on {}:{}: {}; is another broker running there?", host, port,
                       error.message());
  }
  const auto bound = acceptor.local_endpoint().port();
  return Listener(std::move(acceptor), bound);
}

asio::awaitable<void> Listener::run(std::function<asio::io_context&()> next,
                                    std::function<void(asio::ip::tcp::socket)> accepted) {
  while (acceptor_.is_open()) {
    error_code error;
    auto socket = co_await acceptor_.async_accept(next(), asio::redirect_error(use_awaitable, error));
    if (!error) {
      accepted(std::move(socket));
      continue;
    }
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) co_return;
    log::bounded(log::Level::warn, "net",
                 "a connection could not be accepted reason=\"{}\"; raise `ulimit -n` if descriptors ran out",
                 error.message());
    asio::steady_timer pause(acceptor_.get_executor(), std::chrono::milliseconds(100));
    co_await pause.async_wait(asio::redirect_error(use_awaitable, error));
  }
}

void Listener::close() {
  error_code ignored;
  acceptor_.close(ignored);
}

}  // namespace ciuic::kafka::net
