// `ciuic doctor --peer`: the one-sided path to a broker, tried over each provider, in figures.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "tools/ciuic/cluster.h"
#include "tools/ciuic/finding.h"
#include "transport/base/clock.h"
#include "transport/kafka/messages/ciuic_onesided.h"
#include "transport/kafka/messages/describe_configs.h"
#include "transport/rdma/registry.h"

namespace ciuic::tool {
namespace {

using State = Finding::State;
using Steady = std::chrono::steady_clock;

constexpr int latency_reads = 1000;
constexpr auto bandwidth_time = std::chrono::seconds(1);

struct Places {
  rdma::RemoteSpan slot;
  std::vector<rdma::RemoteSpan> chunks;
  std::string topic;
};

rdma::RemoteSpan span_of(std::int64_t address, std::int32_t length, std::int64_t key) {
  return {static_cast<std::uint64_t>(address), static_cast<std::uint32_t>(std::max(length, 0)),
          static_cast<std::uint64_t>(key)};
}

/// Some partition that we may read: its slot, and chunks that are in memory.
Places granted(Connection& connection, const kafka::MetadataResponse& metadata, std::int64_t session,
               const std::string& provider, std::vector<std::int64_t>& grants, std::string& why) {
  for (const auto& topic : metadata.topics) {
    if (topic.error_code != ErrorCode::none || topic.topic_id.is_zero()) continue;
    kafka::OneSidedGrantRequest request;
    request.session_id = session;
    request.provider = provider;
    auto& asked = request.topics.emplace_back();
    asked.topic_id = topic.topic_id;
    for (const auto& one : topic.partitions) {
      auto& partition = asked.partitions.emplace_back();
      partition.partition = one.partition_index;
      partition.bytes_wanted = 16 << 20;
    }
    const auto answer = connection.call<kafka::OneSidedGrantResponse>(request);
    for (const auto& answered : answer.topics) {
      for (const auto& one : answered.partitions) {
        if (one.error_code != ErrorCode::none) {
          why = fmt::format("{}-{}: {}{}{}", topic.name.value_or(""), one.partition, kafka::name(one.error_code),
                            one.error_message ? ": " : "", one.error_message.value_or(""));
          continue;
        }
        grants.push_back(one.grant_id);
        Places found;
        found.topic = topic.name.value_or("");
        found.slot = span_of(one.slot.address, one.slot.length, one.slot.key);
        for (const auto& chunk : one.chunks)
          if (chunk.length > 0) found.chunks.push_back(span_of(chunk.address, chunk.length, chunk.key));
        if (!found.chunks.empty()) return found;
      }
    }
  }
  if (why.empty()) why = "no topic holds a record that is in memory";
  return {};
}

rdma::Result<void> read_once(rdma::Endpoint& endpoint, const rdma::RemoteSpan& from, MutableBytes to) {
  const rdma::ReadRequest request{from, to, 1};
  if (const auto posted = endpoint.post_reads(std::span(&request, 1)); !posted) return posted.error();
  std::array<rdma::Completion, 1> done;
  const auto until = Steady::now() + std::chrono::seconds(5);
  while (Steady::now() < until) {
    const auto got = endpoint.poll(done);
    if (!got) return got.error();
    if (*got == 1) return done[0].fault ? rdma::Result<void>(*done[0].fault) : rdma::Result<void>();
  }
  return rdma::Fault::read_timed_out;
}

Finding trouble(const std::string& provider, const std::string& at, rdma::Fault fault) {
  return {"peer by " + provider, State::missing, fmt::format("{}: {}", at, rdma::text(fault)),
          std::string(rdma::remedy(fault))};
}

Finding measure(const std::string& provider, rdma::Endpoint& endpoint, const Places& places) {
  auto landing = endpoint.make_landing(std::max<std::size_t>(endpoint.caps().read_bytes_max, 4096));
  if (!landing) return trouble(provider, "memory to read into", landing.error());
  const auto bytes = (*landing)->bytes();
  if (places.slot.length > bytes.size()) return trouble(provider, "a slot's length", rdma::Fault::incompatible);
  std::vector<double> took;
  for (int i = 0; i < latency_reads; ++i) {
    const auto began = Steady::now();
    if (const auto done = read_once(endpoint, places.slot, bytes.first(places.slot.length)); !done)
      return trouble(provider, "a READ of a slot", done.error());
    took.push_back(std::chrono::duration<double, std::micro>(Steady::now() - began).count());
  }
  std::sort(took.begin(), took.end());
  double read = 0;
  const auto began = Steady::now();
  while (Steady::now() - began < bandwidth_time) {
    for (const auto& chunk : places.chunks) {
      const auto piece = std::min<std::uint32_t>(endpoint.caps().read_bytes_max, 1U << 20);
      for (std::uint32_t at = 0; at < chunk.length && Steady::now() - began < bandwidth_time; at += piece) {
        const auto length = std::min(piece, chunk.length - at);
        if (const auto done = read_once(endpoint, *chunk.sub(at, length), bytes.first(length)); !done)
          return trouble(provider, "a READ of a chunk", done.error());
        read += length;
      }
    }
  }
  const std::chrono::duration<double> wall = Steady::now() - began;
  return {"peer by " + provider, State::good,
          fmt::format("READ of 64 B: median {:.1f} us, 99th percentile {:.1f} us; one at a time, up to 1 MiB each: "
                      "{:.0f} MB/s (topic {})",
                      took[took.size() / 2], took[took.size() * 99 / 100], read / 1e6 / wall.count(), places.topic),
          ""};
}

}  // namespace

bool offers_one_sided(Cluster& cluster) {
  if (!cluster.any().has(kafka::OneSidedConnectRequest::api_key)) return false;
  constexpr std::int8_t broker_resource = 4;
  for (const auto& broker : cluster.metadata(std::vector<std::string>{}).brokers) {
    kafka::DescribeConfigsRequest request;
    auto& asked = request.resources.emplace_back();
    asked.resource_type = broker_resource;
    asked.resource_name = std::to_string(broker.node_id);
    asked.configuration_keys = std::vector<std::string>{"onesided.enable"};
    for (const auto& result : cluster.node(broker.node_id).call<kafka::DescribeConfigsResponse>(request).results)
      for (const auto& config : result.configs)
        if (config.value == "false") return false;
  }
  return true;
}

std::vector<Finding> peer_findings(const Common& common, const std::string& source) {
  Cluster cluster(common.bootstrap, std::chrono::milliseconds(common.timeout_ms));
  auto& connection = cluster.any();
  if (!offers_one_sided(cluster))
    return {{"peer", State::missing, common.bootstrap + " has no one-sided APIs",
             "is it a CiuicKafka broker, with onesided.enable=true?"}};
  const auto metadata = cluster.metadata();
  std::vector<Finding> findings;
  for (const auto& factory : rdma::provider_factories()) {
    const std::string name(factory.name);
    if (name == "memory") continue;  // stays inside one process
    const auto provider = factory.make(system_clock());
    if (!provider) {
      findings.push_back({"peer by " + name, State::hint, std::string(rdma::text(provider.error())),
                          std::string(rdma::remedy(provider.error()))});
      continue;
    }
    kafka::OneSidedConnectRequest request;
    request.providers = {name};
    request.host_id = rdma::host_id();
    request.client_instance = kafka::Uuid::random();
    const auto answer = connection.call<kafka::OneSidedConnectResponse>(request);
    if (answer.error_code != ErrorCode::none || answer.providers.empty()) {
      findings.push_back(
          {"peer by " + name, State::hint,
           fmt::format("not offered: {}", answer.error_message.value_or(std::string(kafka::name(answer.error_code)))),
           "see onesided.providers in the broker's server.properties; shm is for processes of the broker's host"});
      continue;
    }
    const auto& offer = answer.providers.front();
    const auto token = rdma::Token::from(offer.token);
    rdma::ConnectOptions options;
    options.source = source;
    const auto began = Steady::now();
    auto endpoint = token ? (*provider)->connect(offer.address, *token, options) : rdma::Fault::incompatible;
    if (!endpoint) {
      findings.push_back(trouble(name, "connecting to " + offer.address, endpoint.error()));
      continue;
    }
    const std::chrono::duration<double, std::milli> dialled = Steady::now() - began;
    std::vector<std::int64_t> grants;
    std::string why;
    const auto places = granted(connection, metadata, answer.session_id, name, grants, why);
    if (places.chunks.empty()) {
      findings.push_back({"peer by " + name, State::hint,
                          fmt::format("connected to {} in {:.1f} ms, but nothing can be read: {}", offer.address,
                                      dialled.count(), why),
                          "write a few records to a topic that this principal may read"});
    } else {
      findings.push_back(measure(name, **endpoint, places));
      findings.back().detail =
          fmt::format("{} connected in {:.1f} ms; ", offer.address, dialled.count()) + findings.back().detail;
    }
    kafka::OneSidedReleaseRequest release;
    release.session_id = answer.session_id;
    release.grant_ids = grants;
    (void)connection.call<kafka::OneSidedReleaseResponse>(release);
  }
  return findings;
}

}  // namespace ciuic::tool
