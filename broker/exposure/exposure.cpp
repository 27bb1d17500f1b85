// Sessions: who may hold grants, their renewal and their end. Everything here runs on home but the observer's calls,
// which go straight to their partition. Not here: grants and waits (grants.cpp), slots and chunks
// (partition_exposure.cpp).
#include "broker/exposure/exposure.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdlib>

#include "broker/exposure/core.h"
#include "transport/base/log.h"
#include "transport/rdma/registry.h"

namespace ciuic::broker {

using kafka::ErrorCode;

namespace {

std::string boot_of(const std::string& host_id) { return host_id.substr(0, host_id.find('/')); }

/// Not to be guessed: a session is known by its number.
rdma::SessionId random_id() {
  rdma::SessionId id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) std::abort();
    id &= ~(1ULL << 63);
  }
  return id;
}

/// In words, for the log; empty: nothing that a hostile reader of another host could use.
std::string not_enforced(const rdma::Caps& caps) {
  std::string words;
  for (const auto& [enforced, what] : {std::pair{caps.enforces_bounds, "the bounds of granted memory"},
                                       std::pair{caps.enforces_read_only, "that memory is only read"},
                                       std::pair{caps.enforces_revocation, "the end of a grant"}})
    if (!enforced) words += (words.empty() ? "" : ", ") + std::string(what);
  return words;
}

}  // namespace

// --- Core ---

Exposure::Core::Core(Parts parts)
    : settings(std::move(parts.settings)),
      clock(*parts.clock),
      home(*parts.home),
      arena(std::move(parts.arena)),
      blocking(std::move(parts.blocking)),
      shares(std::make_shared<PinnedShares>(clock, 3 * Milliseconds(settings.lease_ms + settings.read_ms_max))),
      boot_id(boot_of(rdma::host_id())),
      lookup_now(std::make_shared<const ExposureLookup>(std::move(parts.lookup))) {
  for (auto* executor : parts.executors) shards.push_back({executor, {}});
  if (!settings.enabled) return;
  for (auto& provider : parts.providers) {
    rdma::ListenOptions options;
    options.runtime_dir = settings.runtime_dir;
    options.socket_mode = settings.socket_mode;
    if (provider->crosses_hosts()) options.address = settings.listen;
    // A session may have two.
    options.connections_per_principal_max = 2 * settings.sessions_per_principal_max;
    options.connections_max = 2 * settings.sessions_max;
    auto listener = provider->listen(options);
    if (!listener) {
      // Who is refused as a listener has said why; the fault's own words are for a connection.
      if (listener.error() == rdma::Fault::refused) {
        log::warn("exposure", "provider left out name={}: it cannot listen, see its error above", provider->name());
        continue;
      }
      const auto level = listener.error() == rdma::Fault::no_device ? log::Level::info : log::Level::warn;
      log::line(level, "exposure", "provider left out name={}: {}; {}", provider->name(), rdma::text(listener.error()),
                rdma::remedy(listener.error()));
      continue;
    }
    const auto lacks = not_enforced(provider->caps());
    if (provider->crosses_hosts() && !lacks.empty()) {
      if (!settings.trusted_readers) {
        log::error("exposure",
                   "provider left out name={}: at {} it does not enforce {} against a hostile reader; set "
                   "rdma.trusted.readers=true if everybody who may read by it is trusted, or take it out of "
                   "onesided.providers",
                   provider->name(), (*listener)->address(), lacks);
        continue;
      }
      log::warn("exposure", "readers are trusted provider={} address={} not_enforced=\"{}\"", provider->name(),
                (*listener)->address(), lacks);
    }
    // Without an address it waits for a device, and has said so.
    if (const auto address = (*listener)->address(); !address.empty())
      log::info("exposure", "one-sided readers welcome provider={} address={}", provider->name(), address);
    listening.push_back({std::move(provider), std::move(*listener)});
  }
}

Exposure::Core::ShardState& Exposure::Core::shard_of(const Executor& executor) {
  for (auto& shard : shards)
    if (shard.executor == &executor) return shard;
  log::error("exposure", "a partition is owned by an executor that the exposure was not told of");
  log::flush();
  std::abort();
}

PartitionExposure* Exposure::Core::find(const Partition& partition) {
  auto& partitions = shard_of(partition.executor()).partitions;
  const auto found = partitions.find(&partition);
  return found == partitions.end() ? nullptr : found->second.get();
}

std::shared_ptr<PartitionExposure> Exposure::Core::find_or_make(const std::shared_ptr<Partition>& partition) {
  auto& at = shard_of(partition->executor()).partitions[partition.get()];
  if (!at) {
    auto block = block_for(*partition);
    if (block)
      at = std::make_shared<PartitionExposure>(
          partition, std::move(block),
          PartitionExposure::Shared{settings, clock, metrics, arena, blocking, may_read, make_room_now, shares});
  }
  auto found = at;
  if (!found) shard_of(partition->executor()).partitions.erase(partition.get());
  return found;
}

std::shared_ptr<SlotBlock> Exposure::Core::block_for(const Partition& partition) {
  const std::scoped_lock lock(mutex);
  auto& at = blocks[{partition.topic_id(), partition.name().partition.value / onesided::slots_per_block}];
  auto block = at.slots.lock();
  if (!block) {
    block = SlotBlock::make(shares);
    at = {block, partition.name().topic};
  }
  return block;
}

std::vector<std::pair<std::shared_ptr<SlotBlock>, std::string>> Exposure::Core::all_blocks() const {
  std::vector<std::pair<std::shared_ptr<SlotBlock>, std::string>> all;
  const std::scoped_lock lock(mutex);
  for (const auto& [key, one] : blocks)
    if (auto block = one.slots.lock()) all.emplace_back(std::move(block), one.topic);
  return all;
}

std::shared_ptr<const ExposureLookup> Exposure::Core::lookup() const {
  const std::scoped_lock lock(mutex);
  return lookup_now;
}

Session* Exposure::Core::session_of(const ExposurePeer& peer, std::int64_t id) {
  const auto found = sessions.find(static_cast<rdma::SessionId>(id));
  if (found == sessions.end() || found->second->closed) {
    refused(RefusalReason::unknown_session);
    return nullptr;
  }
  if (found->second->principal != peer.principal) {
    refused(RefusalReason::foreign_session);
    log::bounded(log::Level::warn, "exposure", "session asked for by another principal principal={} owner={}",
                 peer.principal, found->second->principal);
    return nullptr;
  }
  found->second->heard_at = clock.now();
  return found->second.get();
}

std::shared_ptr<rdma::Domain> Exposure::Core::domain_for(const Listening& one, const std::string& principal) {
  // One that is not current goes with the sessions that have it.
  for (const auto& [of, domain] : domains)
    if (of == one.provider.get() && domain->principal() == principal && domain->current()) return domain;
  auto opened = one.provider->open_domain(principal);
  if (!opened) {
    log::bounded(log::Level::warn, "exposure", "no protection domain provider={} principal={}: {}; {}",
                 one.provider->name(), principal, rdma::text(opened.error()), rdma::remedy(opened.error()));
    return nullptr;
  }
  return domains.emplace_back(one.provider.get(), std::move(*opened)).second;
}

void Exposure::Core::connect(const ExposurePeer& peer, const kafka::OneSidedConnectRequest& request,
                             const Done<kafka::OneSidedConnectResponse>& done) {
  kafka::OneSidedConnectResponse response;
  const auto refuse = [&](RefusalReason reason, ErrorCode code, std::string text) {
    refused(reason);
    response.error_code = code;
    response.error_message = std::move(text);
    done(std::move(response));
  };
  if (closing || !settings.enabled)
    return refuse(RefusalReason::disabled, ErrorCode::unsupported_version,
                  "onesided.enable=false or the broker stops: use Fetch");
  // A client that could reach none of the addresses it was given asks again over the same connection.
  for (auto& [id, session] : sessions)
    if (session->connection == peer.connection) end_session(*session, RevocationReason::session_closed);
  sweep_sessions();
  std::size_t of_principal = 0;
  for (const auto& [id, session] : sessions) of_principal += session->principal == peer.principal ? 1 : 0;
  if (of_principal >= settings.sessions_per_principal_max || sessions.size() >= settings.sessions_max)
    return refuse(RefusalReason::too_many_sessions, ErrorCode::throttling_quota_exceeded,
                  "too many one-sided sessions: close consumers or raise onesided.sessions.per.principal.max");

  auto session = std::make_unique<Session>();
  session->id = random_id();
  session->principal = peer.principal;
  session->connection = peer.connection;
  session->heard_at = clock.now();
  const bool same_host = boot_of(request.host_id) == boot_id;
  for (auto& one : listening) {
    const bool asked =
        std::find(request.providers.begin(), request.providers.end(), one.provider->name()) != request.providers.end();
    if (!asked || (!one.provider->crosses_hosts() && !same_host)) continue;
    auto address = one.listener->address();
    if (address.empty()) continue;  // its devices are gone
    auto domain = domain_for(one, peer.principal);
    if (!domain) continue;
    const auto admitted = [&] {
      const auto token = rdma::Token::random();
      one.listener->admit(token, domain, session->id, clock.now() + Milliseconds(settings.token_ms));
      return to_buffer(std::as_bytes(std::span(token.bytes)));
    };
    kafka::OneSidedConnectResponse::OfferedProvider offer;
    offer.name = one.provider->name();
    offer.address = std::move(address);
    offer.token = admitted();
    if (one.listener->devices() > 1) offer.second_token = admitted();
    offer.caps = one.provider->caps().to_bits();
    offer.read_bytes_max =
        static_cast<std::int32_t>(std::min<std::uint32_t>(one.provider->caps().read_bytes_max, 0x7FFFFFFF));
    response.providers.push_back(std::move(offer));
    session->domains.emplace(std::string(one.provider->name()), std::move(domain));
  }
  if (response.providers.empty()) {
    std::string ours;
    for (const auto& one : listening) ours += (ours.empty() ? "" : ",") + std::string(one.provider->name());
    drop_unused_domains();
    return refuse(RefusalReason::no_common_provider, ErrorCode::unsupported_version,
                  "no provider in common (broker: " + (ours.empty() ? "none" : ours) +
                      "; same host: " + (same_host ? "yes" : "no") + "): use Fetch");
  }
  response.session_id = static_cast<std::int64_t>(session->id);
  response.lease_ms = settings.lease_ms;
  log::bounded(log::Level::info, "exposure", "session opened principal={} session={} provider={}", peer.principal,
               session->id, response.providers.front().name);
  sessions.emplace(session->id, std::move(session));
  ++metrics.sessions_total;
  metrics.sessions.store(static_cast<std::int64_t>(sessions.size()));
  done(std::move(response));
}

void Exposure::Core::renew(const ExposurePeer& peer, const kafka::OneSidedRenewRequest& request,
                           const Done<kafka::OneSidedRenewResponse>& done) {
  kafka::OneSidedRenewResponse response;
  response.lease_ms = settings.lease_ms;
  auto* session = session_of(peer, request.session_id);
  if (!session) {
    response.error_code = ErrorCode::fetch_session_id_not_found;
    return done(std::move(response));
  }
  const auto now = clock.now();
  const auto end = now + Milliseconds(settings.lease_ms);
  const auto asked = lookup();
  std::map<std::string, bool> allowed;
  struct Passed {
    std::shared_ptr<Partition> partition;
    std::shared_ptr<Lease> lease;
    kafka::Offset position;
  };
  std::unordered_map<Executor*, std::vector<Passed>> passed;
  response.grants.reserve(request.grants.size());
  for (const auto& one : request.grants) {
    auto& result = response.grants.emplace_back();
    result.grant_id = one.grant_id;
    const auto found = session->grants.find(one.grant_id);
    if (found == session->grants.end()) {
      result.error_code = ErrorCode::invalid_fetch_session_epoch;
      continue;
    }
    auto& grant = found->second;
    const auto& topic = grant.partition->name().topic;
    const auto known = allowed.find(topic);
    const bool may = known != allowed.end()
                         ? known->second
                         : allowed.emplace(topic, asked->may_read(session->principal, topic)).first->second;
    if (!may) {
      refused(RefusalReason::not_authorized);
      (void)grant.lease->freeze();
      result.error_code = ErrorCode::topic_authorization_failed;
      continue;
    }
    // A lease that ran out may not come back: its chunk may be on its way out.
    if (grant.lease->end() <= now || !grant.lease->renew(end)) {
      result.error_code = ErrorCode::invalid_fetch_session_epoch;
      continue;
    }
    ++metrics.renewals_total;
    passed[&grant.partition->executor()].push_back({grant.partition, grant.lease, kafka::Offset(one.position)});
  }
  for (auto& [executor, list] : passed)
    executor->post([self = shared_from_this(), list = std::move(list)] {
      for (const auto& one : list)
        if (auto* partition = self->find(*one.partition)) partition->passed(*one.lease, one.position);
    });
  done(std::move(response));
}

void Exposure::Core::release(const ExposurePeer& peer, const kafka::OneSidedReleaseRequest& request,
                             const Done<kafka::OneSidedReleaseResponse>& done) {
  kafka::OneSidedReleaseResponse response;
  auto* session = session_of(peer, request.session_id);
  if (!session) {
    response.error_code = ErrorCode::fetch_session_id_not_found;
    return done(std::move(response));
  }
  for (const auto id : request.grant_ids) {
    const auto found = session->grants.find(id);
    if (found == session->grants.end()) continue;
    auto grant = std::move(found->second);
    session->grants.erase(found);
    --metrics.grants;
    grant.lease->release();
    grant.partition->executor().post([self = shared_from_this(), partition = grant.partition, lease = grant.lease, id] {
      if (auto* exposed = self->find(*partition)) exposed->released(*lease, id);
    });
  }
  done(std::move(response));
}

/// No renewals from here on. What it was granted runs out; then `sweep_sessions` cuts its readers and forgets it.
void Exposure::Core::end_session(Session& session, RevocationReason reason) {
  if (session.closed) return;
  session.closed = true;
  if (const auto waits = std::exchange(session.waits, nullptr)) waits->answer();
  auto last = clock.now();
  for (const auto& [id, grant] : session.grants)
    last = std::max(last, grant.lease->freeze() + Milliseconds(settings.read_ms_max));
  log::bounded(log::Level::info, "exposure", "session ends principal={} session={} grants={} reason={}",
               session.principal, session.id, session.grants.size(), name(reason));
  home.post_at(last, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->sweep_sessions();
  });
}

void Exposure::Core::sweep_sessions() {
  const auto now = clock.now();
  bool removed = false;
  for (auto at = sessions.begin(); at != sessions.end();) {
    auto& session = *at->second;
    if (session.grants_pending > 0) session.heard_at = now;
    if (!session.closed && now - session.heard_at > patience()) end_session(session, RevocationReason::silent);
    metrics.grants.fetch_sub(static_cast<std::int64_t>(std::erase_if(session.grants, [&](const auto& one) {
      return one.second.lease->over(now, Milliseconds(settings.read_ms_max));
    })));
    if (!session.closed || !session.grants.empty() || session.grants_pending > 0) {
      ++at;
      continue;
    }
    for (auto& one : listening) one.listener->disconnect(session.id);
    at = sessions.erase(at);
    removed = true;
  }
  metrics.sessions.store(static_cast<std::int64_t>(sessions.size()));
  if (removed) drop_unused_domains();
  drop_denied_slots();
}

void Exposure::Core::drop_unused_domains() {
  std::erase_if(domains, [this](const auto& one) {
    const bool used = std::any_of(sessions.begin(), sessions.end(), [&one](const auto& session) {
      const auto found = session.second->domains.find(one.first->name());
      return found != session.second->domains.end() && found->second == one.second;
    });
    if (!used) drop_domain(one.second);
    return !used;
  });
  const std::scoped_lock lock(mutex);
  std::erase_if(blocks, [](const auto& one) { return one.second.slots.expired(); });
}

void Exposure::Core::drop_domain(const std::shared_ptr<rdma::Domain>& domain) {
  for (auto& [block, topic] : all_blocks())
    run_blocking([block = std::move(block), domain] { block->drop(domain.get()); }, Turn::first);
  for (auto& shard : shards)
    shard.executor->post([self = shared_from_this(), domain, &shard] {
      for (auto& [partition, exposed] : shard.partitions) exposed->drop_domain(domain.get());
    });
}

/// Slots go when nobody can hold a lease on the topic any more: the last renewal was refused a lease ago.
void Exposure::Core::drop_denied_slots() {
  const auto patience = Milliseconds(settings.lease_ms) + Milliseconds(settings.read_ms_max);
  for (auto& [block, topic] : all_blocks()) {
    const auto may = [this, &topic = topic](const std::string& principal) { return may_read(principal, topic); };
    for (auto& domain : block->denied(may, clock.now(), patience))
      run_blocking([block = block, domain = std::move(domain)] { block->drop(domain.get()); }, Turn::first);
  }
}

bool Exposure::Core::make_room(std::string_view principal, rdma::Fault fault) {
  shares->refused(principal, fault == rdma::Fault::memlock_limit ? PinnedShares::Of::bytes : PinnedShares::Of::regions);
  const auto now = clock.now();
  bool everybody = false;
  {
    const std::scoped_lock lock(mutex);
    auto& made = room_making;
    if (!made.began || now - *made.began >= Milliseconds(settings.lease_ms)) {
      made = {now, {}, 0};
    } else if (now - made.acted < Milliseconds(settings.retry_after_ms)) {
      return true;  // it is being made
    } else if (made.steps == 2) {
      return false;
    }
    made.acted = now;
    everybody = ++made.steps == 2;
  }
  const auto whose = everybody ? std::string() : shares->largest().value_or("");
  const auto excess = everybody ? shares->excess(principal) : std::nullopt;
  log::bounded(log::Level::warn, "exposure",
               "memory cannot be registered: registrations that no lease covers are ended to make room, of {}{}",
               whose.empty() ? "everybody" : whose,
               excess ? "; " + excess->principal + " has more than its share, which is not renewed" : "");
  const auto amount = std::make_shared<std::atomic<std::int64_t>>(excess ? excess->amount : 0);
  for (auto& shard : shards)
    shard.executor->post([self = shared_from_this(), &shard, whose, excess, amount] {
      for (auto& [partition, exposed] : shard.partitions) {
        if (excess) exposed->give_way(*excess, *amount);
        exposed->drop_kept(whose);
      }
    });
  return true;
}

void Exposure::Core::sweep_partitions(std::size_t shard) {
  auto& partitions = shards[shard].partitions;
  for (auto at = partitions.begin(); at != partitions.end();) {
    at->second->sweep();
    at = at->second->finished() ? partitions.erase(at) : std::next(at);
  }
}

void Exposure::Core::start_sweeping() {
  const auto period = Milliseconds(std::max(settings.lease_ms / 2, 10));
  struct Again {
    static void sessions(const std::weak_ptr<Core>& weak, Milliseconds every) {
      const auto self = weak.lock();
      if (!self || self->closing) return;
      self->sweep_sessions();
      self->home.post_at(self->clock.now() + every, [weak, every] { sessions(weak, every); });
    }
    static void partitions(const std::weak_ptr<Core>& weak, Milliseconds every, std::size_t shard) {
      const auto self = weak.lock();
      if (!self) return;
      self->sweep_partitions(shard);
      self->shards[shard].executor->post_at(self->clock.now() + every,
                                            [weak, every, shard] { partitions(weak, every, shard); });
    }
  };
  home.post([weak = weak_from_this(), period] { Again::sessions(weak, period); });
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].executor->post([weak = weak_from_this(), period, i] { Again::partitions(weak, period, i); });
}

// --- Exposure ---

Exposure::Exposure(Parts parts) : core_(std::make_shared<Core>(std::move(parts))) { core_->start_sweeping(); }
Exposure::~Exposure() = default;

std::vector<std::shared_ptr<rdma::Provider>> Exposure::make_providers(const ExposureSettings& settings,
                                                                      const Clock& clock) {
  std::vector<std::shared_ptr<rdma::Provider>> providers;
  for (const auto& wanted : settings.providers) {
    auto made = rdma::make_provider(wanted, clock, !settings.listen.empty());
    if (made) {
      providers.push_back(std::move(*made));
      continue;
    }
    // Most hosts have no RDMA device, and the default names its provider.
    const auto level = made.error() == rdma::Fault::no_device ? log::Level::info : log::Level::warn;
    log::line(level, "exposure", "onesided.providers: {} is left out: {}; {}", wanted, rdma::text(made.error()),
              rdma::remedy(made.error()));
  }
  return providers;
}

void Exposure::set_lookup(ExposureLookup lookup) {
  const std::scoped_lock lock(core_->mutex);
  core_->lookup_now = std::make_shared<const ExposureLookup>(std::move(lookup));
}

void Exposure::connect(ExposurePeer peer, kafka::OneSidedConnectRequest request,
                       Done<kafka::OneSidedConnectResponse> done) {
  core_->home.post([core = core_, peer = std::move(peer), request = std::move(request), done = std::move(done)] {
    core->connect(peer, request, done);
  });
}
void Exposure::grant(ExposurePeer peer, kafka::OneSidedGrantRequest request, Done<kafka::OneSidedGrantResponse> done) {
  core_->home.post([core = core_, peer = std::move(peer), request = std::move(request),
                    done = std::move(done)]() mutable { core->grant(peer, std::move(request), done); });
}
void Exposure::renew(ExposurePeer peer, kafka::OneSidedRenewRequest request, Done<kafka::OneSidedRenewResponse> done) {
  core_->home.post([core = core_, peer = std::move(peer), request = std::move(request), done = std::move(done)] {
    core->renew(peer, request, done);
  });
}
void Exposure::wait(ExposurePeer peer, kafka::OneSidedWaitRequest request, Done<kafka::OneSidedWaitResponse> done) {
  core_->home.post([core = core_, peer = std::move(peer), request = std::move(request), done = std::move(done)] {
    core->wait(peer, request, done);
  });
}
void Exposure::release(ExposurePeer peer, kafka::OneSidedReleaseRequest request,
                       Done<kafka::OneSidedReleaseResponse> done) {
  core_->home.post([core = core_, peer = std::move(peer), request = std::move(request), done = std::move(done)] {
    core->release(peer, request, done);
  });
}

void Exposure::connection_closed(std::uint64_t connection) {
  core_->home.post([core = core_, connection] {
    for (auto& [id, session] : core->sessions)
      if (session->connection == connection) core->end_session(*session, RevocationReason::session_closed);
  });
}

void Exposure::revoke_principal(std::string principal) {
  core_->home.post([core = core_, principal = std::move(principal)] {
    for (auto& [id, session] : core->sessions) {
      if (session->principal != principal) continue;
      core->end_session(*session, RevocationReason::forced);
      // A READ in flight may hang in its retries, or end as "success" without bytes: the cut is what the reader hears.
      for (auto& one : core->listening) one.listener->disconnect(session->id);
      for (const auto& [provider, domain] : session->domains) core->drop_domain(domain);
    }
  });
}

void Exposure::close(Task done) {
  core_->home.post([core = core_, done = std::move(done)]() mutable {
    core->closing = true;
    for (auto& [id, session] : core->sessions) {
      core->end_session(*session, RevocationReason::session_closed);
      for (auto& one : core->listening) one.listener->disconnect(session->id);
    }
    core->home.post(std::move(done));
  });
}

const ExposureMetrics& Exposure::metrics() const { return core_->metrics; }

std::vector<std::pair<std::string, std::string>> Exposure::listening() const {
  std::vector<std::pair<std::string, std::string>> list;
  for (const auto& one : core_->listening) list.emplace_back(one.provider->name(), one.listener->address());
  return list;
}

void Exposure::chunk_opened(Partition&, const std::shared_ptr<Chunk>&) {}
void Exposure::chunk_sealed(Partition&, const std::shared_ptr<Chunk>&) {}
void Exposure::chunk_wanted_back(Partition& partition, const std::shared_ptr<Chunk>& chunk, Task done) {
  if (auto* exposed = core_->find(partition)) return exposed->chunk_wanted_back(chunk, std::move(done));
  done();
}
void Exposure::committed(Partition& partition, const Committed& position) {
  if (auto* exposed = core_->find(partition)) exposed->committed(position);
}
void Exposure::layout_changed(Partition& partition, LayoutChange change) {
  if (auto* exposed = core_->find(partition)) exposed->layout_changed(change);
}

}  // namespace ciuic::broker
