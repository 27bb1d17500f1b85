// The client's end: a connection, the keys it has learnt, READs that are counted here and completed in the order
// posted. UCX checks no bounds and no key: that is done here. All that UCX calls us with happens in `Worker::progress`.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "transport/base/fork_guard.h"
#include "transport/base/log.h"
#include "transport/rdma/landing_places.h"
#include "transport/rdma/ucx/ends.h"

namespace ciuic::rdma::ucx {

namespace {

/// What is under way at the end is over at once, unless UCX forgets it.
constexpr Milliseconds flush_patience{1000};

/// UCX registers what it has to by itself.
using Places = LandingPlaces<std::unique_ptr<std::byte>>;
using Place = Places::Place;

/// What a key opens; without an rkey yet: it was asked for.
struct Key {
  ucp_rkey_h opened = nullptr;
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t running = 0;  ///< READs by it under way
  bool ending = false;        ///< no more of them
};

class UcxEndpoint;

struct Read {
  enum class State : std::uint8_t { waiting, running, done };
  UcxEndpoint* of = nullptr;
  std::uint64_t id = 0;
  Place* place = nullptr;
  RemoteSpan from{};
  std::byte* to = nullptr;
  State state = State::done;
  std::optional<Fault> fault{};
};

class UcxEndpoint final : public Endpoint {
 public:
  UcxEndpoint(std::shared_ptr<const Context> context, const Clock& clock)
      : context_(std::move(context)), library_(context_->library), clock_(clock), reads_(caps_.reads_outstanding_max) {}
  ~UcxEndpoint() override { close(); }

  Result<void> dial(const Address& address, const std::optional<Address>& source, const Token& token,
                    Clock::TimePoint deadline);

  const Caps& caps() const override { return caps_; }
  Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) override;
  Result<std::unique_ptr<Landing>> register_landing(const LandingMemory& memory) override {
    if (const auto fault = refuse_if_over()) return *fault;
    if (!memory.of_host) return Fault::not_registrable;
    return places_->add(Place::of(memory.bytes));
  }
  Result<std::size_t> post_reads(std::span<const ReadRequest> batch) override;
  Result<std::size_t> poll(std::span<Completion> into) override;
  int arm() override;
  void close() override;

 private:
  struct Said {
    Kind kind;
    Buffer header, data;
  };
  template <Kind kind>
  static ucs_status_t heard(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                            const ucp_am_recv_param_t* how);
  static void read_done(void* request, ucs_status_t status, void* which);
  [[nodiscard]] Result<void> open(const Address& address, const std::optional<Address>& source);
  [[nodiscard]] Result<void> await_welcome(Clock::TimePoint deadline);
  [[nodiscard]] std::optional<Fault> refuse_if_over() const;
  void step();
  void take_answer(const Said& said);
  void take_forget(std::uint64_t key);
  void start(Read& read);
  void finish_read(Read& read, std::optional<Fault> fault);
  void let_go(std::uint64_t key);
  void break_with(Fault fault);
  /// True: nothing lands any more.
  [[nodiscard]] bool is_flushed();
  void end_worker();
  void tell(Completion& into, std::optional<Fault> fault);
  [[nodiscard]] std::size_t outstanding() const { return posted_ - told_; }

  std::shared_ptr<const Context> context_;
  const Library& library_;
  const Clock& clock_;
  Caps caps_ = ucx::caps;
  ForkGuard fork_{};
  std::shared_ptr<Places> places_ = std::make_shared<Places>();
  std::unique_ptr<Worker> worker_;
  ucp_ep_h endpoint_ = nullptr;
  std::optional<ucs_status_t> lost_{};  // what UCX said of the connection's end
  std::vector<Said> said_;
  std::map<std::uint64_t, Key> keys_;
  std::vector<std::uint64_t> idle_;  // keys that end, by which nothing runs any more
  std::optional<Fault> broken_{};
  Clock::TimePoint broken_at_{};
  // READ number n is at n modulo the table's size; those below `told_` are over.
  std::vector<Read> reads_;
  std::uint64_t posted_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t running_ = 0;
  bool failed_ = false;  // one was told to have failed: those behind it are flushed
};

template <Kind kind>
ucs_status_t UcxEndpoint::heard(void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                const ucp_am_recv_param_t* how) {
  auto& endpoint = *static_cast<UcxEndpoint*>(self);
  const bool elsewhere = (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;  // too long to be anything of ours
  const auto head = bytes_of(header, header_bytes);
  const auto rest = bytes_of(data, elsewhere ? 0 : bytes);
  endpoint.said_.push_back({kind, Buffer(head.begin(), head.end()), Buffer(rest.begin(), rest.end())});
  return UCS_OK;
}

Result<void> UcxEndpoint::open(const Address& address, const std::optional<Address>& source) {
  auto worker = Worker::open(context_);
  if (!worker) return worker.error();
  worker_ = std::move(*worker);
  for (const auto& done :
       {worker_->on(Kind::welcome, &heard<Kind::welcome>, this), worker_->on(Kind::key, &heard<Kind::key>, this),
        worker_->on(Kind::forget, &heard<Kind::forget>, this)})
    if (!done) return done.error();
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = sockaddr_of(address);
  if (source) {
    params.field_mask |= UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
    params.local_sockaddr = sockaddr_of(*source);
  }
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxEndpoint*>(self)->lost_ = status;
  };
  params.err_handler.arg = this;
  if (const auto status = library_.ep_create(worker_->handle(), &params, &endpoint_); status != UCS_OK) {
    endpoint_ = nullptr;
    log::debug("rdma", "ucx: no connection to {}: {}", address.text(), library_.status_string(status));
    return status == UCS_ERR_NO_MEMORY ? Fault::resources_exhausted : Fault::address_unreachable;
  }
  return {};
}

Result<void> UcxEndpoint::await_welcome(Clock::TimePoint deadline) {
  while (true) {
    worker_->progress();
    for (const auto& said : std::exchange(said_, {})) {
      if (said.kind != Kind::welcome) continue;
      const auto welcome = parse<Welcome>(said.header);
      if (!welcome || be64toh(welcome->magic_number) != magic || be32toh(welcome->version_number) != version)
        return Fault::incompatible;
      switch (static_cast<Status>(be32toh(welcome->status))) {
        case Status::ok:
          return {};
        case Status::refused:
          return Fault::refused;
        case Status::no_room:
          return Fault::resources_exhausted;
        default:
          return Fault::incompatible;
      }
    }
    if (lost_) {
      log::debug("rdma", "ucx: no connection: {}", library_.status_string(*lost_));
      return *lost_ == UCS_ERR_REJECTED ? Fault::refused : Fault::address_unreachable;
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - clock_.now()).count();
    if (left <= 0) return Fault::address_unreachable;
    if (!worker_->arm()) continue;
    pollfd ready{worker_->descriptor(), POLLIN, 0};
    (void)::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, 50)));
  }
}

Result<void> UcxEndpoint::dial(const Address& address, const std::optional<Address>& source, const Token& token,
                               Clock::TimePoint deadline) {
  if (const auto opened = open(address, source); !opened) return opened.error();
  Hello hello{htobe64(magic), htobe32(version), 0, {}};
  std::memcpy(hello.token, token.bytes.data(), sizeof hello.token);
  worker_->send(endpoint_, Kind::hello, hello);
  if (const auto welcome = await_welcome(deadline); !welcome) return welcome.error();
  log::debug("rdma", "ucx: connected address={}", address.text());
  return {};
}

std::optional<Fault> UcxEndpoint::refuse_if_over() const {
  if (fork_.in_child()) return Fault::forked_child;
  if (broken_) return *broken_ == Fault::peer_gone || *broken_ == Fault::device_lost ? *broken_ : Fault::qp_in_error;
  return std::nullopt;
}

void UcxEndpoint::break_with(Fault fault) {
  if (broken_) return;
  broken_ = fault;
  broken_at_ = clock_.now();
  if (endpoint_ != nullptr) worker_->cut(std::exchange(endpoint_, nullptr));
}

Result<std::unique_ptr<Landing>> UcxEndpoint::make_landing(std::size_t bytes) {
  if (const auto fault = refuse_if_over()) return *fault;
  auto place = Place::make(bytes);
  if (!place) return Fault::resources_exhausted;
  return places_->add(std::move(place));
}

Result<std::size_t> UcxEndpoint::post_reads(std::span<const ReadRequest> batch) {
  if (const auto fault = refuse_if_over()) return *fault;
  if (batch.empty()) return std::size_t{0};
  const auto count = std::min(batch.size(), reads_.size() - outstanding());
  for (const auto& request : batch.first(count)) {
    Place* place = request.to.empty() ? nullptr : places_->find(request.to);
    if (request.from.length > caps_.read_bytes_max || request.to.size() != request.from.length ||
        (place == nullptr && !request.to.empty())) {
      break_with(Fault::access_error);
      return Fault::access_error;
    }
    auto& read = reads_[posted_++ % reads_.size()];
    read = {this, request.id, place, request.from, request.to.data(), Read::State::waiting, std::nullopt};
    if (place != nullptr) ++place->pending;
    const auto [known, asked] = keys_.try_emplace(request.from.key);
    if (asked) worker_->send(endpoint_, Kind::ask, KeyWord{htobe64(request.from.key)});
    if (known->second.opened != nullptr) start(read);
  }
  if (count == 0) return Fault::would_block;
  return count;
}

/// Once its key is known.
void UcxEndpoint::start(Read& read) {
  auto& key = keys_.at(read.from.key);
  const auto at = read.from.address - key.address;
  if (key.ending || read.from.address < key.address || at > key.length || read.from.length > key.length - at)
    return finish_read(read, Fault::access_error);
  if (read.from.length == 0) return finish_read(read, std::nullopt);
  read.state = Read::State::running;
  ++key.running;
  ++running_;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &read_done;
  params.user_data = &read;
  auto* const request = library_.get_nbx(endpoint_, read.to, read.from.length, read.from.address, key.opened, &params);
  if (!UCS_PTR_IS_PTR(request)) read_done(nullptr, UCS_PTR_RAW_STATUS(request), &read);
}

void UcxEndpoint::read_done(void* request, ucs_status_t status, void* which) {
  auto& read = *static_cast<Read*>(which);
  auto& endpoint = *read.of;
  if (request != nullptr) endpoint.library_.request_free(request);
  --endpoint.running_;
  if (const auto key = endpoint.keys_.find(read.from.key); key != endpoint.keys_.end())
    if (--key->second.running == 0 && key->second.ending) endpoint.idle_.push_back(key->first);
  std::optional<Fault> fault;
  // Flushed ones say nothing of why.
  if (status != UCS_OK) fault = fault_of(status) == Fault::peer_gone ? Fault::peer_gone : Fault::qp_in_error;
  endpoint.finish_read(read, fault);
}

void UcxEndpoint::finish_read(Read& read, std::optional<Fault> fault) {
  read.state = Read::State::done;
  read.fault = fault;
}

void UcxEndpoint::take_answer(const Said& said) {
  const auto answer = parse<KeyAnswer>(said.header);
  const auto found = answer ? keys_.find(be64toh(answer->key)) : keys_.end();
  if (found == keys_.end() || found->second.opened != nullptr) return;
  auto& key = found->second;
  const bool opened = answer->status == 0 && !said.data.empty() &&
                      library_.ep_rkey_unpack(endpoint_, said.data.data(), &key.opened) == UCS_OK;
  key.address = be64toh(answer->address);
  key.length = be32toh(answer->length);
  for (auto n = told_; n < posted_; ++n) {
    auto& read = reads_[n % reads_.size()];
    if (read.state != Read::State::waiting || read.from.key != found->first) continue;
    if (opened)
      start(read);
    else
      finish_read(read, Fault::access_error);
  }
  if (!opened) keys_.erase(found);
}

void UcxEndpoint::take_forget(std::uint64_t key) {
  const auto found = keys_.find(key);
  if (found == keys_.end()) {  // its rkey was of no use here
    worker_->send(endpoint_, Kind::forgot, KeyWord{htobe64(key)});
    return;
  }
  found->second.ending = true;
  if (found->second.running == 0) idle_.push_back(key);
}

void UcxEndpoint::let_go(std::uint64_t key) {
  const auto found = keys_.find(key);
  if (found == keys_.end() || found->second.running != 0) return;
  if (found->second.opened != nullptr) library_.rkey_destroy(found->second.opened);
  keys_.erase(found);
  worker_->send(endpoint_, Kind::forgot, KeyWord{htobe64(key)});
}

/// Lets UCX work, and does what it called us for.
void UcxEndpoint::step() {
  if (!worker_) return;
  worker_->progress();
  if (broken_) return;
  if (lost_) {
    log::debug("rdma", "ucx: connection lost: {}", library_.status_string(*lost_));
    return break_with(Fault::peer_gone);
  }
  for (const auto& said : std::exchange(said_, {})) {
    if (said.kind == Kind::key) take_answer(said);
    if (const auto word = parse<KeyWord>(said.header); word && said.kind == Kind::forget)
      take_forget(be64toh(word->key));
  }
  for (const auto key : std::exchange(idle_, {})) let_go(key);
}

bool UcxEndpoint::is_flushed() {
  if (!broken_) return false;
  if (!worker_) return true;
  if (running_ == 0 && !worker_->is_cutting()) return true;
  if (clock_.now() - broken_at_ <= flush_patience) return false;
  // Without its worker nothing can land any more, so that the landings are their owner's again.
  end_worker();
  return true;
}

void UcxEndpoint::end_worker() {
  if (!worker_) return;
  for (auto& [name, key] : keys_)
    if (key.opened != nullptr && key.running == 0) library_.rkey_destroy(key.opened);
  keys_.clear();
  worker_.reset();
  running_ = 0;
}

void UcxEndpoint::tell(Completion& into, std::optional<Fault> fault) {
  auto& read = reads_[told_++ % reads_.size()];
  into = {read.id, fault};
  if (read.place != nullptr) places_->done(*read.place);
  read.place = nullptr;
}

Result<std::size_t> UcxEndpoint::poll(std::span<Completion> into) {
  if (fork_.in_child()) return Fault::forked_child;
  step();
  std::size_t count = 0;
  while (count < into.size() && outstanding() > 0) {
    const auto& read = reads_[told_ % reads_.size()];
    if (!failed_ && read.state == Read::State::done) {
      const auto fault = read.fault;
      failed_ = fault.has_value();
      if (failed_) break_with(*fault);
      tell(into[count++], fault);
    } else if (is_flushed()) {
      failed_ = true;
      tell(into[count++], Fault::qp_in_error);
    } else {
      break;
    }
  }
  if (count == 0 && broken_ && outstanding() == 0) return *broken_;
  return count;
}

int UcxEndpoint::arm() {
  if (fork_.in_child() || !worker_) return -1;
  // Not for ever: who is always busy is woken at once.
  for (int n = 0; n < 8; ++n) {
    if (worker_->arm()) return worker_->descriptor();
    step();
  }
  (void)library_.worker_signal(worker_->handle());
  return worker_->descriptor();
}

void UcxEndpoint::close() {
  if (fork_.in_child()) {
    (void)worker_.release();
    return;
  }
  break_with(Fault::peer_gone);
  while (!is_flushed()) step();
  end_worker();
  places_->end();
  posted_ = told_ = 0;
  failed_ = false;
  std::fill(reads_.begin(), reads_.end(), Read{});
}

}  // namespace

Result<std::unique_ptr<Endpoint>> connect(std::shared_ptr<const Context> context, const std::string& address,
                                          const Token& token, const ConnectOptions& options, const Clock& clock) {
  const auto place = Address::parse(address);
  if (!place) return Fault::address_unreachable;
  std::optional<Address> source;
  if (!options.source.empty()) {
    source = Address::parse(options.source);
    if (!source) return Fault::address_unreachable;
  }
  auto endpoint = std::make_unique<UcxEndpoint>(std::move(context), clock);
  if (const auto done = endpoint->dial(*place, source, token, clock.now() + options.timeout); !done)
    return done.error();
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace ciuic::rdma::ucx
