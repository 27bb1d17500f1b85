// What only ofi promises over endpoints without connections, and what libfabric does not keep anybody from there:
// docs/fabric.md says it as it is seen here. Peers speak libfabric by themselves and keep no rule.
#include <endian.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <optional>
#include <thread>

#include "tests/conformance/support/pair.h"
#include "transport/base/unique_fd.h"
#include "transport/rdma/ofi/line.h"
#include "transport/rdma/ofi/protocol.h"

namespace ciuic::testing {
namespace {

using namespace std::chrono_literals;

std::vector<Subject> rdm_subjects() {
  std::vector<Subject> found;
  for (auto& subject : all_subjects())
    if (subject.name.starts_with("ofi") && subject.name.ends_with("_rdm")) found.push_back(subject);
  return found;
}

Address place_in(const std::string& address) { return *Address::parse(address.substr(address.find("://") + 3)); }

/// The socket beside the endpoint, on which anything may be said.
class Caller {
 public:
  explicit Caller(const std::string& address) {
    auto to = place_in(address);
    socket_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{10, 0};
    (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::connect(socket_.get(), to.get(), sizeof(sockaddr_in)) != 0) std::abort();
  }
  void say(Bytes bytes) { (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  std::optional<ofi::RdmWelcome> hear() {
    std::array<std::byte, sizeof(ofi::RdmWelcome)> heard{};
    if (::recv(socket_.get(), heard.data(), heard.size(), MSG_WAITALL) != static_cast<ssize_t>(heard.size()))
      return std::nullopt;
    return ofi::parse<ofi::RdmWelcome>(heard);
  }
  bool hears_the_end() {
    std::byte byte{};
    const auto got = ::recv(socket_.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }

 private:
  UniqueFd socket_;
};

/// An endpoint of its own, used as it likes.
class Attacker {
 public:
  explicit Attacker(const std::string& address) {
    kind_ = ofi::find_kind(address.substr(0, address.find("://")));
    device_ = ofi::open_device(*library_, *kind_, ofi::Side::connecting, place_in(address), {}).value();
    domain_ = ofi::open_domain(*device_).value();
    reach_ = ofi::Reach::open(*device_, *domain_, 64).value();
    if ((device_->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0)
      own_ = ofi::register_memory(*device_, *domain_, reach_.endpoint.get(), memory, ofi::Use::landing).value();
  }
  ofi::RdmHello hello(const Token& token) const {
    ofi::RdmHello hello{htobe64(ofi::rdm_magic),
                        htobe32(ofi::version),
                        htobe32(static_cast<std::uint32_t>(reach_.name.size())),
                        {},
                        {}};
    std::memcpy(hello.token, token.bytes.data(), sizeof hello.token);
    std::memcpy(hello.name, reach_.name.data(), reach_.name.size());
    return hello;
  }
  void meet(const ofi::RdmWelcome& welcome) { peer_ = reach_.meet(*ofi::name_in(welcome)).value(); }
  /// Whether it says that it was done. It may still do harm if not.
  bool read(const RemoteSpan& span) {
    memory.fill(std::byte{0xEE});
    return work([&] {
      return fi_read(reach_.endpoint.get(), memory.data(), span.length, desc(), peer_, span.address, span.key,
                     &context_);
    });
  }
  bool write(const RemoteSpan& span) {
    memory.fill(std::byte{0x66});
    return work([&] {
      return fi_write(reach_.endpoint.get(), memory.data(), span.length, desc(), peer_, span.address, span.key,
                      &context_);
    });
  }
  bool send(std::size_t bytes) {
    return work([&] { return fi_send(reach_.endpoint.get(), memory.data(), bytes, desc(), peer_, &context_); });
  }
  [[nodiscard]] bool is_untouched() const {
    return std::all_of(memory.begin(), memory.end(), [](std::byte byte) { return byte == std::byte{0xEE}; });
  }

  alignas(4096) std::array<std::byte, 65536> memory{};

 private:
  void* desc() { return own_ ? fi_mr_desc(own_.get()) : nullptr; }
  template <class Post>
  bool work(Post post) {
    bool posted = false;
    for (const auto until = system_clock().now() + 3s; system_clock().now() < until;) {
      if (!posted) {
        const auto error = post();
        if (error != 0 && error != -FI_EAGAIN) return false;
        posted = error == 0;
      }
      fi_cq_entry done{};
      const auto got = fi_cq_read(reach_.completions.get(), &done, 1);
      if (got == 1) return true;
      if (got == -FI_EAVAIL) {
        fi_cq_err_entry failure{};
        (void)fi_cq_readerr(reach_.completions.get(), &failure, 0);
        return false;
      }
      std::this_thread::sleep_for(100us);
    }
    return false;
  }

  const ofi::Library* library_ = ofi::Library::load().value();
  const ofi::Kind* kind_ = nullptr;
  std::shared_ptr<const ofi::Device> device_;
  ofi::Owned<fid_domain> domain_;
  ofi::Owned<fid_mr> own_;
  ofi::Reach reach_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  fi_context2 context_{};
};

template <class Message>
Bytes bytes_of(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

class OfiRdm : public ::testing::TestWithParam<Subject> {
 protected:
  OfiRdm() : pair_(GetParam()), mallory_(pair_.provider->open_domain("User:mallory").value()) {
    decoy_region_.emplace(mallory_->expose(decoy_->part(decoy_, 0, 8192)).value());
  }
  void TearDown() override {
    for (std::size_t i = 0; i < pair_.memory->bytes().size(); ++i)
      ASSERT_EQ(pair_.memory->bytes()[i], Pair::pattern(i)) << i;
    for (const auto byte : decoy_->bytes()) ASSERT_EQ(byte, std::byte{0});
    expect_reading();
  }
  /// The broker serves those who are in.
  void expect_reading() {
    const auto bytes = pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 4096));
    ASSERT_TRUE(bytes) << name(bytes.error());
    EXPECT_TRUE(pair_.holds(*bytes, 0));
  }
  [[nodiscard]] std::string address() const { return pair_.listener->address(); }
  /// Of a principal's endpoint, as its reader learns it.
  ofi::RdmWelcome let_in(Attacker& attacker, Caller& caller, const std::shared_ptr<Domain>& domain) {
    const auto hello = attacker.hello(pair_.admitted(66, domain));
    caller.say(bytes_of(hello));
    const auto welcome = caller.hear();
    EXPECT_TRUE(welcome && welcome->status == 0);
    attacker.meet(*welcome);
    return *welcome;
  }

  Pair pair_;
  std::shared_ptr<Domain> mallory_;
  std::shared_ptr<Memfd> decoy_ = std::make_shared<Memfd>(8192);
  std::optional<Region> decoy_region_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OfiRdm);

TEST_P(OfiRdm, WritesChangeNothing) {
  for (const auto& span : {*decoy_region_->remote().sub(0, 4096), *pair_.region->remote().sub(0, 4096)}) {
    Attacker attacker(address());
    Caller caller(address());
    (void)let_in(attacker, caller, mallory_);
    (void)attacker.write(span);
    for (const auto byte : decoy_->bytes()) ASSERT_EQ(byte, std::byte{0});
  }
}

/// Short ones: those of several parts end the broker's process when the endpoint closes, with libfabric 2.6.
TEST_P(OfiRdm, MessagesThatNobodyWantsHoldNobodyUp) {
  Attacker attacker(address());
  Caller caller(address());
  (void)let_in(attacker, caller, mallory_);
  for (const std::size_t length : {1U, 64U, 4096U, 4096U}) (void)attacker.send(length);
  expect_reading();
}

/// Nobody asks a reader for a token where he reads: an endpoint without connections is open to whoever knows its name
/// and a key. Where this fails, docs/fabric.md may promise more.
TEST_P(OfiRdm, WhoeverKnowsNameAndKeyReadsWithoutAToken) {
  ofi::RdmWelcome welcome{};
  {
    Attacker reader(address());
    Caller caller(address());
    welcome = let_in(reader, caller, pair_.domain);
  }
  Attacker stranger(address());
  stranger.meet(welcome);
  ASSERT_TRUE(stranger.read(*pair_.region->remote().sub(0, 4096)));
  EXPECT_TRUE(pair_.holds({stranger.memory.begin(), stranger.memory.begin() + 4096}, 0));
}

TEST_P(OfiRdm, AWrongKeyOpensNothingForAStranger) {
  Attacker reader(address());
  Caller caller(address());
  const auto welcome = let_in(reader, caller, pair_.domain);
  for (const std::uint64_t wrong : {1ULL, 1ULL << 8, 1ULL << 31}) {
    Attacker stranger(address());
    stranger.meet(welcome);
    auto span = *pair_.region->remote().sub(0, 4096);
    span.key ^= wrong;
    EXPECT_FALSE(stranger.read(span));
    EXPECT_TRUE(stranger.is_untouched());
  }
}

/// A cut takes nobody's knowledge: who goes on by his own means is ended by his regions' end.
TEST_P(OfiRdm, ACutReaderWhoGoesOnReadsUntilTheRegionsEndAndNoFurther) {
  Attacker attacker(address());
  Caller caller(address());
  (void)let_in(attacker, caller, mallory_);
  auto another = pair_.connect(pair_.admitted(2, mallory_)).value();
  const auto span = *decoy_region_->remote().sub(0, 4096);
  ASSERT_TRUE(attacker.read(span));
  pair_.listener->disconnect(66);
  EXPECT_TRUE(caller.hears_the_end());
  EXPECT_TRUE(attacker.read(span) || attacker.read(span)) << "the second finds a connection below";
  ASSERT_TRUE(decoy_region_->revoke());
  EXPECT_FALSE(attacker.read(span));
  EXPECT_TRUE(attacker.is_untouched());
  EXPECT_TRUE(pair_.read(*another, span).has_error());
  EXPECT_TRUE(pair_.untouched);
}

TEST_P(OfiRdm, HellosThatAreNotOursAreRefused) {
  Attacker attacker(address());
  const auto good = attacker.hello(pair_.admitted(66, mallory_));
  const auto say = [&](const ofi::RdmHello& hello) -> std::optional<ofi::Status> {
    Caller caller(address());
    caller.say(bytes_of(hello));
    const auto welcome = caller.hear();
    if (!welcome) return std::nullopt;
    return static_cast<ofi::Status>(be32toh(welcome->status));
  };
  auto bad = good;
  bad.magic_number ^= 1;
  EXPECT_EQ(say(bad), std::nullopt);
  bad = good;
  bad.version_number = htobe32(2);
  EXPECT_EQ(say(bad), ofi::Status::incompatible);
  for (const std::uint32_t length : {0U, 129U, 0x80000000U, 0xFFFFFFFFU}) {
    bad = good;
    bad.name_bytes = htobe32(length);
    EXPECT_EQ(say(bad), ofi::Status::incompatible) << length;
  }
  bad = good;
  bad.token[7] ^= 1;
  EXPECT_EQ(say(bad), ofi::Status::refused);
  EXPECT_EQ(say(good), ofi::Status::ok);
  EXPECT_EQ(say(good), ofi::Status::refused) << "a token is good once";
  // Names that are none, by a token that is one.
  for (const std::uint32_t length : {1U, 15U, 17U, 28U, 128U}) {
    bad = attacker.hello(pair_.admitted(66, mallory_));
    bad.name_bytes = htobe32(length);
    EXPECT_EQ(say(bad), ofi::Status::incompatible) << length;
  }
  for (const int family : {AF_UNSPEC, AF_UNIX, AF_INET6, 0xFFFF}) {
    bad = attacker.hello(pair_.admitted(66, mallory_));
    std::memset(bad.name, 0xFF, sizeof bad.name);
    const auto number = static_cast<sa_family_t>(family);
    std::memcpy(bad.name, &number, sizeof number);
    EXPECT_EQ(say(bad), ofi::Status::incompatible) << family;
  }
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == 1; }));
}

TEST_P(OfiRdm, StrangersWhoSayNothingOrHalfASentenceHoldNobodyUpAndAreCutInTime) {
  const auto hello = Attacker(address()).hello(Token{});
  std::vector<Caller> strangers;
  for (std::size_t n = 0; n < 300; ++n) {
    strangers.emplace_back(address());
    strangers.back().say(bytes_of(hello).first(n % 4 * 44));
  }
  const auto began = system_clock().now();
  auto another = pair_.connect(3);
  ASSERT_TRUE(another);
  EXPECT_TRUE(pair_.read(**another, *pair_.region->remote().sub(0, 64)));
  EXPECT_LT(system_clock().now() - began, 2s);
  for (auto& stranger : strangers) EXPECT_TRUE(stranger.hears_the_end());
  EXPECT_EQ(pair_.listener->connections(), 2U);
}

/// Not beside the endpoint, but at the endpoint itself: it has a port too, and takes whoever comes.
TEST_P(OfiRdm, AStrangerWhoSaysHalfASentenceToTheEndpointHoldsNobodyUp) {
  Attacker reader(address());
  Caller caller(address());
  const auto welcome = let_in(reader, caller, pair_.domain);
  sockaddr_in to{};
  std::memcpy(&to, welcome.name, sizeof to);
  std::vector<UniqueFd> strangers;
  // Nothing, less than libfabric's header, and the header of a request with 48 bytes behind it, in its tcp's form.
  constexpr std::array<std::uint8_t, 32> header{3, 0, 0, 48};
  for (const std::size_t length : {std::size_t{0}, std::size_t{5}, header.size()}) {
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(strangers.back().get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
      GTEST_SKIP() << GetParam().name << " does not listen by a socket";
    ASSERT_EQ(::send(strangers.back().get(), header.data(), length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
  }
  const auto began = system_clock().now();
  EXPECT_TRUE(pair_.connect());
  EXPECT_TRUE(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64)));
  EXPECT_LT(system_clock().now() - began, 2s);
}

TEST_P(OfiRdm, AHelloThatComesInPiecesIsOneAndAReaderThatSpeaksLaterIsCut) {
  Attacker attacker(address());
  Caller caller(address());
  const auto hello = attacker.hello(pair_.admitted(66, mallory_));
  for (std::size_t at = 0; at < sizeof hello; at += 11) {
    caller.say(bytes_of(hello).subspan(at, std::min<std::size_t>(11, sizeof hello - at)));
    std::this_thread::sleep_for(1ms);
  }
  const auto welcome = caller.hear();
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->status, 0U);
  caller.say(Buffer(1));
  EXPECT_TRUE(caller.hears_the_end());
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == 1; }));
}

/// A reader that reads all the time, while regions come and go.
TEST_P(OfiRdm, ReadersWhoReadAllTheTimeDoNotMeetMemoryThatIsGone) {
  const auto* const kind = ofi::find_kind(address().substr(0, address().find("://")));
  if (!ofi::is_recent_enough(*ofi::Library::load().value(), *kind, log::Level::debug))
    GTEST_SKIP() << "this host's libfabric ends a process whose connection ends amid a READ over " << kind->name;
  for (int round = 0; round < 20; ++round) {
    auto memory = std::make_shared<Memfd>(1U << 20);
    auto region = pair_.domain->expose(memory->part(memory, 0, 1U << 20)).value();
    auto endpoint = pair_.connect(2).value();
    const auto span = region.remote();
    std::atomic<bool> ended{false};
    std::thread reader([&] {
      auto landing = endpoint->make_landing(8 * 65536).value();
      std::array<Completion, 8> done;
      while (!ended.load()) {
        for (std::uint32_t n = 0; n < 8; ++n) {
          const ReadRequest request{*span.sub(n * 65536, 65536), landing->bytes().subspan(n * 65536, 65536), n};
          (void)endpoint->post_reads(std::span(&request, 1));
        }
        if (!endpoint->poll(done)) return;
      }
    });
    std::this_thread::sleep_for(5ms);
    ASSERT_TRUE(region.revoke());
    memory.reset();  // a READ of it by this process would end it
    std::this_thread::sleep_for(5ms);
    ended.store(true);
    reader.join();
  }
  expect_reading();
}

/// Where the broker's CPU serves READs it sleeps while there are none.
TEST_P(OfiRdm, AnIdleConnectionCostsTheBrokerNothing) {
  const auto spent = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  };
  expect_reading();
  const auto before = spent();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(spent() - before, 50'000) << "microseconds of half a second";
}

/// Who does not name it does not get it where it is known to break.
TEST_P(OfiRdm, AKindThatThisHostsLibraryBreaksIsTakenByNobody) {
  const auto* const kind = ofi::find_kind(address().substr(0, address().find("://")));
  const bool good = ofi::is_recent_enough(*ofi::Library::load().value(), *kind, log::Level::debug);
  const auto any = make_ofi_provider(system_clock()).value();
  const auto connected = any->connect(address(), pair_.admitted(3), pair_.options);
  EXPECT_EQ(connected.has_value(), good);
  if (!good) {
    EXPECT_EQ(connected.error(), Fault::no_device);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, OfiRdm, ::testing::ValuesIn(rdm_subjects()),
                         [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace ciuic::testing
