// Faults at the seam, by seed or by script. Production code knows nothing of it.
#include "tests/conformance/support/faulty_provider.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "transport/rdma/memory/callers_memory.h"

namespace ciuic::testing {

namespace {

class FaultyEndpoint final : public Endpoint {
 public:
  FaultyEndpoint(std::unique_ptr<Endpoint> inner, std::shared_ptr<FaultState> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  const Caps& caps() const override { return inner_->caps(); }
  Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) override { return inner_->make_landing(bytes); }
  Result<std::unique_ptr<Landing>> register_landing(const LandingMemory& memory) override {
    auto landing = inner_->register_landing(memory);
    if (landing) callers_.push_back(rdma::CallersMemory::make(memory));
    return landing;
  }
  Mapper* mapper() override { return inner_->mapper(); }

  Result<std::size_t> post_reads(std::span<const ReadRequest> batch) override {
    if (broken_) return *broken_ == Fault::peer_gone ? Fault::peer_gone : Fault::qp_in_error;
    std::size_t taken = 0;
    for (const auto& request : batch) {
      if (pending_.size() >= caps().reads_outstanding_max) break;
      Pending one{request, {}, {}, 0, {}, false, false};
      one.step = faults_->script.take();
      auto& state = *faults_;
      if (state.hits(state.plan.delay, "delay"))
        one.polls_left = 1 + static_cast<int>(state.dice() % static_cast<unsigned>(state.plan.delay_polls_max));
      if (state.hits(state.plan.torn, "torn") && request.from.length > 1)
        one.tear_after = 1 + static_cast<std::uint32_t>(state.dice() % (request.from.length - 1));
      if (one.step && one.step->tear_after) one.tear_after = std::min(*one.step->tear_after, request.from.length);
      if (state.hits(state.plan.lost, "lost")) one.lost = true;
      if (state.hits(state.plan.revoke_in_flight, "revoke_in_flight")) one.revoke = true;
      if (one.tear_after && *one.tear_after > 0) {
        // The first bytes are of now; the rest will be of the time when it completes.
        one.early.resize(*one.tear_after);
        const auto early = request.from.sub(0, *one.tear_after);
        if (!early || run({*early, one.early, 0})) one.tear_after.reset();
      }
      pending_.push_back(std::move(one));
      ++taken;
    }
    if (taken == 0 && !batch.empty()) return Fault::would_block;
    return taken;
  }

  Result<std::size_t> poll(std::span<Completion> into) override {
    std::size_t count = 0;
    while (count < into.size() && !pending_.empty()) {
      auto& one = pending_.front();
      if (!broken_ && one.lost) break;
      if (!broken_ && std::exchange(one.revoke, false) && faults_->on_revoke) {
        // The broker gets time to act before the READ is executed.
        faults_->on_revoke();
        one.polls_left = faults_->plan.delay_polls_max;
      }
      if (!broken_ && one.polls_left > 0) {
        --one.polls_left;
        break;
      }
      into[count++] = {one.request.id, broken_ ? std::optional(Fault::qp_in_error) : execute(one)};
      pending_.pop_front();
    }
    if (count > 0 || (!pending_.empty() && !broken_)) return count;
    if (broken_) return *broken_;
    return inner_->poll(into);
  }

  void close() override {
    pending_.clear();
    inner_->close();
    if (!broken_) broken_ = Fault::peer_gone;
  }

 private:
  struct Pending {
    ReadRequest request;
    std::optional<Script::Step> step;
    std::optional<std::uint32_t> tear_after;
    int polls_left;
    Buffer early;
    bool lost;
    bool revoke;
  };

  /// A READ of the inner endpoint, to its end.
  std::optional<Fault> run(const ReadRequest& request) {
    const auto posted = inner_->post_reads(std::span(&request, 1));
    if (!posted) return posted.error();
    std::array<Completion, 1> completion;
    while (true) {
      const auto got = inner_->poll(completion);
      if (!got) return got.error();
      if (*got == 1) return completion[0].fault;
    }
  }

  std::optional<Fault> execute(Pending& one) {
    auto& state = *faults_;
    if (one.step && one.step->before) one.step->before();
    auto fault = one.step ? one.step->complete_with : std::nullopt;
    if (!fault && state.hits(state.plan.error, "error")) fault = Fault::access_error;
    if (!fault && state.hits(state.plan.disconnect, "disconnect")) fault = Fault::peer_gone;
    if (fault) return break_with(*fault);

    Buffer before;
    std::size_t keep_from = one.request.to.size();  // from here on the destination keeps what it had
    if (one.step && one.step->deliver_only)
      keep_from = std::min<std::size_t>(*one.step->deliver_only, keep_from);
    else if (keep_from > 0 && state.hits(state.plan.short_success, "short_success"))
      keep_from = state.dice() % keep_from;
    auto to = one.request.to;
    for (const auto& each : callers_)
      if (const auto reached = each->reach(to)) to = *reached;
    if (keep_from < to.size()) before.assign(to.begin(), to.end());
    if (const auto failed = run({one.request.from, one.request.to, 0})) return break_with(*failed);
    if (one.tear_after) std::copy(one.early.begin(), one.early.end(), to.begin());
    for (std::size_t at = keep_from; at < before.size(); ++at) to[at] = before[at];
    if (!to.empty() && state.hits(state.plan.garbage, "garbage")) {
      // Whole words: Kafka's checksum leaves the base offset out, so that a flip of its lowest bits alone is seen by
      // nobody.
      const auto at = state.dice() % to.size() / 8 * 8;
      for (auto i = at; i < std::min(at + 8, to.size()); ++i) to[i] = static_cast<std::byte>(state.dice());
    }
    return std::nullopt;
  }
  std::optional<Fault> break_with(Fault fault) {
    broken_ = fault;
    inner_->close();
    return fault;
  }

  std::unique_ptr<Endpoint> inner_;
  std::shared_ptr<FaultState> faults_;
  std::deque<Pending> pending_;
  std::vector<std::shared_ptr<rdma::CallersMemory>> callers_;
  std::optional<Fault> broken_;
};

class FaultyProvider final : public Provider {
 public:
  FaultyProvider(std::shared_ptr<Provider> inner, std::shared_ptr<FaultState> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}
  std::string_view name() const override { return inner_->name(); }
  const Caps& caps() const override { return inner_->caps(); }
  bool crosses_hosts() const override { return inner_->crosses_hosts(); }
  Result<std::shared_ptr<Domain>> open_domain(std::string principal) override {
    return inner_->open_domain(std::move(principal));
  }
  Result<std::unique_ptr<Listener>> listen(const ListenOptions& options) override { return inner_->listen(options); }
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token,
                                            const ConnectOptions& options) override {
    auto endpoint = inner_->connect(address, token, options);
    if (!endpoint) return endpoint.error();
    return std::unique_ptr<Endpoint>(std::make_unique<FaultyEndpoint>(std::move(*endpoint), faults_));
  }

 private:
  std::shared_ptr<Provider> inner_;
  std::shared_ptr<FaultState> faults_;
};

}  // namespace

std::shared_ptr<Provider> make_faulty(std::shared_ptr<Provider> inner, std::shared_ptr<FaultState> faults) {
  return std::make_shared<FaultyProvider>(std::move(inner), std::move(faults));
}

}  // namespace ciuic::testing
