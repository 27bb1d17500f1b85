// The five private APIs (17225–17229): from the wire to exposure and back. What they mean: docs/protocol.md. In one
// file, where every other API has its own: here they are one call, `ask`, and differ in nothing but types.
#include "broker/api/apis.h"
#include "broker/api/async.h"
#include "broker/exposure/exposure.h"
#include "transport/kafka/messages/ciuic_onesided.h"

namespace ciuic::broker::api {
namespace {

ExposurePeer peer_of(const RequestContext& context) {
  ExposurePeer peer;
  peer.principal = context.principal.to_string();
  peer.connection = context.connection->id();
  return peer;
}

template <class Response, class Request>
using ExposureCall = void (Exposure::*)(ExposurePeer, Request, Exposure::Done<Response>);

template <class Response, class Request>
Awaitable<Response> ask(RequestContext& context, Request request, ExposureCall<Response, Request> call) {
  if (context.broker.exposure == nullptr) {
    Response response;
    response.error_code = ErrorCode::unsupported_version;  // onesided.enable=false
    co_return response;
  }
  co_return co_await await_callback<Response>(
      [&](auto done) { (context.broker.exposure->*call)(peer_of(context), std::move(request), std::move(done)); });
}

}  // namespace

Awaitable<kafka::OneSidedConnectResponse> onesided_connect(RequestContext& context,
                                                           kafka::OneSidedConnectRequest request) {
  return ask<kafka::OneSidedConnectResponse>(context, std::move(request), &Exposure::connect);
}
Awaitable<kafka::OneSidedGrantResponse> onesided_grant(RequestContext& context, kafka::OneSidedGrantRequest request) {
  return ask<kafka::OneSidedGrantResponse>(context, std::move(request), &Exposure::grant);
}
Awaitable<kafka::OneSidedRenewResponse> onesided_renew(RequestContext& context, kafka::OneSidedRenewRequest request) {
  return ask<kafka::OneSidedRenewResponse>(context, std::move(request), &Exposure::renew);
}
Awaitable<kafka::OneSidedWaitResponse> onesided_wait(RequestContext& context, kafka::OneSidedWaitRequest request) {
  return ask<kafka::OneSidedWaitResponse>(context, std::move(request), &Exposure::wait);
}
Awaitable<kafka::OneSidedReleaseResponse> onesided_release(RequestContext& context,
                                                           kafka::OneSidedReleaseRequest request) {
  return ask<kafka::OneSidedReleaseResponse>(context, std::move(request), &Exposure::release);
}

}  // namespace ciuic::broker::api
