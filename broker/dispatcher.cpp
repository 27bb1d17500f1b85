// From a frame to its handler, by the one list. Not here: what a handler does (broker/api).
#include "broker/dispatcher.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>

#include "broker/api/api_versions.h"
#include "broker/api/handlers.h"
#include "broker/exposure/exposure.h"
#include "transport/base/log.h"
#include "transport/kafka/messages/produce.h"

namespace ciuic::broker {
namespace asio = boost::asio;
using kafka::net::Connection;

namespace {
// Largest request that carries no records: a Fetch of 100,000 partitions has 4 MiB.
constexpr std::size_t small_request_bytes_max = 16 << 20;

/// A client's word for a log line: what could break the line is '?'.
std::string printable(std::string_view word) {
  constexpr std::size_t log_bytes_max = 128;
  std::string text(word.substr(0, log_bytes_max));
  for (auto& c : text) {
    if (c <= ' ' || c > '~') c = '?';
  }
  return text;
}
}  // namespace

Dispatcher::Dispatcher(Broker& broker)
    : broker_(broker), budget_(static_cast<std::size_t>(broker.config.queued_request_bytes_max)) {
  limits_.request_bytes_max = broker.config.request_bytes_max;
  limits_.idle_max = Milliseconds(broker.config.connection_idle_max_ms);
}

void Dispatcher::accept(Shard& shard, asio::ip::tcp::socket socket) {
  boost::system::error_code error;
  const auto host = socket.remote_endpoint(error).address().to_string();
  if (error) return;  // gone before it was taken
  auto connection = std::make_shared<Connection>(std::move(socket), next_id_.fetch_add(1), *this, budget_, limits_);
  {
    const std::lock_guard lock(mutex_);
    const char* limit = nullptr;
    if (connections_.size() >= static_cast<std::size_t>(broker_.config.connections_max)) limit = "max.connections";
    if (by_host_[host] >= broker_.config.connections_per_ip_max) limit = "max.connections.per.ip";
    if (limit != nullptr) {
      if (by_host_[host] == 0) by_host_.erase(host);
      log::bounded(log::Level::warn, "broker", "connection refused peer={} limit={}", connection->peer(), limit);
      return;
    }
    ++by_host_[host];
    connections_.emplace(connection->id(), connection);
  }
  open_.fetch_add(1);
  asio::co_spawn(
      shard.context(), [connection]() { return connection->run(); }, asio::detached);
}

void Dispatcher::closed(Connection& connection) {
  {
    const std::lock_guard lock(mutex_);
    if (connections_.erase(connection.id()) == 0) return;
    const auto host = by_host_.find(connection.peer_host());
    if (host != by_host_.end() && --host->second == 0) by_host_.erase(host);
  }
  open_.fetch_sub(1);
  if (broker_.exposure != nullptr) broker_.exposure->connection_closed(connection.id());
}

std::optional<std::size_t> Dispatcher::memory_for(std::int16_t api_key, std::size_t request_bytes) const {
  if (api_key == kafka::ProduceRequest::api_key) return request_bytes;  // records stay where they are
  // Anything else is copied into structs. Its elements are as small as a byte on the wire (an empty string) and then
  // take a string's room.
  if (request_bytes > small_request_bytes_max) return std::nullopt;
  return request_bytes * sizeof(std::string);
}

asio::awaitable<Dispatcher::Answer> Dispatcher::handle(std::shared_ptr<Connection> connection,
                                                       std::shared_ptr<const kafka::net::RequestBytes> bytes) {
  // A peer that goes ends timers that are waited for; the handler still runs to its end.
  co_await asio::this_coro::throw_if_cancelled(false);
  auto request = kafka::split_request(bytes->bytes());
  if (!request) {
    log::bounded(log::Level::warn, "api", "malformed request, connection closed peer={} reason=\"{}\"",
                 connection->peer(), request.error().what);
    co_return Answer{std::nullopt, true};
  }
  const auto* handler = api::find_handler(request->api_key);
  if (handler == nullptr || !handler->versions.holds(request->api_version)) {
    if (request->api_key == kafka::api_versions_key) {
      // KIP-511: told in version 0 which versions there are, so that any client can go on.
      auto response = api::supported_versions(broker_.exposure != nullptr ? api::OneSided::on : api::OneSided::off);
      response.error_code = kafka::ErrorCode::unsupported_version;
      co_return Answer{kafka::encode_response(request->correlation_id, response, 0), false};
    }
    log::bounded(log::Level::warn, "api",
                 "unsupported api or version, connection closed peer={} client_id={} software={} {} api={} version={} "
                 "supported={}",
                 connection->peer(), printable(request->client_id.value_or("-")), connection->software_name,
                 connection->software_version, request->api_key, request->api_version,
                 handler == nullptr ? "none" : fmt::format("{}…{}", handler->versions.min, handler->versions.max));
    co_return Answer{std::nullopt, true};
  }
  // The net under all handlers: what is thrown is a bug of ours, and must end as an error, never as silence.
  try {
    // Named and moved: GCC 12 copies a braced temporary inside a co_await bit by bit, strings included.
    api::RequestContext context{broker_, *Shard::current(), connection, bytes, *request, Principal{}};
    co_return co_await handler->run(std::move(context));
  } catch (const std::exception& bug) {
    log::bounded(log::Level::error, "api", "bug: a handler threw, connection closed api={} version={} what=\"{}\"",
                 request->api_key, request->api_version, bug.what());
  }
  co_return Answer{std::nullopt, true};
}

void Dispatcher::each(const std::function<void(Connection&)>& act) {
  std::vector<std::shared_ptr<Connection>> open;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, weak] : connections_) {
      if (auto connection = weak.lock()) open.push_back(std::move(connection));
    }
  }
  for (auto& connection : open) {
    asio::post(connection->executor(), [connection, act] { act(*connection); });
  }
}

void Dispatcher::drain() {
  each([](Connection& connection) { connection.drain(); });
}
void Dispatcher::close_all() {
  each([](Connection& connection) { connection.close(); });
}

}  // namespace ciuic::broker
