// v2 flexible · v3 bump by the client (KIP-360) · v4 PRODUCER_FENCED. Idempotent producers; a transactional id needs a
// transaction coordinator, which this broker does not have: refused with words and an error that no client retries.
#include "transport/kafka/messages/init_producer_id.h"

#include "broker/api/apis.h"
#include "broker/api/async.h"
#include "broker/api/producer_ids.h"

namespace ciuic::broker::api {

Awaitable<kafka::InitProducerIdResponse> init_producer_id(RequestContext& context,
                                                          kafka::InitProducerIdRequest request) {
  kafka::InitProducerIdResponse response;
  response.producer_id = -1;
  response.producer_epoch = -1;
  if (request.transactional_id) {
    if (request.transactional_id->empty()) {
      response.error_code = ErrorCode::invalid_request;
      co_return response;
    }
    log::bounded(log::Level::warn, "api",
                 "transactional producer refused, this broker has no transaction coordinator; leave transactional.id "
                 "unset peer={} transactional_id={}",
                 context.connection->peer(), *request.transactional_id);
    response.error_code = ErrorCode::transactional_id_authorization_failed;
    co_return response;
  }
  if (!context.allowed(Operation::idempotent_write, Resource::cluster, "kafka-cluster")) {
    response.error_code = ErrorCode::cluster_authorization_failed;
    co_return response;
  }
  const auto id = co_await await_callback<ResultOf<kafka::ProducerId, kafka::Error>>(
      [&](auto done) { context.broker.producer_ids->next(std::move(done)); });
  if (!id) {
    response.error_code = id.error().code;
    co_return response;
  }
  response.producer_id = id->value;
  response.producer_epoch = 0;
  co_return response;
}

}  // namespace ciuic::broker::api
