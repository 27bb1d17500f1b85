// v3 flexible, features (KIP-511, KIP-584) · v4 features with minimum 0 (KAFKA-17011). An unknown version is answered
// by the dispatcher with v0 and UNSUPPORTED_VERSION.
#include "broker/api/api_versions.h"

#include <algorithm>

#include "broker/api/apis.h"
#include "broker/api/handlers.h"
#include "transport/kafka/messages/api_versions.h"
#include "transport/kafka/messages/ciuic_onesided.h"
#include "transport/kafka/messages/produce.h"

namespace ciuic::broker::api {

kafka::ApiVersionsResponse supported_versions(OneSided one_sided) {
  kafka::ApiVersionsResponse response;
  for (const auto& handler : handlers()) {
    if (one_sided == OneSided::off && handler.key >= kafka::OneSidedConnectRequest::api_key) continue;
    // librdkafka takes compression and message format 2 for missing where Produce does not begin at 0. As Apache does,
    // 0 is said and 3 is served (KAFKA-18659); nobody sends 0–2 who knows 3.
    const auto first = handler.key == kafka::ProduceRequest::api_key ? std::int16_t{0} : handler.versions.min;
    response.api_keys.push_back({handler.key, first, handler.versions.max});
  }
  return response;
}

Awaitable<kafka::ApiVersionsResponse> api_versions(RequestContext& context, kafka::ApiVersionsRequest request) {
  auto response = supported_versions(context.broker.exposure != nullptr ? OneSided::on : OneSided::off);
  if (context.version() >= 3) {
    // KIP-511: names that could break a log line are refused.
    const auto good = [](const std::string& word) {
      return !word.empty() && std::isalnum(static_cast<unsigned char>(word.front())) != 0 &&
             std::all_of(word.begin(), word.end(),
                         [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.'; });
    };
    if (!good(request.client_software_name) || !good(request.client_software_version)) {
      kafka::ApiVersionsResponse refused;
      refused.error_code = ErrorCode::invalid_request;
      co_return refused;
    }
    context.connection->software_name = request.client_software_name;
    context.connection->software_version = request.client_software_version;
    const auto image = context.image();
    for (const auto& [name, level] : image->features()) {
      response.supported_features.push_back({name, level, level});
      response.finalized_features.push_back({name, level, level});
    }
    response.finalized_features_epoch = image->offset();
  }
  co_return response;
}

}  // namespace ciuic::broker::api
