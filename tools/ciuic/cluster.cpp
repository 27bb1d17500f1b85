// Blocking calls to brokers for the command line. Not here: data; that goes through the client library.
#include "tools/ciuic/cluster.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "client/include/ciuic/client.h"
#include "tools/ciuic/output.h"
#include "transport/kafka/messages/api_versions.h"
#include "transport/kafka/messages/find_coordinator.h"
#include "transport/kafka/messages/list_offsets.h"

namespace ciuic::tool {

namespace {

constexpr std::size_t answer_bytes_max = 256U << 20;
constexpr std::int16_t api_versions_newest_asked = 3;

std::pair<std::string, std::uint16_t> parse_address(const std::string& text) {
  if (text.empty()) throw Failure(Exit::usage, "an empty name where a broker's should be", "write host:port");
  const auto colon = text.rfind(':');
  const bool bare = colon == std::string::npos || (text.front() == '[' && text.back() == ']');
  std::uint16_t port = 9092;
  if (!bare) {
    const auto number = whole_number<std::uint16_t>(std::string_view(text).substr(colon + 1));
    if (!number || *number == 0) throw Failure(Exit::usage, "no such port: " + text, "write host:port");
    port = *number;
  }
  auto host = bare ? text : text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return {host, port};
}

UniqueFd dial(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    why = ::gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const auto* each = found; each != nullptr; each = each->ai_next) {
    UniqueFd fd(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) continue;
    int error = ::connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd wait{fd.get(), POLLOUT, 0};
      socklen_t size = sizeof error;
      error = ETIMEDOUT;
      if (::poll(&wait, 1, static_cast<int>(timeout.count())) == 1)
        ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return fd;
    }
    why = std::strerror(error);
  }
  return {};
}

}  // namespace

const char* remedy_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::unknown_topic_or_partition:
      return "see what there is with `ciuic topics list`";
    case ErrorCode::topic_already_exists:
      return "choose another name, or pass --if-not-exists";
    case ErrorCode::non_empty_group:
      return "stop the group's consumers first";
    case ErrorCode::group_id_not_found:
      return "see what there is with `ciuic groups list`";
    case ErrorCode::invalid_replication_factor:
      return "ask for at most as many replicas as there are brokers";
    case ErrorCode::invalid_config:
      return "`ciuic configs describe topic|broker NAME --all` shows keys and values";
    case ErrorCode::unknown_member_id:
      return "the group has members: stop its consumers first";
    default:
      return "";
  }
}

void fail_with(ErrorCode code, const std::string& what, const std::string& text) {
  throw Failure(Exit::failed, fmt::format("{}: {}{}{}", what, kafka::name(code), text.empty() ? "" : ": ", text),
                remedy_for(code));
}

bool Failures::add(ErrorCode code, const std::string& what, const std::string& text) {
  if (code == ErrorCode::none) return false;
  try {
    fail_with(code, what, text);
  } catch (const Failure& one) {
    all_ = all_ ? Failure(all_->exit, fmt::format("{}; {}", all_->what(), one.what()), all_->remedy) : one;
  }
  return true;
}

void Failures::end() const {
  if (all_) throw *all_;
}

// --- One connection ---

Connection::Connection(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout)
    : address_(fmt::format("{}:{}", host, port)), timeout_(timeout) {
  std::string why = "no address";
  socket_ = dial(host, port, timeout, why);
  if (socket_.get() < 0) {
    throw Failure(Exit::unreachable, fmt::format("no broker at {}: {}", address_, why), no_broker_remedy);
  }
  const auto take = [this](const kafka::ApiVersionsResponse& answer) {
    for (const auto& api : answer.api_keys) versions_[api.api_key] = {api.min_version, api.max_version};
  };
  kafka::ApiVersionsRequest request;
  request.client_software_name = "ciuic";
  request.client_software_version = client::version();
  const auto body =
      exchange(kafka::encode_request(++correlation_, client_name, request, api_versions_newest_asked).flatten(),
               kafka::ApiVersionsRequest::api_key, api_versions_newest_asked);
  if (auto answer = kafka::decode<kafka::ApiVersionsResponse>(Bytes(body), api_versions_newest_asked); answer) {
    take(*answer);
    return;
  }
  // A broker that does not know version 3 answers in version 0 (KIP-511).
  auto oldest = kafka::decode<kafka::ApiVersionsResponse>(Bytes(body), 0);
  if (!oldest)
    throw Failure(Exit::failed, address_ + " does not speak Kafka's protocol", "is it a PLAINTEXT listener?");
  take(*oldest);
}

std::int16_t Connection::version_for(std::int16_t api, kafka::VersionRange ours) const {
  const auto found = versions_.find(api);
  const auto* info = kafka::find_api(api);
  const auto name = info == nullptr ? std::to_string(api) : std::string(info->name);
  if (found == versions_.end()) throw Failure(Exit::failed, fmt::format("{} does not have {}", address_, name));
  const auto version = std::min(found->second.max, ours.max);
  if (version < std::max(found->second.min, ours.min)) {
    throw Failure(Exit::failed, fmt::format("{} has {} only in versions {} to {}", address_, name, found->second.min,
                                            found->second.max));
  }
  return version;
}

void Connection::lost(const std::string& why, const std::string& remedy) {
  throw Failure(Exit::unreachable, fmt::format("{} was lost: {}", address_, why), remedy);
}

void Connection::send_all(Bytes bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      pollfd wait{socket_.get(), POLLOUT, 0};
      if (::poll(&wait, 1, static_cast<int>(timeout_.count())) == 0) lost("it takes nothing more");
    } else if (errno != EINTR) {
      lost(std::strerror(errno));
    }
  }
}

void Connection::receive_all(MutableBytes bytes) {
  while (!bytes.empty()) {
    const auto got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      lost("it closed the connection");
    } else if (errno == EAGAIN) {
      pollfd wait{socket_.get(), POLLIN, 0};
      if (::poll(&wait, 1, static_cast<int>(timeout_.count())) == 0)
        lost(fmt::format("no answer within {} ms", timeout_.count()),
             "look at the broker's log, or let --timeout be longer");
    } else if (errno != EINTR) {
      lost(std::strerror(errno));
    }
  }
}

Buffer Connection::exchange(const Buffer& frame, std::int16_t api, std::int16_t version) {
  send_all(frame);
  std::array<std::byte, 4> head{};
  receive_all(head);
  const auto size = kafka::load_be<std::int32_t>(head.data());
  if (size < 4 || static_cast<std::size_t>(size) > answer_bytes_max)
    lost("its answer is no Kafka frame", "is it a PLAINTEXT listener?");
  Buffer answer(static_cast<std::size_t>(size));
  receive_all(answer);
  const auto split = kafka::split_response(answer, api, version);
  if (!split || split->correlation_id != correlation_) lost("its answer is to another question");
  return to_buffer(split->body);
}

// --- The cluster ---

Cluster::Cluster(std::string bootstrap, std::chrono::milliseconds timeout)
    : bootstrap_(std::move(bootstrap)), timeout_(timeout) {}

Connection& Cluster::any() {
  if (first_) return *first_;
  std::string left = bootstrap_;
  std::optional<Failure> last;
  while (!left.empty()) {
    const auto end = std::min(left.find(','), left.size());
    const auto one = left.substr(0, end);
    left.erase(0, std::min(end + 1, left.size()));
    try {
      const auto [host, port] = parse_address(one);
      first_ = std::make_unique<Connection>(host, port, timeout_);
      return *first_;
    } catch (const Failure& failure) {
      last = failure;
    }
  }
  throw last.value_or(Failure(Exit::usage, "no broker named", "pass -b host:port"));
}

Connection& Cluster::node(std::int32_t id) {
  auto& connection = nodes_[id];
  if (connection) return *connection;
  if (addresses_.count(id) == 0) (void)metadata(std::vector<std::string>{});
  const auto found = addresses_.find(id);
  if (found == addresses_.end()) throw Failure(Exit::unreachable, fmt::format("broker {} is not known", id));
  connection = std::make_unique<Connection>(found->second.first, found->second.second, timeout_);
  return *connection;
}

kafka::MetadataResponse Cluster::metadata(const std::optional<std::vector<std::string>>& topics) {
  kafka::MetadataRequest request;
  request.allow_auto_topic_creation = false;
  request.topics.reset();
  if (topics) {
    auto& wanted = request.topics.emplace();
    for (const auto& name : *topics) wanted.emplace_back().name = name;
  }
  auto response = any().call<kafka::MetadataResponse>(request);
  for (const auto& broker : response.brokers)
    addresses_[broker.node_id] = {broker.host, static_cast<std::uint16_t>(broker.port)};
  return response;
}

kafka::MetadataResponse::MetadataResponseTopic Cluster::topic(const std::string& name) {
  auto response = metadata(std::vector{name});
  if (response.topics.empty()) fail_with(ErrorCode::unknown_topic_or_partition, name);
  check(response.topics.front().error_code, name);
  return std::move(response.topics.front());
}

Connection& Cluster::coordinator(const std::string& group) {
  kafka::FindCoordinatorRequest request;
  request.key = group;
  request.coordinator_keys = {group};
  const auto until = std::chrono::steady_clock::now() + timeout_;
  for (;;) {
    auto answer = any().call<kafka::FindCoordinatorResponse>(request);
    kafka::FindCoordinatorResponse::Coordinator one;
    if (!answer.coordinators.empty()) {
      one = answer.coordinators.front();
    } else {
      one.error_code = answer.error_code;
      one.node_id = answer.node_id;
      one.host = answer.host;
      one.port = answer.port;
    }
    if (one.error_code == ErrorCode::none) {
      addresses_[one.node_id] = {one.host, static_cast<std::uint16_t>(one.port)};
      return node(one.node_id);
    }
    if (!kafka::retriable(one.error_code) || std::chrono::steady_clock::now() > until)
      fail_with(one.error_code, "coordinator of " + group);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

std::map<std::int32_t, std::int64_t> Cluster::offsets(const std::string& name, std::int64_t time) {
  const auto described = topic(name);
  std::map<std::int32_t, kafka::ListOffsetsRequest> by_leader;
  for (const auto& partition : described.partitions) {
    if (partition.leader_id < 0)
      fail_with(ErrorCode::leader_not_available, fmt::format("{}-{}", name, partition.partition_index));
    auto& request = by_leader[partition.leader_id];
    request.replica_id = -1;
    request.timeout_ms = static_cast<std::int32_t>(timeout_.count());
    if (request.topics.empty()) request.topics.emplace_back().name = name;
    auto& asked = request.topics.front().partitions.emplace_back();
    asked.partition_index = partition.partition_index;
    asked.timestamp = time;
  }
  std::map<std::int32_t, std::int64_t> found;
  for (const auto& [leader, request] : by_leader) {
    const auto answer = node(leader).call<kafka::ListOffsetsResponse>(request);
    for (const auto& each : answer.topics) {
      for (const auto& partition : each.partitions) {
        check(partition.error_code, fmt::format("{}-{}", name, partition.partition_index));
        found[partition.partition_index] = partition.offset;
      }
    }
  }
  return found;
}

}  // namespace ciuic::tool
