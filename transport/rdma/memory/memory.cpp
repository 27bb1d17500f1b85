// The in-process reference provider. Everything is enforced where a READ happens (`poll`), under the fabric's mutex.
#include "transport/rdma/memory/memory.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/rdma/memory/callers_memory.h"
#include "transport/rdma/token_desk.h"

namespace ciuic::rdma {

namespace {

constexpr Caps memory_caps{.enforces_bounds = true,
                           .enforces_read_only = true,
                           .enforces_revocation = true,
                           .maps_remote = false,
                           .read_bytes_max = 8U << 20,
                           .reads_outstanding_max = 128};

/// Slots are written while they are read: whole words, as a NIC fetches a cache line's. TSan sees atomics.
void copy_out(Bytes from, MutableBytes to) {
  const bool words =
      from.size() <= 64 && from.size() % 8 == 0 && reinterpret_cast<std::uintptr_t>(from.data()) % 8 == 0;
  if (!words) {
    std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  for (std::size_t at = 0; at < from.size(); at += 8) {
    const auto word = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(from.data() + at), __ATOMIC_ACQUIRE);
    std::memcpy(to.data() + at, &word, 8);
  }
}

struct Connection {
  SessionId session;
  const Domain* domain;
  std::shared_ptr<Domain> domain_alive;
  bool cut = false;
};

struct MemoryListenerState {
  explicit MemoryListenerState(const Clock& clock, const ListenOptions& limits) : desk(clock), options(limits) {}
  TokenDesk desk;
  ListenOptions options;
  std::vector<std::shared_ptr<Connection>> connections;
};

struct Exposed {
  const Domain* domain;
  Bytes bytes;
  std::uint64_t address;
};

}  // namespace

struct MemoryFabric::State {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, Exposed> regions;
  std::unordered_map<std::string, std::shared_ptr<MemoryListenerState>> listeners;
  std::uint64_t next_key = 0x1000;
  std::uint64_t next_address = 1ULL << 32;
  std::uint64_t next_port = 1;

  [[nodiscard]] std::uint64_t exposed_bytes() const {
    std::uint64_t all = 0;
    for (const auto& [key, region] : regions) all += region.bytes.size();
    return all;
  }
  /// Copies one READ out, or says why not. Holds `mutex`.
  [[nodiscard]] std::optional<Fault> read(const Connection& connection, const ReadRequest& request) const {
    if (connection.cut) return Fault::peer_gone;
    // Reads of no bytes succeed with any key, as the InfiniBand specification has it.
    if (request.from.length == 0) return std::nullopt;
    const auto found = regions.find(request.from.key);
    if (found == regions.end() || found->second.domain != connection.domain) return Fault::access_error;
    const auto& region = found->second;
    if (request.from.address < region.address) return Fault::access_error;
    const auto at = request.from.address - region.address;
    if (at > region.bytes.size() || request.from.length > region.bytes.size() - at) return Fault::access_error;
    copy_out(region.bytes.subspan(at, request.from.length), request.to);
    return std::nullopt;
  }
};

namespace {

using State = MemoryFabric::State;

class MemoryRegistration final : public Registration {
 public:
  MemoryRegistration(std::shared_ptr<State> fabric, std::uint64_t key) : fabric_(std::move(fabric)), key_(key) {}
  Result<void> deregister() override {
    const std::scoped_lock lock(fabric_->mutex);
    fabric_->regions.erase(key_);
    return {};
  }

 private:
  std::shared_ptr<State> fabric_;
  std::uint64_t key_;
};

class MemoryDomain final : public Domain {
 public:
  MemoryDomain(std::shared_ptr<State> fabric, std::string principal, MemoryOptions options)
      : fabric_(std::move(fabric)), principal_(std::move(principal)), options_(std::move(options)) {}
  std::string_view principal() const override { return principal_; }
  bool pins_memory() const override { return options_.pins_memory; }
  bool current() override { return devices_ == devices(); }
  Result<Region> expose(const Exposable& memory) override {
    if (memory.bytes.empty() || memory.bytes.size() > 0xFFFFFFFFU) return Fault::not_registrable;
    if (options_.expose_fault)
      if (const auto fault = options_.expose_fault()) return *fault;
    const std::scoped_lock lock(fabric_->mutex);
    if (options_.room && fabric_->exposed_bytes() + memory.bytes.size() > options_.room()) return Fault::memlock_limit;
    const auto key = fabric_->next_key++;
    const auto address = fabric_->next_address;
    const auto length = static_cast<std::uint32_t>(memory.bytes.size());
    // A gap behind each region: an overrun never lands in a neighbour.
    fabric_->next_address += (static_cast<std::uint64_t>(length) + 0xFFFF) / 0x10000 * 0x10000 + 0x10000;
    fabric_->regions.emplace(key, Exposed{this, memory.bytes, address});
    return Region(std::make_unique<MemoryRegistration>(fabric_, key), {address, length, key});
  }

 private:
  [[nodiscard]] std::uint64_t devices() const { return options_.devices ? options_.devices() : 0; }

  std::shared_ptr<State> fabric_;
  std::string principal_;
  MemoryOptions options_;
  std::uint64_t devices_ = devices();
};

class MemoryListener final : public Listener {
 public:
  MemoryListener(std::shared_ptr<State> fabric, std::shared_ptr<MemoryListenerState> state, std::string address)
      : fabric_(std::move(fabric)), state_(std::move(state)), address_(std::move(address)) {}
  ~MemoryListener() override {
    const std::scoped_lock lock(fabric_->mutex);
    for (const auto& connection : state_->connections) connection->cut = true;
    fabric_->listeners.erase(address_);
  }
  std::string address() const override { return address_; }
  void admit(const Token& token, std::shared_ptr<Domain> domain, SessionId session, Clock::TimePoint until) override {
    state_->desk.admit(token, std::move(domain), session, until);
  }
  void disconnect(SessionId session) override {
    state_->desk.forget(session);
    const std::scoped_lock lock(fabric_->mutex);
    std::erase_if(state_->connections, [session](const auto& connection) {
      if (connection->session != session) return false;
      connection->cut = true;
      return true;
    });
  }
  std::size_t connections() const override {
    const std::scoped_lock lock(fabric_->mutex);
    return state_->connections.size();
  }

 private:
  std::shared_ptr<State> fabric_;
  std::shared_ptr<MemoryListenerState> state_;
  std::string address_;
};

class HeapLanding final : public Landing {
 public:
  explicit HeapLanding(std::size_t size) : bytes_(size) {}
  MutableBytes bytes() override { return bytes_; }

 private:
  Buffer bytes_;
};

class CallersLanding final : public Landing {
 public:
  explicit CallersLanding(std::shared_ptr<CallersMemory> memory) : memory_(std::move(memory)) {}
  MutableBytes bytes() override { return memory_->named(); }

 private:
  std::shared_ptr<CallersMemory> memory_;
};

class MemoryEndpoint final : public Endpoint {
 public:
  MemoryEndpoint(std::shared_ptr<State> fabric, std::shared_ptr<MemoryListenerState> listener,
                 std::shared_ptr<Connection> connection)
      : fabric_(std::move(fabric)), listener_(std::move(listener)), connection_(std::move(connection)) {}
  ~MemoryEndpoint() override { close(); }

  const Caps& caps() const override { return memory_caps; }
  Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) override {
    return std::unique_ptr<Landing>(std::make_unique<HeapLanding>(bytes));
  }
  Result<std::unique_ptr<Landing>> register_landing(const LandingMemory& memory) override {
    auto callers = CallersMemory::make(memory);
    if (!callers) return Fault::not_registrable;
    callers_.push_back(callers);
    return std::unique_ptr<Landing>(std::make_unique<CallersLanding>(std::move(callers)));
  }
  Result<std::size_t> post_reads(std::span<const ReadRequest> batch) override {
    if (broken_) return *broken_ == Fault::peer_gone ? Fault::peer_gone : Fault::qp_in_error;
    std::size_t taken = 0;
    for (const auto& request : batch) {
      if (pending_.size() >= memory_caps.reads_outstanding_max) break;
      if (request.from.length > memory_caps.read_bytes_max || request.to.size() != request.from.length) {
        break_with(Fault::access_error);
        return Fault::access_error;
      }
      pending_.push_back(request);
      for (const auto& each : callers_)
        if (const auto reached = each->reach(request.to)) pending_.back().to = *reached;
      ++taken;
    }
    if (taken == 0 && !batch.empty()) return Fault::would_block;
    return taken;
  }
  Result<std::size_t> poll(std::span<Completion> into) override {
    const std::scoped_lock lock(fabric_->mutex);
    std::size_t count = 0;
    while (count < into.size() && !pending_.empty()) {
      const auto request = pending_.front();
      pending_.pop_front();
      auto fault = broken_ ? std::optional(Fault::qp_in_error) : fabric_->read(*connection_, request);
      if (fault && !broken_) {
        broken_ = fault;
        cut_locked();
      }
      into[count++] = {request.id, fault};
    }
    if (count > 0 || !pending_.empty()) return count;
    if (!broken_ && connection_->cut) broken_ = Fault::peer_gone;
    if (broken_) return *broken_;
    return count;
  }
  void close() override {
    pending_.clear();
    const std::scoped_lock lock(fabric_->mutex);
    if (!broken_) broken_ = Fault::peer_gone;
    cut_locked();
  }

 private:
  void break_with(Fault fault) {
    const std::scoped_lock lock(fabric_->mutex);
    broken_ = fault;
    cut_locked();
  }
  void cut_locked() {
    connection_->cut = true;
    std::erase(listener_->connections, connection_);
  }
  std::shared_ptr<State> fabric_;
  std::shared_ptr<MemoryListenerState> listener_;
  std::shared_ptr<Connection> connection_;
  std::deque<ReadRequest> pending_;
  std::vector<std::shared_ptr<CallersMemory>> callers_;
  std::optional<Fault> broken_;
};

class MemoryProvider final : public Provider {
 public:
  MemoryProvider(std::shared_ptr<State> fabric, const Clock& clock, MemoryOptions options)
      : fabric_(std::move(fabric)), clock_(clock), options_(std::move(options)) {}
  std::string_view name() const override { return "memory"; }
  const Caps& caps() const override { return memory_caps; }
  bool crosses_hosts() const override { return false; }
  Result<std::shared_ptr<Domain>> open_domain(std::string principal) override {
    return std::shared_ptr<Domain>(std::make_shared<MemoryDomain>(fabric_, std::move(principal), options_));
  }
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) override {
    const std::scoped_lock lock(fabric_->mutex);
    auto address = options.address.empty() ? "memory:" + std::to_string(fabric_->next_port++) : options.address;
    auto state = std::make_shared<MemoryListenerState>(clock_, options);
    if (!fabric_->listeners.emplace(address, state).second) return Fault::refused;
    return std::unique_ptr<Listener>(std::make_unique<MemoryListener>(fabric_, std::move(state), std::move(address)));
  }
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                            const ConnectOptions&) override {
    const std::scoped_lock lock(fabric_->mutex);
    const auto found = fabric_->listeners.find(address);
    if (found == fabric_->listeners.end()) return Fault::address_unreachable;
    auto& listener = *found->second;
    auto admission = listener.desk.redeem(token);
    if (!admission) return Fault::refused;
    if (listener.connections.size() >= listener.options.connections_max) return Fault::refused;
    std::size_t of_principal = 0;
    for (const auto& connection : listener.connections)
      of_principal += connection->domain->principal() == admission->domain->principal() ? 1 : 0;
    if (of_principal >= listener.options.connections_per_principal_max) return Fault::refused;
    auto connection = std::make_shared<Connection>(
        Connection{admission->session, admission->domain.get(), std::move(admission->domain)});
    listener.connections.push_back(connection);
    return std::unique_ptr<Endpoint>(std::make_unique<MemoryEndpoint>(fabric_, found->second, std::move(connection)));
  }

 private:
  std::shared_ptr<State> fabric_;
  const Clock& clock_;
  MemoryOptions options_;
};

}  // namespace

MemoryFabric::MemoryFabric() : state_(std::make_shared<State>()) {}
MemoryFabric::~MemoryFabric() = default;

MemoryFabric& MemoryFabric::of_process() {
  static MemoryFabric fabric;
  return fabric;
}

std::shared_ptr<Provider> make_memory_provider(const MemoryFabric& fabric, const Clock& clock, MemoryOptions options) {
  return std::make_shared<MemoryProvider>(fabric.state(), clock, std::move(options));
}

}  // namespace ciuic::rdma
