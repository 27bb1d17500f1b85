#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "transport/base/bytes.h"
#include "transport/base/clock.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/fault.h"

/// The one-sided seam: what a READ may rely on, whichever provider carries it. This header is the whole contract; the
/// conformance suite (tests/conformance) holds it over every provider. Next: transport/onesided/reader.h.
///
/// Broker: `open_domain` per principal, `expose` memory read-only, `listen`, `admit` one token per client session.
/// Client: `connect` with the token, post READs of spans that a grant named, poll completions, believe only checks.
namespace ciuic::rdma {

/// What a provider does and does not enforce, as bits so that it travels. A hostile peer is meant, not a clumsy one.
struct Caps {
  bool enforces_bounds = false;      ///< a READ outside a region fails
  bool enforces_read_only = false;   ///< no peer can change exposed memory, whatever it does
  bool enforces_revocation = false;  ///< no READ posted after `Region::revoke` returned delivers bytes of the region
  bool maps_remote = false;          ///< `Endpoint::mapper()` is there: bytes without a copy
  std::uint32_t read_bytes_max = 0;  ///< longest READ; longer ones are the caller's to cut
  std::uint32_t reads_outstanding_max = 0;  ///< READs posted and not yet polled, at most; at least 1

  [[nodiscard]] std::int32_t to_bits() const {
    return (enforces_bounds ? 1 : 0) | (enforces_read_only ? 2 : 0) | (enforces_revocation ? 4 : 0) |
           (maps_remote ? 8 : 0);
  }
};

/// Exposed memory as a peer names it: a plain value that travels in a grant.
struct RemoteSpan {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint64_t key = 0;
  bool operator==(const RemoteSpan&) const = default;

  /// The `n` bytes from `at`; nothing if they are not all inside.
  [[nodiscard]] std::optional<RemoteSpan> sub(std::uint32_t at, std::uint32_t n) const {
    if (at > length || n > length - at) return std::nullopt;
    return RemoteSpan{address + at, n, key};
  }
};

/// What an exposed span is made of, for providers that hand memory to another process instead of reading it remotely.
class Backing {
 public:
  virtual ~Backing() = default;
  /// Unique in the process.
  [[nodiscard]] virtual std::uint64_t id() const = 0;
  /// A descriptor that can neither be mapped writable nor be reopened for writing (O_RDONLY, mode 0400). Empty: none.
  [[nodiscard]] virtual UniqueFd read_only_descriptor() const = 0;
};

/// Memory to expose. `backing` (may be null) says which memfd holds it, and where.
struct Exposable {
  Bytes bytes;
  std::shared_ptr<const Backing> backing{};
  std::uint64_t backing_offset = 0;
};

/// A provider's half of a Region.
class Registration {
 public:
  virtual ~Registration() = default;
  /// Ends it; called once. An error means that peers may still read: the memory must not be reused.
  [[nodiscard]] virtual Result<void> deregister() = 0;
};

/// One registered span: owns the registration. Move-only; a moved-from Region may only be destroyed or assigned.
class Region {
 public:
  Region(std::unique_ptr<Registration> registration, RemoteSpan remote)
      : registration_(std::move(registration)), remote_(remote) {}
  Region(Region&&) noexcept = default;
  Region& operator=(Region&& other) noexcept;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  /// Revokes. That this fails is fatal (the process ends): call `revoke` where failure must be survived.
  ~Region();

  [[nodiscard]] const RemoteSpan& remote() const { return remote_; }
  /// Revokes now. After success no READ posted later delivers bytes of the span, where caps.enforces_revocation; a READ
  /// in flight ends with an error, with the old bytes, or as "success" with bytes missing. Where it fails the region
  /// stays registered in the provider's eyes: leave the memory alone for good. May be called once.
  [[nodiscard]] Result<void> revoke();

 private:
  std::unique_ptr<Registration> registration_;
  RemoteSpan remote_;
};

/// The protection domain of one principal: its keys open nothing over another domain's connections.
/// Any thread; one domain registers serially. Outlives its Regions and the connections admitted to it.
class Domain {
 public:
  virtual ~Domain() = default;
  [[nodiscard]] virtual std::string_view principal() const = 0;
  /// True: `expose`, and the end of a Region, pin and unpin pages and take milliseconds: not for an event loop.
  [[nodiscard]] virtual bool pins_memory() const { return false; }
  /// False: devices came or went since it first exposed. What it exposed stays as it is; who is admitted from now on
  /// belongs in another domain of the principal.
  [[nodiscard]] virtual bool current() { return true; }
  /// Makes the span readable, never writable, by peers of this domain.
  /// REQUIRES: non-empty, page aligned or inside one page, anonymous or memfd memory, outlives the Region. The same
  /// span may be exposed in many domains, and twice in one (two keys). Errors: memlock_limit, not_registrable,
  /// device_lost, resources_exhausted.
  [[nodiscard]] virtual Result<Region> expose(const Exposable& memory) = 0;
};

/// One-time password of a connection, 32 random bytes.
struct Token {
  std::array<std::uint8_t, 32> bytes{};
  bool operator==(const Token&) const = default;
  [[nodiscard]] static Token random();
  [[nodiscard]] static std::optional<Token> from(Bytes bytes);
};

/// The broker's name for a client session; one session may hold several connections.
using SessionId = std::uint64_t;

/// Where clients connect. Works on its own thread or inside callers' calls; a silent, slow, vanished or hostile peer
/// never blocks another, nor any call of this class. Any thread.
class Listener {
 public:
  virtual ~Listener() = default;
  /// What a client hands to `Provider::connect`.
  [[nodiscard]] virtual std::string address() const = 0;
  /// One connection that shows `token` before `until` reads in `domain`, on behalf of `session`.
  virtual void admit(const Token& token, std::shared_ptr<Domain> domain, SessionId session, Clock::TimePoint until) = 0;
  /// Forgets the session's unused tokens and cuts its connections: their pending READs fail soon, no new ones start.
  virtual void disconnect(SessionId session) = 0;
  /// Devices that one client can read by at a time, with a connection and so a token for each.
  [[nodiscard]] virtual std::size_t devices() const { return 1; }
  /// Connections now open.
  [[nodiscard]] virtual std::size_t connections() const = 0;
};

struct ListenOptions {
  std::string runtime_dir{};         ///< for providers that need a file; made if missing (mode 0711)
  std::uint32_t socket_mode = 0660;  ///< of that file: who may try a token at all
  std::string address{};             ///< where to listen, in the provider's form; empty: it chooses
  std::uint32_t connections_per_principal_max = 64;
  std::uint32_t connections_max = 4096;
};

struct ReadRequest {
  RemoteSpan from{};
  MutableBytes to{};     ///< exactly `from.length` bytes of a Landing of the same endpoint, untouched until completion
  std::uint64_t id = 0;  ///< comes back in the completion
};
struct Completion {
  std::uint64_t id = 0;
  std::optional<Fault> fault{};  ///< none: the READ says it succeeded. That is not proof: check the bytes.
};

/// Memory that READs may land in, registered with the device where that is needed. Freed memory is the endpoint's until
/// no READ into it is pending. May outlive the endpoint; its end must not run beside a call of the endpoint.
class Landing {
 public:
  virtual ~Landing() = default;
  [[nodiscard]] virtual MutableBytes bytes() = 0;
};

/// Memory of the caller's for READs to land in.
struct LandingMemory {
  MutableBytes bytes{};  ///< the host's, or addresses of a device that the CPU cannot follow
  bool of_host = true;
  int dma_buf = -1;  ///< of a device: the descriptor by which cards reach it; -1: there is none
  std::uint64_t dma_buf_offset = 0;
};

/// Exposed memory seen in place.
class Mapper {
 public:
  virtual ~Mapper() = default;
  /// The span's bytes in this process, read-only, while the endpoint lives. They may change under the reader once the
  /// lease is over: check after, not before. The first use of a key may ask the broker (blocks up to the connect
  /// timeout). Errors: access_error (unknown or foreign key, out of bounds), peer_gone, resources_exhausted,
  /// forked_child.
  [[nodiscard]] virtual Result<Bytes> view(const RemoteSpan& span) = 0;
  /// Spans that will be viewed soon: what must be asked of the broker for them is asked at once rather than one by one.
  /// Never blocks; a hint only, errors are the later view's to tell.
  virtual void expect(std::span<const RemoteSpan> /*spans*/) {}
};

/// A client's connection (for verbs: an RC queue pair). One thread at a time. Errors are final: after one of outcome
/// `reconnect` every pending READ completes with qp_in_error or the error itself, and posting fails.
class Endpoint {
 public:
  /// Closes; returns only when no READ can write to a Landing any more.
  virtual ~Endpoint() = default;
  [[nodiscard]] virtual const Caps& caps() const = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) = 0;
  /// The caller's memory as a landing, all of it; READs may go to any part. REQUIRES: it outlives the Landing and the
  /// READs into it. Errors: not_registrable (the provider, the card or the driver cannot, or not such memory),
  /// memlock_limit, resources_exhausted.
  [[nodiscard]] virtual Result<std::unique_ptr<Landing>> register_landing(const LandingMemory& /*memory*/) {
    return Fault::not_registrable;
  }
  /// Posts READs in order; gives how many were taken, at least one. Never blocks. A READ longer than
  /// caps().read_bytes_max or whose `to` differs in size from `from` is a caller's bug: access_error, endpoint broken.
  /// Errors: would_block (queue full), qp_in_error, peer_gone, device_lost.
  [[nodiscard]] virtual Result<std::size_t> post_reads(std::span<const ReadRequest> batch) = 0;
  /// Takes completions; gives how many, maybe 0. Never blocks. READs of one endpoint complete in the order posted.
  /// A dead peer shows here (peer_gone) even with nothing in flight, once all completions have been taken.
  [[nodiscard]] virtual Result<std::size_t> poll(std::span<Completion> into) = 0;
  /// For waiting without a spinning core: a descriptor, the endpoint's, that is readable once a READ completes or the
  /// connection fails after this call. Poll once more between it and the wait: what had completed before need not show.
  /// -1: poll again first, or always where there is none.
  [[nodiscard]] virtual int arm() { return -1; }
  /// Null unless caps().maps_remote.
  [[nodiscard]] virtual Mapper* mapper() { return nullptr; }
  /// No more READs; pending ones are dropped, and no Landing is written once it returned. `poll` answers a fault.
  /// Idempotent.
  virtual void close() = 0;
};

struct ConnectOptions {
  Milliseconds timeout{2000};
  std::string source{};           ///< for providers that choose a device by address: our own; empty: the route decides
  std::optional<Token> second{};  ///< of the same session: for a connection by a second device, where there is one
};

/// One way of one-sided reading. Stateless but for its device; any thread. Names are lower case, registry.h lists them.
class Provider {
 public:
  virtual ~Provider() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual const Caps& caps() const = 0;
  /// True when a client on another host can use it.
  [[nodiscard]] virtual bool crosses_hosts() const = 0;
  // Broker.
  [[nodiscard]] virtual Result<std::shared_ptr<Domain>> open_domain(std::string principal) = 0;
  /// Errors: no_device, refused (address taken, directory not ours), resources_exhausted.
  [[nodiscard]] virtual Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) = 0;
  // Client.
  /// Blocks up to the timeout. Errors: address_unreachable, refused, peer_gone, incompatible, no_device.
  [[nodiscard]] virtual Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                                                  const ConnectOptions& options) = 0;
};

}  // namespace ciuic::rdma
