// Grants and waits: one request, many partitions, each answered on its own executor, gathered on home.
#include <algorithm>
#include <limits>

#include "broker/exposure/core.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

using Response = kafka::OneSidedGrantResponse;

/// The answer of many partitions. On home.
struct Gathering {
  Response response;
  std::size_t left = 0;
  std::function<void(Response)> done;
  void one_less() {
    if (--left == 0) done(std::move(response));
  }
};

void fill(Response::GrantedPartition& to, const PartitionGrantAnswer& from) {
  const auto& grant = from.grant;
  to.error_code = from.error.code;
  if (!from.error.text.empty()) to.error_message = from.error.text;
  to.retry_after_ms = from.retry_after_ms;
  to.grant_id = grant.id;
  to.leader_epoch = grant.leader_epoch.value;
  to.log_start_offset = grant.log_start_offset.value;
  to.high_watermark = grant.high_watermark.value;
  to.last_stable_offset = grant.last_stable_offset.value;
  to.aborted_count = static_cast<std::int32_t>(grant.aborted_count);
  to.slot.address = static_cast<std::int64_t>(grant.slot.address);
  to.slot.length = static_cast<std::int32_t>(grant.slot.length);
  to.slot.key = static_cast<std::int64_t>(grant.slot.key);
  for (const auto& chunk : grant.chunks) {
    auto& one = to.chunks.emplace_back();
    one.sequence = static_cast<std::int64_t>(chunk.sequence);
    one.base_offset = chunk.base_offset.value;
    one.next_offset = chunk.next_offset ? chunk.next_offset->value : -1;
    one.address = static_cast<std::int64_t>(chunk.memory.address);
    one.length = static_cast<std::int32_t>(chunk.length);
    one.start = static_cast<std::int32_t>(chunk.start);
    one.capacity = static_cast<std::int32_t>(chunk.memory.length);
    one.key = static_cast<std::int64_t>(chunk.memory.key);
  }
  if (grant.isolation == kafka::Isolation::read_committed) {
    to.aborted_transactions.emplace();
    for (const auto& aborted : grant.aborted) {
      auto& one = to.aborted_transactions->emplace_back();
      one.producer_id = aborted.producer_id.value;
      one.first_offset = aborted.first_offset.value;
    }
  }
}

}  // namespace

void Exposure::Core::grant(const ExposurePeer& peer, kafka::OneSidedGrantRequest request, const Done<Response>& done) {
  const auto gathering = std::make_shared<Gathering>();
  auto& response = gathering->response;
  response.lease_ms = settings.lease_ms;
  const auto fail = [&](ErrorCode code, std::string text) {
    response.error_code = code;
    response.error_message = std::move(text);
    done(std::move(response));
  };
  auto* session = session_of(peer, request.session_id);
  if (!session) return fail(ErrorCode::fetch_session_id_not_found, "no such one-sided session: connect again");
  const auto domain = session->domains.find(request.provider);
  if (domain == session->domains.end() || request.isolation_level < 0 || request.isolation_level > 1) {
    refused(RefusalReason::bad_request);
    return fail(ErrorCode::invalid_request, "provider not offered to this session, or unknown isolation level");
  }
  if (closing) return fail(ErrorCode::coordinator_not_available, "the broker stops");

  const auto asked = lookup();
  struct Asked {
    std::size_t topic, partition;
    std::shared_ptr<Partition> log;
    PartitionGrantRequest request;
  };
  std::vector<Asked> to_ask;
  response.topics.reserve(request.topics.size());
  for (const auto& topic : request.topics) {
    auto& answered = response.topics.emplace_back();
    answered.topic_id = topic.topic_id;
    answered.partitions.reserve(topic.partitions.size());
    for (const auto& one : topic.partitions) {
      auto& result = answered.partitions.emplace_back();
      result.partition = one.partition;
      const auto refuse = [&](RefusalReason reason, ErrorCode code, std::int32_t retry_after_ms = 0) {
        refused(reason);
        result.error_code = code;
        result.retry_after_ms = retry_after_ms;
        if (retry_after_ms < 0) ++metrics.use_fetch_total;
      };
      auto log = asked->find ? asked->find(topic.topic_id, kafka::PartitionIndex(one.partition)) : nullptr;
      if (!log) {
        refuse(RefusalReason::unknown_partition, ErrorCode::unknown_topic_id);
      } else if (!asked->may_read(session->principal, log->name().topic)) {
        refuse(RefusalReason::not_authorized, ErrorCode::topic_authorization_failed);
      } else if (session->grants.size() + to_ask.size() + session->grants_pending >= settings.grants_per_session_max) {
        refuse(RefusalReason::too_many_grants, ErrorCode::throttling_quota_exceeded, -1);
      } else {
        PartitionGrantRequest wanted;
        wanted.offset = kafka::Offset(one.fetch_offset);
        wanted.bytes_wanted = static_cast<std::uint64_t>(std::max(one.bytes_wanted, 0));
        wanted.current_leader_epoch = one.current_leader_epoch;
        wanted.isolation = static_cast<kafka::Isolation>(request.isolation_level);
        wanted.grant_id = next_grant++;
        wanted.domain = domain->second;
        to_ask.push_back(
            {response.topics.size() - 1, answered.partitions.size() - 1, std::move(log), std::move(wanted)});
      }
    }
  }
  if (to_ask.empty()) return done(std::move(response));
  gathering->left = to_ask.size();
  gathering->done = done;
  session->grants_pending += static_cast<std::uint32_t>(to_ask.size());

  for (auto& one : to_ask) {
    // May wait in the log for a disk: it owns neither the exposure nor the log.
    auto gathered = [weak = weak_from_this(), gathering, session_id = session->id, topic = one.topic,
                     partition = one.partition, weak_log = std::weak_ptr<Partition>(one.log),
                     isolation = one.request.isolation](PartitionGrantAnswer answer) {
      const auto self = weak.lock();
      const auto log = weak_log.lock();
      if (!self || !log) return;
      self->home.post(
          [self, gathering, session_id, topic, partition, log, isolation, answer = std::move(answer)]() mutable {
            const auto found = self->sessions.find(session_id);
            if (found != self->sessions.end()) --found->second->grants_pending;
            const bool open = found != self->sessions.end() && !found->second->closed;
            if (answer.lease && !open) {
              // The session ended meanwhile, and the client will never hear of this grant.
              answer.lease->release();
              log->executor().post([self, log, lease = answer.lease, id = answer.grant.id] {
                if (auto* exposed = self->find(*log)) exposed->released(*lease, id);
              });
              answer = PartitionGrantAnswer{};
              answer.error = ErrorCode::fetch_session_id_not_found;
              answer.reason = RefusalReason::unknown_session;
            }
            if (answer.lease) {
              found->second->grants.emplace(answer.grant.id, GrantRecord{answer.lease, log, isolation});
              ++self->metrics.grants;
              ++self->metrics.grants_total;
            } else {
              self->refused(answer.reason);
              if (answer.retry_after_ms > 0) ++self->metrics.retry_after_total;
              if (answer.retry_after_ms < 0) ++self->metrics.use_fetch_total;
            }
            fill(gathering->response.topics[topic].partitions[partition], answer);
            gathering->one_less();
          });
    };
    auto& executor = one.log->executor();
    executor.post([self = shared_from_this(), log = std::move(one.log), wanted = std::move(one.request),
                   gathered = std::move(gathered)]() mutable {
      const auto exposed = self->find_or_make(log);
      if (exposed) return exposed->grant(std::move(wanted), std::move(gathered));
      PartitionGrantAnswer answer;
      answer.error = {ErrorCode::throttling_quota_exceeded, "no memory for a slot"};
      answer.reason = RefusalReason::no_memory;
      answer.retry_after_ms = -1;
      gathered(std::move(answer));
    });
  }
}

void WaitSet::answer() {
  if (!done) return;
  kafka::OneSidedWaitResponse response;
  response.ready = std::exchange(ready, {});
  std::exchange(done, nullptr)(std::move(response));
}

void Exposure::Core::wait(const ExposurePeer& peer, const kafka::OneSidedWaitRequest& request,
                          const Done<kafka::OneSidedWaitResponse>& done) {
  auto* session = session_of(peer, request.session_id);
  if (!session || closing) {
    kafka::OneSidedWaitResponse response;
    response.error_code = ErrorCode::fetch_session_id_not_found;
    return done(std::move(response));
  }
  ++metrics.waits_total;
  auto& waits = session->waits;
  if (waits) waits->answer();
  if (!waits || !request.keeps) {
    waits = std::make_shared<WaitSet>();
    waits->ticket = std::make_shared<WaitTicket>();
    waits->ticket->ready = [executor = &home, weak = std::weak_ptr<WaitSet>(waits)](std::int64_t grant_id) {
      executor->post([executor, weak, grant_id] {
        const auto found = weak.lock();
        if (!found) return;
        const bool first = found->ready.empty();
        found->ready.push_back(grant_id);
        // What becomes ready while the first word is on its way to home goes into the same answer.
        if (first) executor->post([found] { found->answer(); });
      });
    };
  }
  waits->done = done;
  if (!waits->ready.empty()) home.post([waits = waits] { waits->answer(); });
  for (const auto& one : request.partitions) {
    const auto found = session->grants.find(one.grant_id);
    if (found == session->grants.end()) {
      waits->ticket->ready(one.grant_id);  // nothing to wait for: the client needs a new grant
      continue;
    }
    const auto& grant = found->second;
    grant.partition->executor().post([self = shared_from_this(), partition = grant.partition, one,
                                      isolation = grant.isolation, ticket = std::weak_ptr<WaitTicket>(waits->ticket)] {
      if (auto* exposed = self->find(*partition)) {
        exposed->wait(one.grant_id, kafka::Offset(one.offset), isolation, static_cast<std::uint64_t>(one.slot_version),
                      ticket);
      } else if (const auto waiting = ticket.lock()) {
        waiting->ready(one.grant_id);
      }
    });
  }
  const auto most = std::clamp(request.max_wait_ms, 0, 60'000);
  home.post_at(clock.now() + Milliseconds(most), [weak = std::weak_ptr<WaitSet>(waits), number = ++waits->requests] {
    if (const auto found = weak.lock(); found && found->requests == number) found->answer();
  });
}

}  // namespace ciuic::broker
