#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/ciuic/failure.h"
#include "transport/base/bytes.h"
#include "transport/base/unique_fd.h"
#include "transport/kafka/codec.h"
#include "transport/kafka/messages/metadata.h"

namespace ciuic::tool {

using kafka::ErrorCode;

/// What to do about an error; empty where its text says it all.
[[nodiscard]] const char* remedy_for(ErrorCode code);
/// "TOPIC_ALREADY_EXISTS: text" ends the command; `remedy` by code where there is a known one.
[[noreturn]] void fail_with(ErrorCode code, const std::string& what, const std::string& text = {});
inline void check(ErrorCode code, const std::string& what, const std::string& text = {}) {
  if (code != ErrorCode::none) fail_with(code, what, text);
}

/// Answers about several things: those that went well are told before the errors of the others end the command.
class Failures {
 public:
  /// Is it an error? Then it is kept.
  bool add(ErrorCode code, const std::string& what, const std::string& text = {});
  /// Throws Failure if there was one: all of them, the first one's remedy.
  void end() const;

 private:
  std::optional<Failure> all_;
};

/// One blocking connection to one broker.
class Connection {
 public:
  /// Throws Failure (unreachable).
  Connection(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout);

  /// Sends and waits for the answer. Throws Failure.
  template <class Response, class Request>
  Response call(const Request& request) {
    const auto version = version_for(Request::api_key, Request::valid_versions);
    return call_with<Response>(request, version);
  }
  template <class Response, class Request>
  Response call_with(const Request& request, std::int16_t version) {
    const auto body = exchange(kafka::encode_request(++correlation_, client_name, request, version).flatten(),
                               Request::api_key, version);
    auto response = kafka::decode<Response>(Bytes(body), version);
    if (!response)
      throw Failure(Exit::failed, address_ + " sent an answer that does not decode: " + response.error().what);
    return std::move(*response);
  }
  /// Does the broker have this API?
  [[nodiscard]] bool has(std::int16_t api) const { return versions_.count(api) != 0; }
  /// Newest version that both know. Throws Failure.
  [[nodiscard]] std::int16_t version_for(std::int16_t api, kafka::VersionRange ours) const;

 private:
  static constexpr const char* client_name = "ciuic";
  Buffer exchange(const Buffer& frame, std::int16_t api, std::int16_t version);
  void send_all(Bytes bytes);
  void receive_all(MutableBytes bytes);
  [[noreturn]] void lost(const std::string& why, const std::string& remedy = {});

  std::string address_;
  std::chrono::milliseconds timeout_;
  UniqueFd socket_;
  std::int32_t correlation_ = 0;
  std::map<std::int16_t, kafka::VersionRange> versions_;
};

/// The brokers behind a bootstrap list, each connected when first asked.
class Cluster {
 public:
  Cluster(std::string bootstrap, std::chrono::milliseconds timeout);

  /// Any broker that answers.
  Connection& any();
  Connection& node(std::int32_t id);
  /// The group's coordinator; waits while one is being found.
  Connection& coordinator(const std::string& group);
  /// Nothing: all topics. Unknown topics have their error in them.
  kafka::MetadataResponse metadata(const std::optional<std::vector<std::string>>& topics = std::nullopt);
  /// One topic that must exist. Throws Failure.
  kafka::MetadataResponse::MetadataResponseTopic topic(const std::string& name);
  /// Calls `ask` on the partitions' leaders: answers offsets by partition; `time` as ListOffsets (-1 end, -2
  /// beginning).
  std::map<std::int32_t, std::int64_t> offsets(const std::string& topic, std::int64_t time);
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  std::string bootstrap_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<Connection> first_;
  std::map<std::int32_t, std::pair<std::string, std::uint16_t>> addresses_;
  std::map<std::int32_t, std::unique_ptr<Connection>> nodes_;
};

}  // namespace ciuic::tool
