// A consumer in the simulation. It does what client/core must: connect, grant, read, renew, wait, fall back, and
// nothing on luck.
#include "tests/sim/support/sim_client.h"

#include "transport/rdma/registry.h"

namespace ciuic::sim {

using broker::ExposurePeer;
using kafka::ErrorCode;
using kafka::Offset;
using rdma::Fault;
using rdma::Outcome;

SimClient::SimClient(std::shared_ptr<rdma::Provider> provider, const Clock& clock, std::mt19937_64& dice, Model& model,
                     std::string principal, std::uint64_t connection, kafka::Isolation isolation,
                     onesided::ReaderLimits limits)
    : provider_(std::move(provider)),
      clock_(clock),
      dice_(dice),
      model_(model),
      principal_(std::move(principal)),
      connection_(connection),
      isolation_(isolation),
      limits_(limits) {}

SimClient::~SimClient() { drop_connection(); }

void SimClient::drop_connection() {
  reader_.reset();
  queue_.reset();
  has_grant_ = asking_ = renewing_ = waiting_ = fetching_ = false;
  path_ = Path::none;
  session_ = 0;
  life_ = std::make_shared<int>(0);
}

void SimClient::broker_gone() {
  fetching_ = false;
  // READs may still be tried: the endpoint finds out by itself.
  if (dice_() % 2 == 0) drop_connection();
  life_ = std::make_shared<int>(0);
  asking_ = renewing_ = waiting_ = false;
  if (path_ == Path::connecting) path_ = Path::none;
}

void SimClient::seek(Offset to) {
  position_ = to;
  aborting_.clear();
  has_grant_ = false;
  life_ = std::make_shared<int>(0);
  asking_ = renewing_ = waiting_ = fetching_ = false;
  if (path_ == Path::connecting) path_ = Path::none;
}

template <class Response>
std::function<void(Response)> SimClient::answer_to(std::function<void(Response)> use) {
  return [weak = std::weak_ptr<int>(life_), use = std::move(use)](Response response) {
    if (weak.lock()) use(std::move(response));
  };
}

std::optional<std::string> SimClient::step(const BrokerSide& broker) {
  if (queue_) queue_->poll();
  if (wrong_) return wrong_;
  if (!broker.exposure) {
    if (has_grant_) read(broker);
    return wrong_;
  }
  const bool pause = clock_.now() < not_before_;
  if (use_fetch_) {
    fetch(broker);
  } else if (path_ == Path::none) {
    if (!pause) connect(broker);
  } else if (path_ == Path::connected) {
    if (has_grant_ && clock_.now() >= renew_at_ && !renewing_) renew(broker);
    if (has_grant_) {
      read(broker);
    } else if (!asking_ && !pause) {
      ask_grant(broker);
    }
  }
  return wrong_;
}

void SimClient::connect(const BrokerSide& broker) {
  path_ = Path::connecting;
  kafka::OneSidedConnectRequest request;
  request.providers = {std::string(provider_->name())};
  request.host_id = rdma::host_id();
  broker.exposure->connect({principal_, connection_}, std::move(request),
                           answer_to<kafka::OneSidedConnectResponse>([this](kafka::OneSidedConnectResponse response) {
                             path_ = Path::none;
                             not_before_ = clock_.now() + Milliseconds(50);
                             if (response.error_code != ErrorCode::none || response.providers.empty()) {
                               use_fetch_ = true;
                               return;
                             }
                             const auto& offer = response.providers.front();
                             auto endpoint = provider_->connect(offer.address, *rdma::Token::from(offer.token), {});
                             if (!endpoint) return;
                             session_ = response.session_id;
                             queue_ = std::make_unique<onesided::ReadQueue>(std::move(*endpoint), clock_);
                             reader_ = std::make_unique<onesided::Reader>(*queue_, limits_);
                             path_ = Path::connected;
                             not_before_ = clock_.now();
                           }));
}

void SimClient::ask_grant(const BrokerSide& broker) {
  asking_ = true;
  kafka::OneSidedGrantRequest request;
  request.session_id = session_;
  request.provider = provider_->name();
  request.isolation_level = static_cast<std::int8_t>(isolation_);
  auto& topic = request.topics.emplace_back();
  topic.topic_id = broker.topic;
  auto& partition = topic.partitions.emplace_back();
  partition.fetch_offset = position_.value;
  partition.bytes_wanted = 1 << (10 + dice_() % 8);
  broker.exposure->grant({principal_, connection_}, std::move(request),
                         answer_to<kafka::OneSidedGrantResponse>(
                             [this, asked = position_, sent_at = clock_.now()](kafka::OneSidedGrantResponse response) {
                               asking_ = false;
                               not_before_ = clock_.now() + Milliseconds(10);
                               if (response.error_code != ErrorCode::none) return drop_connection();
                               const auto& one = response.topics.at(0).partitions.at(0);
                               if (one.error_code == ErrorCode::offset_out_of_range) {
                                 if (asked.value < one.log_start_offset)
                                   position_ = Offset(one.log_start_offset);
                                 else if (asked.value <= model_.acknowledged_end())
                                   fail("an offset that was acknowledged is out of range");
                                 aborting_.clear();
                                 return;
                               }
                               if (one.error_code != ErrorCode::none) {
                                 if (one.retry_after_ms > 0)
                                   not_before_ = clock_.now() + Milliseconds(one.retry_after_ms);
                                 if (one.retry_after_ms < 0 || dice_() % 4 == 0) use_fetch_ = true;
                                 return;
                               }
                               auto grant = onesided::grant_of(one, asked, isolation_, sent_at, response.lease_ms);
                               if (!grant) return fail("a grant that makes no sense");
                               lease_ms_ = response.lease_ms;
                               renew_at_ = sent_at + Milliseconds(lease_ms_ / 3);
                               aborted_ahead_.assign(grant->aborted.begin(), grant->aborted.end());
                               aborting_.clear();
                               const auto adopted = reader_->adopt(std::move(*grant), position_);
                               if (!adopted) return act(adopted.error());
                               has_grant_ = true;
                             }));
}

void SimClient::renew(const BrokerSide& broker) {
  renewing_ = true;
  kafka::OneSidedRenewRequest request;
  request.session_id = session_;
  auto& one = request.grants.emplace_back();
  one.grant_id = reader_->grant().id;
  one.position = position_.value;
  broker.exposure->renew(
      {principal_, connection_}, std::move(request),
      answer_to<kafka::OneSidedRenewResponse>(
          [this, sent_at = clock_.now(), id = reader_->grant().id](kafka::OneSidedRenewResponse response) {
            renewing_ = false;
            if (!reader_ || reader_->grant().id != id) return;
            renew_at_ = clock_.now() + Milliseconds(lease_ms_ / 3);
            if (response.error_code != ErrorCode::none) return drop_connection();
            if (response.grants.at(0).error_code == ErrorCode::none)
              return reader_->renewed(sent_at, response.lease_ms);
            // Not renewed: read on until the lease's end, or take a new grant now.
            if (dice_() % 2 == 0) has_grant_ = false;
          }));
}

void SimClient::wait(const BrokerSide& broker) {
  waiting_ = true;
  kafka::OneSidedWaitRequest request;
  request.session_id = session_;
  request.max_wait_ms = 500;
  auto& one = request.partitions.emplace_back();
  one.grant_id = reader_->grant().id;
  one.offset = position_.value;
  one.slot_version = static_cast<std::int64_t>(slot_version_);
  broker.exposure->wait({principal_, connection_ + 1000}, std::move(request),
                        answer_to<kafka::OneSidedWaitResponse>([this](kafka::OneSidedWaitResponse response) {
                          waiting_ = false;
                          if (response.error_code != ErrorCode::none) drop_connection();
                        }));
}

void SimClient::read(const BrokerSide& broker) {
  if (waiting_) return;
  auto got = reader_->read();
  if (!got) return act(got.error());
  slot_version_ = got->slot_version;
  if (got->log_start_offset > position_ && got->batches.empty()) {
    position_ = got->log_start_offset;
    aborting_.clear();
    has_grant_ = false;
    return;
  }
  if (!got->batches.empty()) {
    const auto before = position_;
    one_sided_ += got->batches.size();
    deliver(got->batches, {});
    if (!wrong_ && got->next_offset < position_) fail("the reader's next offset lies behind its batches");
    if (!wrong_ && position_ <= before) fail("a delivery without progress");
    position_ = std::max(position_, got->next_offset);
  } else if (got->at_tail && broker.exposure && dice_() % 8 == 0) {
    wait(broker);
  }
}

void SimClient::act(Fault fault) {
  switch (rdma::outcome_of(fault)) {
    case Outcome::retry_here:
      return;
    case Outcome::new_grant:
      has_grant_ = false;
      return;
    case Outcome::reconnect:
      drop_connection();
      return;
    case Outcome::fall_back:
      fail("fell back: " + std::string(rdma::text(fault)));
      return;
  }
}

/// What TCP consumers see: the same log, by Fetch.
void SimClient::fetch(const BrokerSide& broker) {
  if (fetching_) return;
  if (dice_() % 4 == 0) use_fetch_ = false;
  broker::ReadRequest request;
  request.offset = position_;
  request.isolation = isolation_;
  request.max_bytes = 4096;
  const auto result = broker.log->read(request);
  if (!result) {
    if (result.error().code == ErrorCode::offset_out_of_range && position_ < broker.log->log_start_offset()) {
      position_ = broker.log->log_start_offset();
      aborting_.clear();
    }
    return;
  }
  std::vector<onesided::GrantedAborted> aborted;
  for (const auto& one : result->aborted) aborted.push_back({one.producer_id, one.first_offset});
  std::vector<Bytes> batches;
  for (auto span : result->spans) {
    while (!span.empty()) {
      const auto batch = kafka::RecordBatchView::parse(span);
      if (!batch) return fail("Fetch gives no batch");
      batches.push_back(batch->bytes());
      span = span.subspan(batch->size());
    }
  }
  if (!batches.empty()) {
    aborting_.clear();
    aborted_ahead_.assign(aborted.begin(), aborted.end());
    fetched_ += batches.size();
    deliver(batches, {});
    has_grant_ = false;
  }
  if (result->miss) {
    fetching_ = true;
    broker.log->bring_in(*result->miss, 4096, broker::MemoryFor::fetch,
                         [this, weak = std::weak_ptr<int>(life_)](const auto&) {
                           if (weak.lock()) fetching_ = false;
                         });
  }
}

void SimClient::deliver(std::span<const Bytes> batches, const std::vector<onesided::GrantedAborted>&) {
  for (const auto bytes : batches) {
    const auto batch = kafka::RecordBatchView::parse(bytes);
    if (!batch || batch->size() != bytes.size() || !batch->crc_valid())
      return fail("a batch that is none was delivered");
    const auto base = batch->base_offset();
    if (base > position_) return fail("records are missing before " + std::to_string(base.value));
    if (batch->last_offset() < position_) return fail("a batch is delivered twice");
    if (auto wrong = model_.check(*batch)) return fail(std::move(*wrong));
    position_ = batch->next_offset();
    if (isolation_ != kafka::Isolation::read_committed) continue;
    // Which transactions were aborted, as a consumer finds it out.
    while (!aborted_ahead_.empty() && aborted_ahead_.front().first_offset <= batch->last_offset()) {
      aborting_.insert(aborted_ahead_.front().producer_id.value);
      aborted_ahead_.pop_front();
    }
    const auto id = batch->producer_id();
    const bool aborted = aborting_.contains(id.value);
    if (batch->control()) {
      aborting_.erase(id.value);
    } else if (batch->transactional()) {
      const auto committed = model_.committed(id);
      if (!committed) return fail("records of an open transaction are delivered");
      if (*committed == aborted)
        return fail(aborted ? "committed records would be skipped" : "aborted records would be delivered");
    }
  }
}

}  // namespace ciuic::sim
