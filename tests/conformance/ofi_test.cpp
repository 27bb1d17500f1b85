// What only ofi promises, over each of libfabric's providers with connections that this host has: a peer that speaks
// libfabric by itself and keeps no rule changes nothing, whatever kinds.cpp says of worse ones. TCP is there wherever
// the library is; verbs needs two devices (tools/rdma-vm/run).
#include <endian.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <csignal>
#include <optional>
#include <thread>

#include "tests/conformance/support/pair.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/ofi/ends.h"
#include "transport/rdma/ofi/protocol.h"

namespace ciuic::testing {
namespace {

std::vector<Subject> ofi_subjects() {
  std::vector<Subject> found;
  for (auto& subject : all_subjects())
    if (subject.name.starts_with("ofi") && !subject.name.ends_with("_rdm")) found.push_back(subject);
  return found;
}

/// Any private data, any request.
class OfiAttacker {
 public:
  explicit OfiAttacker(const std::string& address) {
    const auto at = address.find("://");
    kind_ = ofi::find_kind(address.substr(0, at));
    device_ =
        ofi::open_device(*library_, *kind_, ofi::Side::connecting, *Address::parse(address.substr(at + 3)), {}).value();
    domain_ = ofi::open_domain(*device_).value();
    events_ = ofi::open_event_queue(*device_).value();
    completions_ = ofi::open_completions(*domain_, 64).value();
    endpoint_ = ofi::open_endpoint(*domain_, *device_->info, *events_, *completions_).value();
    own_ = ofi::register_memory(*device_, *domain_, nullptr, memory_, ofi::Use::landing).value();
  }
  static Buffer hello(const Token& token) {
    ofi::Hello hello{htobe64(ofi::magic), htobe32(ofi::version), 0, {}};
    std::memcpy(hello.token, token.bytes.data(), sizeof hello.token);
    return to_buffer(std::as_bytes(std::span(&hello, 1)));
  }
  /// Ok: in. Nothing: no answer of ours.
  std::optional<ofi::Status> connect(Bytes data) {
    if (fi_connect(endpoint_.get(), device_->info->dest_addr, data.data(), data.size()) != 0) return std::nullopt;
    const auto event = next();
    if (!event) return std::nullopt;
    const auto answer = ofi::parse<ofi::Welcome>(event->data);
    if (!answer) return std::nullopt;
    return static_cast<ofi::Status>(be32toh(answer->status));
  }
  void write(const RemoteSpan& where) {
    memory_.fill(std::byte{0x66});
    (void)fi_write(endpoint_.get(), memory_.data(), memory_.size(), fi_mr_desc(own_.get()), 0, where.address, where.key,
                   nullptr);
    settle();
  }
  void send() {
    (void)fi_send(endpoint_.get(), memory_.data(), memory_.size(), fi_mr_desc(own_.get()), 0, nullptr);
    settle();
  }
  /// The broker cut us within five seconds.
  bool cut() { return next().has_value(); }

 private:
  /// Until the request is done, however it ended.
  void settle() {
    for (int i = 0; i < 200; ++i) {
      fi_cq_entry done{};
      const auto got = fi_cq_read(completions_.get(), &done, 1);
      if (got != -FI_EAGAIN) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::optional<ofi::Event> next() {
    for (int i = 0; i < 5000; ++i) {
      if (auto event = ofi::next_event(*library_, *events_)) return event;
      fi_cq_entry done{};
      fi_cq_err_entry failure{};
      if (fi_cq_read(completions_.get(), &done, 1) == -FI_EAVAIL) (void)fi_cq_readerr(completions_.get(), &failure, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return std::nullopt;
  }

  const ofi::Library* library_ = ofi::Library::load().value();
  const ofi::Kind* kind_ = nullptr;
  alignas(4096) std::array<std::byte, 4096> memory_{};
  std::shared_ptr<const ofi::Device> device_;
  ofi::Owned<fid_domain> domain_;
  ofi::Owned<fid_mr> own_;
  ofi::Owned<fid_eq> events_;
  ofi::Owned<fid_cq> completions_;
  ofi::Owned<fid_ep> endpoint_;
};

class Ofi : public ::testing::TestWithParam<Subject> {
 protected:
  Ofi() : pair_(GetParam()), mallory_(pair_.provider->open_domain("User:mallory").value()) {
    decoy_region_.emplace(mallory_->expose(decoy_->part(decoy_, 0, 8192)).value());
  }
  void TearDown() override {
    for (std::size_t i = 0; i < pair_.memory->bytes().size(); ++i)
      ASSERT_EQ(pair_.memory->bytes()[i], Pair::pattern(i)) << i;
    for (const auto byte : decoy_->bytes()) ASSERT_EQ(byte, std::byte{0});
    const auto bytes = pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 4096));
    ASSERT_TRUE(bytes) << name(bytes.error());
    EXPECT_TRUE(pair_.holds(*bytes, 0));
  }
  [[nodiscard]] std::string address() const { return pair_.listener->address(); }
  std::unique_ptr<OfiAttacker> inside() {
    auto attacker = std::make_unique<OfiAttacker>(address());
    EXPECT_EQ(attacker->connect(OfiAttacker::hello(pair_.admitted(66, mallory_))), ofi::Status::ok);
    return attacker;
  }

  Pair pair_;
  std::shared_ptr<Domain> mallory_;
  std::shared_ptr<Memfd> decoy_ = std::make_shared<Memfd>(8192);
  std::optional<Region> decoy_region_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Ofi);

/// libfabric's cache of registrations makes such regions writable: it must be off.
TEST_P(Ofi, WritesToARegionOfItsOwnChangeNothing) { inside()->write(decoy_region_->remote()); }
TEST_P(Ofi, WritesToAnotherPrincipalsRegionChangeNothing) { inside()->write(pair_.region->remote()); }

TEST_P(Ofi, WhoSendsAnythingIsCut) {
  auto attacker = inside();
  attacker->send();
  EXPECT_TRUE(attacker->cut());
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == 1; }));
}

/// What is revoked while a READ is under way differs between providers; this they all keep.
TEST_P(Ofi, AReadPostedAfterRevocationDeliversNothing) {
  auto endpoint = pair_.connect(pair_.admitted(2, mallory_)).value();
  const auto span = *decoy_region_->remote().sub(0, 64);
  ASSERT_TRUE(pair_.read(*endpoint, span));
  ASSERT_TRUE(decoy_region_->revoke());
  EXPECT_TRUE(pair_.read(*endpoint, span).has_error());
  EXPECT_TRUE(pair_.untouched);
}

TEST_P(Ofi, ConnectionRequestsThatAreNotOursAreRejected) {
  const auto good = OfiAttacker::hello(pair_.admitted(66, mallory_));
  const auto changed = [&](std::size_t at) {
    auto copy = good;
    copy[at] ^= std::byte{1};
    return copy;
  };
  const std::pair<Buffer, ofi::Status> pleas[] = {{Buffer(1), ofi::Status::incompatible},
                                                  {changed(0), ofi::Status::incompatible},
                                                  {changed(11), ofi::Status::incompatible},
                                                  {changed(20), ofi::Status::refused}};
  for (const auto& [data, expected] : pleas) EXPECT_EQ(OfiAttacker(address()).connect(data), expected);
  EXPECT_EQ(OfiAttacker(address()).connect(good), ofi::Status::ok);
  EXPECT_EQ(OfiAttacker(address()).connect(good), ofi::Status::refused) << "a token is good once";
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == 1; }));
}

/// Who needs no token yet: connects to the port, and begins a connection request that he does not end.
TEST_P(Ofi, AStrangerWhoSaysHalfASentenceHoldsNobodyUp) {
  const auto where = address();
  auto to = *Address::parse(where.substr(where.find("://") + 3));
  std::vector<UniqueFd> strangers;
  // Nothing, less than libfabric's header, and the header of a request with 48 bytes behind it, in its tcp's form.
  constexpr std::array<std::uint8_t, 32> header{3, 0, 0, 48};
  for (const std::size_t length : {std::size_t{0}, std::size_t{5}, header.size()}) {
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(strangers.back().get(), to.get(), sizeof(sockaddr_in)) != 0)
      GTEST_SKIP() << GetParam().name << " does not listen by a socket";
    ASSERT_EQ(::send(strangers.back().get(), header.data(), length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
  }
  const auto began = system_clock().now();
  EXPECT_TRUE(pair_.connect());
  EXPECT_TRUE(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64)));
  EXPECT_LT(system_clock().now() - began, std::chrono::seconds(2));
}

constexpr std::array crashes_and_ends{SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
std::array<void*, crashes_and_ends.size()> handlers_now() {
  std::array<void*, crashes_and_ends.size()> handlers{};
  for (std::size_t i = 0; i < handlers.size(); ++i) {
    struct sigaction now {};
    ::sigaction(crashes_and_ends[i], nullptr, &now);
    handlers[i] = reinterpret_cast<void*>(now.sa_handler);
  }
  return handlers;
}
const auto handlers_before_main = handlers_now();

/// Libraries that libfabric brings along take the handlers of crashes for themselves.
TEST_P(Ofi, TheProcessKeepsItsSignalHandlers) { EXPECT_EQ(handlers_now(), handlers_before_main); }

/// Where the broker's CPU serves READs it sleeps while there are none.
TEST_P(Ofi, AnIdleConnectionCostsTheBrokerNothing) {
  const auto spent = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  };
  ASSERT_TRUE(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64)));
  const auto before = spent();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(spent() - before, 50'000) << "microseconds of half a second";
}

INSTANTIATE_TEST_SUITE_P(Every, Ofi, ::testing::ValuesIn(ofi_subjects()),
                         [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace ciuic::testing
