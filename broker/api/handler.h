#pragma once
#include <fmt/core.h>

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "broker/broker.h"
#include "transport/base/log.h"
#include "transport/kafka/codec.h"
#include "transport/kafka/net/connection.h"

namespace ciuic::broker::api {

template <class T>
using Awaitable = boost::asio::awaitable<T>;
using kafka::ErrorCode;

/// One request and where it came from. Lives in the handler's coroutine.
struct RequestContext {
  Broker& broker;
  Shard& shard;  // the connection's; the handler runs on it
  std::shared_ptr<kafka::net::Connection> connection;
  std::shared_ptr<const kafka::net::RequestBytes> bytes;
  kafka::RequestView request;
  Principal principal;

  [[nodiscard]] std::int16_t version() const { return request.api_version; }
  [[nodiscard]] bool allowed(Operation operation, Resource resource, std::string_view name) const {
    return broker.authorizer->allows(principal, operation, resource, name);
  }
  /// The image of now; take it once a request.
  [[nodiscard]] MetadataPointer image() const { return broker.controller->image(); }
};

using Reply = kafka::net::Service::Answer;

/// One row of the list in handlers.h: dispatch, ApiVersions and docs/protocol.md's last section come from it.
struct Handler {
  std::int16_t key;
  kafka::VersionRange versions;
  Awaitable<Reply> (*run)(RequestContext context);
};

/// Decodes, calls `handle(context, request)`, encodes. `handle` gives the response, or an optional one (nothing: no
/// answer is sent). A request that does not decode closes the connection, as Apache does.
template <class Request, auto handle>
Awaitable<Reply> serve(RequestContext context) {
  auto request = kafka::decode<Request>(context.request.body, context.version());
  if (!request) {
    log::bounded(log::Level::warn, "api",
                 "malformed request, connection closed peer={} api={} version={} reason=\"{}\"",
                 context.connection->peer(), context.request.api_key, context.version(), request.error().what);
    co_return Reply{std::nullopt, true};
  }
  auto response = co_await handle(context, std::move(*request));
  if constexpr (requires { response.has_value(); }) {
    if (!response) co_return Reply{std::nullopt, context.connection->is_closed()};
    co_return Reply{kafka::encode_response(context.request.correlation_id, *response, context.version()), false};
  } else {
    co_return Reply{kafka::encode_response(context.request.correlation_id, response, context.version()), false};
  }
}

/// Row of the list: the versions are the schema's unless a handler stops short of them.
template <class Request, auto handle>
constexpr Handler row(kafka::VersionRange versions = Request::valid_versions) {
  return {Request::api_key, versions, &serve<Request, handle>};
}

}  // namespace ciuic::broker::api
