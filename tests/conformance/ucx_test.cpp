// What only ucx promises, and what UCX does not keep anybody from: docs/fabric.md says it as it is seen here.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <csignal>

#include "tests/conformance/support/pair.h"
#include "transport/rdma/ucx/ends.h"

namespace ciuic::testing {
namespace {

using namespace std::chrono_literals;

std::vector<Subject> ucx_subjects() {
  std::vector<Subject> found;
  for (const auto& subject : all_subjects())
    if (subject.name.starts_with("ucx")) found.push_back(subject);
  return found;
}

/// Speaks UCX by itself, and has no token.
class UcxStranger {
 public:
  explicit UcxStranger(const std::string& address) : place_(*Address::parse(address)) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr = ucx::sockaddr_of(place_);
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t) { static_cast<UcxStranger*>(self)->lost = true; };
    params.err_handler.arg = this;
    if (library_.ep_create(worker_->handle(), &params, &endpoint_) != UCS_OK) std::abort();
  }
  ~UcxStranger() {
    worker_->cut(endpoint_);
    while (worker_->is_cutting()) worker_->progress();
  }
  UcxStranger(const UcxStranger&) = delete;
  UcxStranger& operator=(const UcxStranger&) = delete;
  template <class Message>
  void say(ucx::Kind kind, const Message& message) {
    worker_->send(endpoint_, kind, message);
  }
  bool hears_the_end() {
    const auto until = system_clock().now() + 10s;
    while (!lost && system_clock().now() < until) worker_->progress();
    return lost;
  }

  enum class Way { get, put };
  /// Between our 64 bytes, 0xEE each, and whatever is at the broker's address. False: refused, or nothing for 10 s.
  bool move(Way way, std::uint64_t address) {
    const auto put = reinterpret_cast<decltype(&::ucp_put_nbx)>(::dlsym(handle_, "ucp_put_nbx"));
    ucp_mem_map_params_t own{};
    own.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    own.address = bytes.data();
    own.length = bytes.size();
    ucp_mem_h mapped = nullptr;
    void* packed = nullptr;
    std::size_t length = 0;
    ucp_rkey_h key = nullptr;
    // A key of our own memory opens the broker's.
    if (library_.mem_map(context_->handle, &own, &mapped) != UCS_OK ||
        library_.rkey_pack(context_->handle, mapped, &packed, &length) != UCS_OK ||
        library_.ep_rkey_unpack(endpoint_, packed, &key) != UCS_OK)
      std::abort();
    ucp_request_param_t none{};
    auto* const request = way == Way::get ? library_.get_nbx(endpoint_, bytes.data(), bytes.size(), address, key, &none)
                                          : put(endpoint_, bytes.data(), bytes.size(), address, key, &none);
    auto status = UCS_PTR_STATUS(request);
    const auto until = system_clock().now() + 10s;
    while (UCS_PTR_IS_PTR(request) && !lost && system_clock().now() < until) {
      worker_->progress();
      status = library_.request_check_status(request);
      if (status != UCS_INPROGRESS) break;
    }
    if (UCS_PTR_IS_PTR(request)) library_.request_free(request);
    library_.rkey_destroy(key);
    library_.rkey_buffer_release(packed);
    (void)library_.mem_unmap(context_->handle, mapped);
    return status == UCS_OK;
  }

  bool lost = false;
  std::array<std::byte, 64> bytes = [] {
    std::array<std::byte, 64> filled{};
    filled.fill(std::byte{0xEE});
    return filled;
  }();

 private:
  void* handle_ = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  const ucx::Library& library_ = *ucx::Library::load().value();
  std::shared_ptr<const ucx::Context> context_ = ucx::Context::open(library_, ucx::Side::reading, "tcp").value();
  std::unique_ptr<ucx::Worker> worker_ = ucx::Worker::open(context_).value();
  Address place_;
  ucp_ep_h endpoint_ = nullptr;
};

class Ucx : public ::testing::TestWithParam<Subject> {
 protected:
  Ucx() : pair_(GetParam()) {}
  /// The broker serves those who are in.
  void expect_reading() { EXPECT_TRUE(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64))); }
  Pair pair_;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Ucx);

/// UCX keeps nobody from it, which is why the broker must be told that readers are trusted. Where this fails, UCX has
/// become better, and docs/fabric.md has to say so.
TEST_P(Ucx, WhoeverReachesThePortReadsAndWritesWithoutAToken) {
  UcxStranger stranger(pair_.listener->address());
  const auto before = pair_.memory->bytes().data();  // not even exposed
  ASSERT_TRUE(stranger.move(UcxStranger::Way::get, reinterpret_cast<std::uintptr_t>(before)));
  EXPECT_EQ(stranger.bytes[1], Pair::pattern(1));
  stranger.bytes.fill(std::byte{0xEE});
  ASSERT_TRUE(stranger.move(UcxStranger::Way::put, reinterpret_cast<std::uintptr_t>(before)));
  EXPECT_TRUE(Pair::soon([&] { return before[1] == std::byte{0xEE}; }));
}

/// Reading past the end of what is mapped would end the broker: whoever slept must not come back to it.
TEST_P(Ucx, AReaderThatSleepsThroughARegionsEndIsCut) {
  auto awake = pair_.connect(2).value();
  const auto span = *pair_.region->remote().sub(0, 4096);
  ASSERT_TRUE(pair_.read(*pair_.endpoint, span));
  ASSERT_TRUE(pair_.read(*awake, span));
  std::atomic<bool> ended{false};
  std::thread other([&] {
    std::array<Completion, 1> none;
    while (!ended.load()) EXPECT_EQ(awake->poll(none).value(), 0U);
  });
  ASSERT_TRUE(pair_.region->revoke());
  ended.store(true);
  other.join();
  ASSERT_EQ(::mprotect(pair_.memory->bytes().data(), pair_.memory->bytes().size(), PROT_NONE), 0);
  EXPECT_EQ(pair_.listener->connections(), 1U);
  // Neither does harm any more; the one who was awake is still connected.
  EXPECT_TRUE(pair_.read(*pair_.endpoint, span).has_error());
  EXPECT_TRUE(pair_.read(*awake, span).has_error());
  ASSERT_EQ(::mprotect(pair_.memory->bytes().data(), pair_.memory->bytes().size(), PROT_READ | PROT_WRITE), 0);
}

TEST_P(Ucx, ReadersWhoReadAllTheTimeDoNotMeetMemoryThatIsGone) {
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
    memory.reset();  // a READ of it would end this process
    std::this_thread::sleep_for(5ms);
    ended.store(true);
    reader.join();
  }
  expect_reading();
}

TEST_P(Ucx, WhoShowsNoTokenIsCutInTimeAndWhoBabblesAtOnce) {
  UcxStranger silent(pair_.listener->address());
  UcxStranger babbler(pair_.listener->address());
  babbler.say(ucx::Kind::ask, ucx::KeyWord{pair_.region->remote().key});
  EXPECT_TRUE(babbler.hears_the_end());
  EXPECT_FALSE(silent.lost);
  expect_reading();
  EXPECT_TRUE(silent.hears_the_end());
  EXPECT_EQ(pair_.listener->connections(), 1U);
}

/// Random bytes, and nothing at all, at UCX's own port.
TEST_P(Ucx, AStrangerWhoDoesNotSpeakUcxHoldsNobodyUp) {
  auto address = *Address::parse(pair_.listener->address());
  std::vector<UniqueFd> strangers;
  for (std::size_t n = 0; n < 40; ++n) {
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(strangers.back().get(), address.get(), sizeof(sockaddr_in)), 0);
    Buffer bytes(n * 7);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = Pair::pattern(i * 13 + n);
    (void)!::send(strangers.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  const auto began = system_clock().now();
  auto another = pair_.connect(3);
  ASSERT_TRUE(another);
  EXPECT_TRUE(pair_.read(**another, *pair_.region->remote().sub(0, 64)));
  EXPECT_LT(system_clock().now() - began, 2s);
}

/// UCX takes the handlers of crashes for itself when it is loaded.
std::array<void*, 4> handlers_now() {
  std::array<void*, 4> now{};
  std::size_t n = 0;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction action {};
    (void)::sigaction(signal, nullptr, &action);
    now[n++] = reinterpret_cast<void*>(action.sa_handler);
  }
  return now;
}
const auto handlers_before_main = handlers_now();

TEST_P(Ucx, TheProcessKeepsItsSignalHandlers) { EXPECT_EQ(handlers_now(), handlers_before_main); }

TEST_P(Ucx, AnIdleConnectionCostsTheBrokerNothing) {
  expect_reading();
  const auto spent = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  };
  std::this_thread::sleep_for(200ms);
  const auto before = spent();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(spent() - before, 50ms);
}

INSTANTIATE_TEST_SUITE_P(Every, Ucx, ::testing::ValuesIn(ucx_subjects()),
                         [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace ciuic::testing
