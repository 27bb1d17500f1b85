// The one-sided path's talk with brokers (docs/protocol.md): sessions, grants, leases, the wait at the end. The bytes
// are read by the polling thread (consumer_poll.cpp).
#include <fmt/format.h>

#include <algorithm>

#include "client/core/consumer_impl.h"
#include "client/core/find_from.h"
#include "transport/base/log.h"
#include "transport/kafka/messages/ciuic_onesided.h"
#include "transport/rdma/registry.h"

namespace ciuic::client {

using core::Assigned;
using core::Co;
using core::failure;
using core::Lane;
using core::Lease;
using core::NotOneSided;
using core::Session;
using kafka::ErrorCode;

namespace {

/// A broker without the path is asked again after failed_for, then after twice as long each time, up to this.
constexpr auto refused_for = std::chrono::seconds(30);
constexpr auto failed_for = std::chrono::seconds(1);
constexpr auto memory_short_for = std::chrono::seconds(1);
/// An idle reader asks the broker so often to tell it of news. It is told at once; renewals, which come several times a
/// lease, notice a broker that is gone.
constexpr std::int32_t tail_wait_ms = 10'000;
/// After an answer, for the partitions that it told of to come to their end again and be named with the next question.
constexpr Milliseconds others_wait{1};

struct Dialled {
  std::shared_ptr<rdma::Provider> provider{};
  std::shared_ptr<onesided::ReadQueue> queue{};
  core::Destination::Way landing{};
  std::string why{};
};

}  // namespace

Co<void> Consumer::Impl::connect(std::int32_t node) {
  auto opened = co_await open_session(node);
  auto& path = nodes_[node];
  path.connecting = false;
  if (opened) {
    path.session = *opened;
    path.refused.reset();
    path.refusals = 0;
    counters_.sessions.fetch_add(1, std::memory_order_relaxed);
  } else {
    const auto& error = opened.error();
    path.refused = error.text;
    constexpr int doublings_max = 5;
    const auto wait =
        core::passes(error)
            ? Clock::Duration(failed_for)
            : std::min<Clock::Duration>(refused_for, failed_for * (1 << std::min(path.refusals++, doublings_max)));
    path.try_again = loop_.clock().now() + wait;
    log::debug("client", "no one-sided path node={} why={}", node, error.text);
  }
  plan_again_.notify();
}

Co<Result<std::shared_ptr<Session>>> Consumer::Impl::open_session(std::int32_t node) {
  auto connection = co_await cluster_.connection(node, Lane::onesided);
  if (!connection) co_return connection.error();
  if (!(*connection)->has<kafka::OneSidedConnectRequest>())
    co_return failure(Trouble::no_one_sided_path, "the broker has no one-sided APIs");
  kafka::OneSidedConnectRequest request;
  request.host_id = rdma::host_id();
  request.client_instance = kafka::Uuid::random();
  std::string why_not;
  for (const auto& factory : rdma::provider_factories()) {
    const std::string provider(factory.name);
    const auto& wanted = settings_.providers;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), provider) == wanted.end()) continue;
    if (!providers_.contains(provider) && !factory.loads_slowly) {
      auto made = rdma::make_provider(provider, loop_.clock());
      if (!made) {
        why_not += fmt::format("; {}: {}", provider, rdma::text(made.error()));
        continue;
      }
      providers_[provider] = *made;
    }
    request.providers.push_back(provider);
  }
  if (request.providers.empty())
    co_return failure(Trouble::no_one_sided_path, "this host has no one-sided provider" + why_not);
  const auto asked_for = request.providers;
  auto answer =
      co_await (*connection)
          ->call<kafka::OneSidedConnectResponse>(std::move(request), Milliseconds(settings_.request_timeout_ms));
  if (!answer) co_return answer.error();
  auto& body = answer->body;
  if (body.error_code != ErrorCode::none) {
    co_return failure(Trouble::no_one_sided_path,
                      fmt::format("the broker refuses: {}{}{}", kafka::name(body.error_code),
                                  body.error_message ? ": " : "", body.error_message.value_or("")),
                      body.error_code == ErrorCode::throttling_quota_exceeded);
  }
  for (auto& offer : body.providers) {
    const auto token = rdma::Token::from(offer.token);
    const auto known = providers_.find(offer.name);
    const bool asked = std::find(asked_for.begin(), asked_for.end(), offer.name) != asked_for.end();
    if (!token || !asked) continue;
    rdma::ConnectOptions options{.source = settings_.onesided_source};
    options.second = rdma::Token::from(offer.second_token);
    std::function<Dialled()> dial = [known = known == providers_.end() ? nullptr : known->second, name = offer.name,
                                     &clock = loop_.clock(), address = offer.address, token = *token,
                                     options = std::move(options), destination = destination_,
                                     read_bytes = static_cast<std::size_t>(settings_.onesided_read_bytes)] {
      Dialled out;
      out.provider = known;
      if (!out.provider) {
        auto made = rdma::make_provider(name, clock);
        if (!made) {
          out.why = std::string(rdma::text(made.error()));
          return out;
        }
        out.provider = std::move(*made);
      }
      auto endpoint = out.provider->connect(address, token, options);
      if (endpoint) {
        out.queue = std::make_shared<onesided::ReadQueue>(std::move(*endpoint), clock);
        if (destination) out.landing = destination->attach(*out.queue, read_bytes);
      } else {
        out.why = std::string(rdma::text(endpoint.error()));
      }
      return out;
    };
    auto dialled = co_await loop_.offload<Dialled>(std::move(dial));
    if (dialled.provider) providers_[offer.name] = dialled.provider;
    if (!dialled.queue) {
      why_not += fmt::format("; {}: {}", offer.name, dialled.why);
      continue;
    }
    auto session = std::make_shared<Session>();
    session->node = node;
    session->id = body.session_id;
    session->provider = offer.name;
    session->in_place = dialled.queue->endpoint().mapper() != nullptr;
    session->queue = std::move(dialled.queue);
    session->landing = std::move(dialled.landing);
    session->connection = *connection;
    loop_.spawn(keep_leases(session, body.lease_ms));
    co_return session;
  }
  // The broker's session ends with the connection that asked for it.
  auto unreachable = failure(Trouble::no_one_sided_path, "no offered provider can be reached" + why_not, true);
  (*connection)->close(unreachable);
  co_return unreachable;
}

Co<void> Consumer::Impl::ask_grants(std::shared_ptr<Session> session, std::vector<ReadPlan> plan) {
  loop_.spawn(release_idle(session, Milliseconds(settings_.request_timeout_ms)));
  kafka::OneSidedGrantRequest request;
  request.session_id = session->id;
  request.provider = session->provider;
  request.isolation_level = static_cast<std::int8_t>(settings_.isolation);
  for (const auto& one : plan) {
    if (request.topics.empty() || request.topics.back().topic_id != one.topic_id)
      request.topics.emplace_back().topic_id = one.topic_id;
    auto& partition = request.topics.back().partitions.emplace_back();
    partition.partition = one.key.first.partition;
    partition.fetch_offset = one.offset;
    partition.bytes_wanted = static_cast<std::int32_t>(settings_.onesided_grant_bytes);
  }
  const auto sent_at = loop_.clock().now();
  counters_.grants.fetch_add(static_cast<std::int64_t>(plan.size()), std::memory_order_relaxed);
  auto answer = co_await session->connection->call<kafka::OneSidedGrantResponse>(
      std::move(request), Milliseconds(settings_.request_timeout_ms));
  const auto now = loop_.clock().now();
  std::optional<Error> trouble;
  if (!answer) {
    trouble = answer.error();
  } else if (answer->body.error_code != ErrorCode::none) {
    trouble = core::broker_error(answer->body.error_code, "one-sided grant", answer->body.error_message.value_or(""));
  }
  if (trouble) session->over.store(true, std::memory_order_release);
  {
    const std::scoped_lock lock(mutex_);
    std::size_t in_topics = 0, in_partitions = 0;
    for (const auto& asked : plan) {
      auto* const one = find(asked.key);
      if (one != nullptr) one->asking = false;
      if (trouble) {
        if (one != nullptr) {
          one->not_before = now + Milliseconds(settings_.retry_backoff_ms);
          ++one->failures;
        }
        continue;
      }
      const auto* const topic = core::find_from(answer->body.topics, in_topics,
                                                [&](const auto& here) { return here.topic_id == asked.topic_id; });
      if (topic == nullptr) continue;
      const auto* const granted = core::find_from(topic->partitions, in_partitions, [&](const auto& here) {
        return here.partition == asked.key.first.partition;
      });
      if (granted != nullptr) take_grant(session, one, asked.offset, *granted, {sent_at, answer->body.lease_ms});
    }
    wake_poll();
  }
  plan_again_.notify();
}

/// Lock held. `one`: null if the program has gone on elsewhere; then the grant goes back.
void Consumer::Impl::take_grant(const std::shared_ptr<Session>& session, Assigned* one, std::int64_t offset,
                                const kafka::OneSidedGrantResponse::GrantedPartition& granted, LeaseTerms terms) {
  if (granted.error_code == ErrorCode::none) {
    auto grant = onesided::grant_of(granted, kafka::Offset(offset), settings_.isolation, terms.sent_at, terms.lease_ms);
    if (!grant) {
      if (one != nullptr) fall_back(*one, NotOneSided::bad_grant, "a grant that makes no sense", refused_for);
      return;
    }
    auto lease = std::make_shared<Lease>(grant->id, offset, grant->deadline);
    session->leases.push_back(lease);
    if (one == nullptr) return lease->retire();
    if (session->in_place) {
      session->granted.push_back(grant->slot);
      for (const auto& chunk : grant->chunks) session->granted.push_back(chunk.memory);
    }
    auto read = std::make_shared<core::GrantedRead>();
    read->session = session;
    read->lease = std::move(lease);
    read->grant = std::move(*grant);
    one->read = std::move(read);
    one->at_tail = false;
    one->tail_since = {};
    one->wait_set = 0;
    return;
  }
  if (one == nullptr) return;
  if (granted.error_code == ErrorCode::offset_out_of_range) {
    reset_offset(*one, "the broker answers OFFSET_OUT_OF_RANGE");
  } else if (granted.error_code == ErrorCode::throttling_quota_exceeded && granted.retry_after_ms >= 0) {
    one->not_before = loop_.clock().now() + Milliseconds(std::max(granted.retry_after_ms, 1));
  } else if (granted.error_code == ErrorCode::throttling_quota_exceeded) {
    fall_back(*one, NotOneSided::broker_memory,
              "no memory for these bytes: " + granted.error_message.value_or("use Fetch"), memory_short_for);
  } else {
    partition_failed(
        *one, core::broker_error(granted.error_code, core::to_text(one->at), granted.error_message.value_or("")));
  }
}

Co<void> Consumer::Impl::release_idle(std::shared_ptr<Session> session, Clock::Duration timeout) {
  kafka::OneSidedReleaseRequest request;
  request.session_id = session->id;
  std::erase_if(session->leases, [&request, &session](const std::shared_ptr<Lease>& lease) {
    if (!lease->idle()) return false;
    request.grant_ids.push_back(lease->grant_id());
    session->waited.erase(lease->grant_id());
    return true;
  });
  if (request.grant_ids.empty() || session->over.load(std::memory_order_acquire)) co_return;
  auto answer = co_await session->connection->call<kafka::OneSidedReleaseResponse>(std::move(request), timeout);
  // Not released, they end with their leases.
  if (!answer) log::debug("client", "releasing grants failed node={} error={}", session->node, answer.error().text);
}

Co<void> Consumer::Impl::keep_leases(std::shared_ptr<Session> session, std::int32_t lease_ms) {
  while (!loop_.closing() && !session->over.load(std::memory_order_acquire)) {
    (void)co_await loop_.sleep(Milliseconds(std::max(lease_ms / 4, 1)));
    if (loop_.closing()) break;
    co_await release_idle(session, Milliseconds(settings_.request_timeout_ms));
    kafka::OneSidedRenewRequest request;
    request.session_id = session->id;
    const auto leases = session->leases;
    for (const auto& lease : leases) {
      auto& one = request.grants.emplace_back();
      one.grant_id = lease->grant_id();
      one.position = lease->needed_from();
    }
    // Without a grant too: the broker ends a session that says nothing.
    const auto sent_at = loop_.clock().now();
    auto answer = co_await session->connection->call<kafka::OneSidedRenewResponse>(
        std::move(request), Milliseconds(settings_.request_timeout_ms));
    if (!answer || answer->body.error_code != ErrorCode::none) {
      log::debug("client", "one-sided session ended node={} error={}", session->node,
                 answer ? std::string(kafka::name(answer->body.error_code)) : answer.error().text);
      break;
    }
    counters_.renewals.fetch_add(static_cast<std::int64_t>(leases.size()), std::memory_order_relaxed);
    const auto deadline = onesided::lease_deadline(sent_at, answer->body.lease_ms);
    std::size_t in_leases = 0;
    for (const auto& renewed : answer->body.grants) {
      const auto* const found =
          core::find_from(leases, in_leases, [&](const auto& lease) { return lease->grant_id() == renewed.grant_id; });
      if (found == nullptr) continue;
      if (renewed.error_code == ErrorCode::none) {
        (*found)->extend(deadline);
      } else {
        (*found)->refuse();
      }
    }
    lease_ms = answer->body.lease_ms;
  }
  session->over.store(true, std::memory_order_release);
  // The broker ends the session, and gives its memory back, with the connection that opened it.
  session->connection->close(failure(Trouble::disconnected, "the one-sided session is over", true));
  plan_again_.notify();
}

Co<void> Consumer::Impl::wait_at_tail(std::shared_ptr<Session> session) {
  const auto round = ++session->wait_round;
  session->waiting = true;
  kafka::OneSidedWaitRequest request;
  request.session_id = session->id;
  request.max_wait_ms = tail_wait_ms;
  request.keeps = session->wait_set != 0 && !std::exchange(session->wait_lost, false);
  if (!request.keeps) {
    ++session->wait_set;
    session->waited.clear();
  }
  {
    const std::scoped_lock lock(mutex_);
    for (auto& [at, one] : assigned_) {
      if (!one->read || !one->at_tail || one->read->session != session || waits_at_tail(*one)) continue;
      one->wait_set = session->wait_set;
      auto& partition = request.partitions.emplace_back();
      partition.grant_id = one->read->lease->grant_id();
      partition.offset = one->position;
      partition.slot_version = static_cast<std::int64_t>(one->read->slot_version);
      session->waited.insert_or_assign(partition.grant_id, Key{at, one->life});
    }
  }
  std::optional<Error> trouble;
  std::vector<std::int64_t> ready;
  auto connection = co_await cluster_.connection(session->node, Lane::wait);
  if (connection) {
    counters_.waits.fetch_add(1, std::memory_order_relaxed);
    const auto timeout = Milliseconds(settings_.request_timeout_ms + tail_wait_ms);
    auto answer = co_await (*connection)->call<kafka::OneSidedWaitResponse>(std::move(request), timeout);
    if (!answer) {
      trouble = answer.error();
    } else if (answer->body.error_code != ErrorCode::none) {
      trouble = core::broker_error(answer->body.error_code, "one-sided wait");
      session->over.store(true, std::memory_order_release);
    } else {
      ready = std::move(answer->body.ready);
    }
  } else {
    trouble = connection.error();
  }
  // The readers look again after a pause: without the broker's word, but not in a hurry.
  if (trouble) (void)co_await loop_.sleep(Milliseconds(settings_.retry_backoff_ms));
  const bool newest = round == session->wait_round;
  {
    const std::scoped_lock lock(mutex_);
    // The time is over without a word, or there will be none: all look for themselves, and are named anew.
    if (newest && ready.empty()) {
      for (const auto& [id, key] : session->waited) ready.push_back(id);
      session->wait_lost = true;
    }
    for (const auto id : ready) {
      const auto waited = session->waited.find(id);
      if (waited == session->waited.end()) continue;
      auto* const one = find(waited->second);
      session->waited.erase(waited);
      if (one == nullptr || !one->read || one->read->lease->grant_id() != id) continue;
      one->at_tail = false;
      one->wait_set = 0;
    }
    wake_poll();
  }
  if (newest) session->waiting = false;
  if (trouble) plan_again_.notify();  // the session may be over, and the program may take its time to poll
  // Most often those that were ready are soon read, and named anew. What the others have to tell is not to wait for it.
  if (newest && !session->waited.empty()) {
    (void)co_await loop_.sleep(others_wait);
    if (!session->waiting) plan_again_.notify();
  }
}

Co<void> Consumer::Impl::end_session(std::shared_ptr<Session> session, Clock::TimePoint deadline) {
  const auto left = deadline - loop_.clock().now();
  if (left > Clock::Duration::zero()) co_await release_idle(session, left);
  session->over.store(true, std::memory_order_release);
}

}  // namespace ciuic::client
