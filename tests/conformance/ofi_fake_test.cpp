// What no provider of libfabric's on this host does, and those on hosts with other cards do: READs that complete in any
// order, posts that never succeed, regions that belong to an endpoint. libfabric's objects are tables of functions, so
// that a test can be a provider.
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <deque>
#include <vector>

#include "transport/rdma/ofi/line.h"

namespace ciuic::testing {
namespace {

using namespace rdma;
using namespace std::chrono_literals;

constexpr ofi::Kind kind{"fake", {.read_bytes_max = 1U << 20, .reads_outstanding_max = 8}, false, ""};

std::shared_ptr<ofi::Device> device_with(std::uint64_t mr_mode) {
  const auto* const library = ofi::Library::load().value();
  ofi::Info info(library->fi_dupinfo(nullptr), ofi::InfoCloser{library});
  info->domain_attr->mr_mode = static_cast<int>(mr_mode);
  info->tx_attr->size = 8;
  info->ep_attr->max_msg_size = 1U << 20;
  return std::make_shared<ofi::Device>(ofi::Device{*library, kind, std::move(info), nullptr});
}

/// A card that completes READs as the test says.
struct Card {
  Card() {
    completing.size = sizeof completing;
    completing.read = [](fid_cq* of, void* into, std::size_t) -> ssize_t {
      auto& self = *static_cast<Card*>(of->fid.context);
      if (self.completions.empty()) return -FI_EAGAIN;
      if (self.completions.front().second != 0) return -FI_EAVAIL;
      static_cast<fi_cq_entry*>(into)->op_context = self.completions.front().first;
      self.completions.pop_front();
      return 1;
    };
    completing.readerr = [](fid_cq* of, fi_cq_err_entry* into, std::uint64_t) -> ssize_t {
      auto& self = *static_cast<Card*>(of->fid.context);
      into->op_context = self.completions.front().first;
      into->err = self.completions.front().second;
      self.completions.pop_front();
      return 1;
    };
    reading.size = sizeof reading;
    reading.read = [](fid_ep* of, void*, std::size_t, void*, fi_addr_t, std::uint64_t, std::uint64_t,
                      void* context) -> ssize_t {
      auto& self = *static_cast<Card*>(of->fid.context);
      if (self.busy) return -FI_EAGAIN;
      self.posted.push_back(context);
      return 0;
    };
    queue.fid.context = endpoint.fid.context = this;
    queue.ops = &completing;
    endpoint.rma = &reading;
  }
  void complete(std::size_t read, int error = 0) { completions.emplace_back(posted.at(read), error); }

  fi_ops_cq completing{};
  fi_ops_rma reading{};
  fid_cq queue{};
  fid_ep endpoint{};
  bool busy = false;
  bool ended = false;
  std::vector<void*> posted;
  std::deque<std::pair<void*, int>> completions;
};

class FakeLine final : public ofi::Line {
 public:
  explicit FakeLine(Card& card) : Line(device_with(0), nullptr), card_(card) {}
  std::optional<Fault> over() override { return std::nullopt; }
  void cut() override { end(); }
  void end() override { card_.ended = true; }
  int arm() override { return -1; }
  void leave_to_parent() override {}
  fid_cq& completions() const override { return card_.queue; }
  fid_ep* endpoint() const override { return card_.ended ? nullptr : &card_.endpoint; }

 private:
  Card& card_;
};

class OfiFake : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ofi::Library::load()) GTEST_SKIP() << "libfabric is not on this host";
    endpoint_ = ofi::read_by(std::make_unique<FakeLine>(card_), clock_);
    landing_ = endpoint_->make_landing(4096).value();
  }
  void post(std::uint64_t count) {
    for (std::uint64_t id = 0; id < count; ++id) {
      const ReadRequest request{{0, 64, 1}, landing_->bytes().subspan(id * 64, 64), id};
      ASSERT_TRUE(endpoint_->post_reads(std::span(&request, 1)));
    }
  }
  /// What is told now, as `id` or `id:fault`.
  std::vector<std::string> told() {
    std::vector<std::string> words;
    std::array<Completion, 3> some;
    for (auto got = endpoint_->poll(some); got && *got > 0; got = endpoint_->poll(some))
      for (std::size_t i = 0; i < *got; ++i)
        words.push_back(std::to_string(some[i].id) +
                        (some[i].fault ? ":" + std::string(rdma::name(*some[i].fault)) : std::string()));
    return words;
  }

  ManualClock clock_;
  Card card_;
  std::unique_ptr<Endpoint> endpoint_;
  std::unique_ptr<Landing> landing_;
};

using Words = std::vector<std::string>;

TEST_F(OfiFake, ReadsThatCompleteInAnyOrderAreToldInTheOrderPosted) {
  for (int round = 0; round < 5; ++round) {
    card_.posted.clear();
    post(4);
    card_.complete(2);
    card_.complete(3);
    EXPECT_EQ(told(), Words{});
    card_.complete(0);
    EXPECT_EQ(told(), Words{"0"});
    card_.complete(1);
    EXPECT_EQ(told(), (Words{"1", "2", "3"}));
  }
}

TEST_F(OfiFake, AFailureWaitsForThoseBeforeItAndEndsThoseBehind) {
  post(4);
  card_.complete(3);
  card_.complete(1, FI_EACCES);
  EXPECT_EQ(told(), Words{});
  card_.complete(0);
  EXPECT_EQ(told(), (Words{"0", "1:access_error", "2:qp_in_error", "3:qp_in_error"}));
  EXPECT_TRUE(card_.ended) << "nothing lands any more";
  std::array<Completion, 1> none;
  EXPECT_TRUE(endpoint_->poll(none).has_error());
}

TEST_F(OfiFake, AFailureDoesNotWaitForEverForOneThatIsLost) {
  post(2);
  card_.complete(1, FI_EIO);
  EXPECT_EQ(told(), Words{});
  clock_.advance(2s);
  EXPECT_EQ(told(), (Words{"0:qp_in_error", "1:qp_in_error"}));
  EXPECT_TRUE(card_.ended);
}

TEST_F(OfiFake, ACompletionOfNothingThatWasPostedIsNone) {
  post(1);
  int other = 0;
  card_.completions.emplace_back(&other, 0);
  EXPECT_EQ(told(), Words{});
  card_.complete(0);
  EXPECT_EQ(told(), Words{"0"});
}

TEST_F(OfiFake, AWayThatTakesNoReadAnyMoreIsGivenUp) {
  card_.busy = true;
  const ReadRequest request{{0, 64, 1}, landing_->bytes().subspan(0, 64), 1};
  EXPECT_EQ(endpoint_->post_reads(std::span(&request, 1)).error(), Fault::would_block);
  clock_.advance(500ms);
  EXPECT_EQ(endpoint_->post_reads(std::span(&request, 1)).error(), Fault::would_block);
  clock_.advance(2s);
  EXPECT_EQ(endpoint_->post_reads(std::span(&request, 1)).error(), Fault::peer_gone);
  EXPECT_TRUE(card_.ended);
}

/// A domain whose regions belong to an endpoint, as Slingshot's do.
struct Registrar {
  Registrar() {
    registering.size = sizeof registering;
    registering.reg = [](fid* of, const void*, std::size_t, std::uint64_t rights, std::uint64_t, std::uint64_t,
                         std::uint64_t, fid_mr** made, void*) {
      auto& self = *static_cast<Registrar*>(of->context);
      self.done.push_back("register");
      self.access = rights;
      *made = &self.region;
      return 0;
    };
    ending.size = sizeof ending;
    ending.close = [](fid* of) {
      static_cast<Registrar*>(of->context)->done.push_back("close");
      return 0;
    };
    ending.bind = [](fid* of, fid* to, std::uint64_t) {
      auto& self = *static_cast<Registrar*>(of->context);
      self.done.push_back(to == &self.endpoint.fid ? "bind" : "bind to another");
      return 0;
    };
    ending.control = [](fid* of, int command, void*) {
      auto& self = *static_cast<Registrar*>(of->context);
      self.done.push_back(command == FI_ENABLE ? "enable" : "control");
      if (self.enables != 0) return self.enables;
      self.region.key = 0xFEDCBA9876543210ULL;
      return 0;
    };
    domain.fid.context = region.fid.context = this;
    domain.mr = &registering;
    region.fid.ops = &ending;
    region.key = FI_KEY_NOTAVAIL;
  }
  fi_ops_mr registering{};
  fi_ops ending{};
  fid_domain domain{};
  fid_ep endpoint{};
  fid_mr region{};
  int enables = 0;
  std::uint64_t access = 0;
  Words done;
};

TEST(OfiFakeRegions, OfAnEndpointAreBoundAndEnabledBeforeTheirKeyIsTold) {
  if (!ofi::Library::load()) GTEST_SKIP() << "libfabric is not on this host";
  const auto device = device_with(FI_MR_ENDPOINT | FI_MR_PROV_KEY);
  Registrar registrar;
  alignas(4096) std::array<std::byte, 4096> memory{};
  {
    const auto region =
        ofi::register_memory(*device, registrar.domain, &registrar.endpoint, memory, ofi::Use::exposed).value();
    EXPECT_EQ(registrar.done, (Words{"register", "bind", "enable"}));
    EXPECT_EQ(registrar.access, std::uint64_t{FI_REMOTE_READ}) << "for reading, and nothing else";
    EXPECT_EQ(ofi::span_of(*device, *region, memory), (RemoteSpan{0, 4096, 0xFEDCBA9876543210ULL}));
  }
  EXPECT_EQ(registrar.done.back(), "close");
}

TEST(OfiFakeRegions, ThatCannotBeEnabledAreEndedAndRefused) {
  if (!ofi::Library::load()) GTEST_SKIP() << "libfabric is not on this host";
  const auto device = device_with(FI_MR_ENDPOINT | FI_MR_PROV_KEY);
  Registrar registrar;
  registrar.enables = -FI_EINVAL;
  std::array<std::byte, 64> memory{};
  EXPECT_EQ(ofi::register_memory(*device, registrar.domain, &registrar.endpoint, memory, ofi::Use::exposed).error(),
            Fault::not_registrable);
  EXPECT_EQ(registrar.done, (Words{"register", "bind", "enable", "close"}));
}

TEST(OfiFakeRegions, WithAKeyThatDoesNotFitASpanHaveNone) {
  if (!ofi::Library::load()) GTEST_SKIP() << "libfabric is not on this host";
  Registrar registrar;
  std::array<std::byte, 64> memory{};
  EXPECT_EQ(ofi::span_of(*device_with(FI_MR_PROV_KEY), registrar.region, memory), std::nullopt);
}

}  // namespace
}  // namespace ciuic::testing
