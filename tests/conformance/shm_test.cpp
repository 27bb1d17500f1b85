// What shm promises beyond the common contract: nobody writes, whoever he is; a hostile peer of the socket is closed.
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <fstream>

#include "tests/conformance/support/pair.h"
#include "transport/rdma/shm/protocol.h"

namespace ciuic::testing {
namespace {

Subject shm_subject() { return all_subjects()[1]; }

class Shm : public ::testing::Test {
 protected:
  UniqueFd raw() {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, pair_.listener->address().c_str());
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    return fd;
  }
  static bool closed_soon(const UniqueFd& fd) {
    pollfd ready{fd.get(), POLLIN, 0};
    if (::poll(&ready, 1, 5000) <= 0) return false;
    char byte[256];
    const auto got = ::recv(fd.get(), byte, sizeof byte, MSG_DONTWAIT);
    return got <= 0;
  }
  bool others_read_on() { return static_cast<bool>(pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 64))); }
  static std::size_t fds_of_process() {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists() ? 1 : 0;
    return count;
  }
  UniqueFd greeted() {
    auto fd = raw();
    rdma::shm::Hello hello;
    const auto token = pair_.admitted(9);
    std::memcpy(hello.token, token.bytes.data(), 32);
    EXPECT_EQ(::send(fd.get(), &hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
    rdma::shm::Welcome welcome;
    EXPECT_EQ(::recv(fd.get(), &welcome, sizeof welcome, 0), static_cast<ssize_t>(sizeof welcome));
    EXPECT_EQ(welcome.status, rdma::shm::Status::ok);
    return fd;
  }
  static UniqueFd ask(const UniqueFd& socket, std::uint64_t key, rdma::shm::Answer& answer) {
    rdma::shm::Ask question;
    question.key = key;
    (void)::send(socket.get(), &question, sizeof question, MSG_NOSIGNAL);
    iovec piece{&answer, sizeof answer};
    char control[256];
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(socket.get(), &message, 0) <= 0) return {};
    int fd = -1;
    if (auto* header = CMSG_FIRSTHDR(&message)) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return UniqueFd(fd);
  }
  Pair pair_{shm_subject()};
};

TEST_F(Shm, ADescriptorHandedOutCannotBeMadeWritable) {
  const auto socket = greeted();
  rdma::shm::Answer answer;
  const auto fd = ask(socket, pair_.region->remote().key, answer);
  ASSERT_TRUE(fd);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  void* mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_NE(::mprotect(mapped, 4096, PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
  EXPECT_NE(::write(fd.get(), "x", 1), 1);
  EXPECT_NE(::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  ::munmap(mapped, 4096);
}

TEST_F(Shm, AnotherUserCannotReopenItForWriting) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const auto socket = greeted();
  rdma::shm::Answer answer;
  const auto fd = ask(socket, pair_.region->remote().key, answer);
  ASSERT_TRUE(fd);
  const auto before = pair_.memory->bytes()[Pair::exposed_at];
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(10);
    const auto path = "/proc/self/fd/" + std::to_string(fd.get());
    if (::open(path.c_str(), O_RDWR) >= 0) ::_exit(1);
    if (::open(path.c_str(), O_WRONLY) >= 0) ::_exit(2);
    if (::fchmod(fd.get(), 0666) == 0) ::_exit(3);
    void* mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (mapped == MAP_FAILED) ::_exit(4);
    if (::mprotect(mapped, 4096, PROT_READ | PROT_WRITE) == 0) ::_exit(5);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(pair_.memory->bytes()[Pair::exposed_at], before);
}

TEST_F(Shm, AWriteThroughAMappingKillsTheWriterAndChangesNothing) {
  auto* mapper = pair_.endpoint->mapper();
  const auto view = mapper->view(*pair_.region->remote().sub(0, 64));
  ASSERT_TRUE(view);
  const auto before = pair_.memory->bytes()[Pair::exposed_at];
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    *const_cast<volatile std::byte*>(view->data()) = std::byte{0x77};
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(pair_.memory->bytes()[Pair::exposed_at], before);
}

TEST_F(Shm, ADescriptorComesOnceAConnection) {
  const auto socket = greeted();
  const auto second = pair_.domain->expose(pair_.memory->part(pair_.memory, 0, 4096)).value();
  rdma::shm::Answer answer;
  EXPECT_TRUE(ask(socket, pair_.region->remote().key, answer));
  EXPECT_EQ(answer.has_descriptor, 1U);
  EXPECT_FALSE(ask(socket, second.remote().key, answer));
  EXPECT_EQ(answer.status, rdma::shm::Status::ok);
  EXPECT_EQ(answer.has_descriptor, 0U);
}

TEST_F(Shm, MalformedHellosAreClosedAndDisturbNobody) {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{47}, std::size_t{49}, std::size_t{128}, std::size_t{4096}, std::size_t{60000}}) {
    const auto fd = raw();
    const std::string junk(size, 'A');
    ASSERT_EQ(::send(fd.get(), junk.data(), junk.size(), MSG_NOSIGNAL), static_cast<ssize_t>(size));
    EXPECT_TRUE(closed_soon(fd)) << size;
  }
  auto wrong_magic = raw();
  rdma::shm::Hello hello;
  hello.magic_number ^= 1;
  ASSERT_GT(::send(wrong_magic.get(), &hello, sizeof hello, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(closed_soon(wrong_magic));
  EXPECT_TRUE(others_read_on());
}

TEST_F(Shm, AnotherVersionIsToldSo) {
  const auto fd = raw();
  rdma::shm::Hello hello;
  hello.version_number = 99;
  ASSERT_GT(::send(fd.get(), &hello, sizeof hello, 0), 0);
  rdma::shm::Welcome welcome;
  ASSERT_EQ(::recv(fd.get(), &welcome, sizeof welcome, 0), static_cast<ssize_t>(sizeof welcome));
  EXPECT_EQ(welcome.status, rdma::shm::Status::incompatible);
  EXPECT_TRUE(closed_soon(fd));
}

TEST_F(Shm, ASilentStrangerIsClosedInTime) {
  const auto fd = raw();
  EXPECT_TRUE(closed_soon(fd));
  EXPECT_TRUE(others_read_on());
}

TEST_F(Shm, AStormOfSilentStrangersCostsReadersNothing) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(raw());
  auto fresh = pair_.connect();
  ASSERT_TRUE(fresh) << "a stranger loses its place, a reader gets one";
  EXPECT_TRUE(pair_.read(**fresh, *pair_.region->remote().sub(0, 64)));
  EXPECT_TRUE(others_read_on());
}

TEST_F(Shm, AReaderThatNeverReadsItsAnswersIsClosedAndBlocksNobody) {
  const auto socket = greeted();
  rdma::shm::Ask question;
  question.key = 12345;
  bool cut = false;
  for (int i = 0; i < 200000 && !cut; ++i)
    cut = ::send(socket.get(), &question, sizeof question, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN;
  EXPECT_TRUE(cut);
  EXPECT_TRUE(others_read_on());
  EXPECT_TRUE(pair_.connect());
}

TEST_F(Shm, DescriptorsSentToTheBrokerAreNotKept) {
  const auto socket = greeted();
  const auto before = fds_of_process();
  rdma::shm::Ask question;
  iovec piece{&question, sizeof question};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  auto* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int mine = pair_.memory->fd();
  std::memcpy(CMSG_DATA(header), &mine, sizeof mine);
  ASSERT_GT(::sendmsg(socket.get(), &message, MSG_NOSIGNAL), 0);
  EXPECT_TRUE(closed_soon(socket));
  EXPECT_TRUE(Pair::soon([&] { return fds_of_process() <= before; }));
  EXPECT_TRUE(others_read_on());
}

TEST_F(Shm, ABrokerCannotFillAReadersDescriptors) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const auto path = pair_.folder.path() + "/hostile";
  std::strcpy(name.sun_path, path.c_str());
  const UniqueFd listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  for (const int count : {1, 2, 3, 8}) {
    const auto before = fds_of_process();
    std::thread broker([&] {
      const UniqueFd peer(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
      char heard[128];
      (void)!::recv(peer.get(), heard, sizeof heard, 0);
      rdma::shm::Welcome welcome;
      (void)!::send(peer.get(), &welcome, sizeof welcome, MSG_NOSIGNAL);
      rdma::shm::Ask question;
      (void)!::recv(peer.get(), &question, sizeof question, 0);
      // Says that there is none, and sends some.
      rdma::shm::Answer answer;
      answer.key = question.key;
      answer.length = 64;
      iovec piece{&answer, sizeof answer};
      alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))]{};
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(static_cast<std::size_t>(count) * sizeof(int));
      auto* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(static_cast<std::size_t>(count) * sizeof(int));
      const int mine = pair_.memory->fd();
      for (int i = 0; i < count; ++i)
        std::memcpy(CMSG_DATA(header) + static_cast<std::size_t>(i) * sizeof mine, &mine, sizeof mine);
      (void)!::sendmsg(peer.get(), &message, MSG_NOSIGNAL);
      (void)!::recv(peer.get(), heard, sizeof heard, 0);
    });
    auto endpoint = pair_.provider->connect(path, rdma::Token{}, {});
    EXPECT_TRUE(endpoint);
    EXPECT_FALSE(endpoint && (*endpoint)->mapper()->view({0, 64, 7})) << count;
    endpoint = rdma::Fault::peer_gone;
    broker.join();
    EXPECT_LE(fds_of_process(), before) << count << " descriptors sent";
  }
}

TEST_F(Shm, ManyExpectedKeysAreAskedForAtOnceAndRevokedOnesDisturbNobody) {
  constexpr std::size_t count = 500;  // several times what may be under way
  std::vector<rdma::Region> regions;
  std::vector<rdma::RemoteSpan> spans;
  for (std::size_t i = 0; i < count; ++i) {
    regions.push_back(pair_.domain->expose(pair_.memory->part(pair_.memory, 0, 4096)).value());
    spans.push_back(regions.back().remote());
    if (i % 7 == 3) {
      ASSERT_TRUE(regions.back().revoke());
    }
  }
  auto* mapper = pair_.endpoint->mapper();
  mapper->expect(spans);
  mapper->expect(spans);
  // The last of them first, and one that nobody expected: what is under way for others is not in its way.
  const auto surprise = pair_.domain->expose(pair_.memory->part(pair_.memory, 0, 4096)).value();
  EXPECT_TRUE(mapper->view(spans[count - 1]));
  EXPECT_TRUE(mapper->view(surprise.remote()));
  std::array<rdma::Completion, 4> none;
  EXPECT_TRUE(Pair::soon([&] { return static_cast<bool>(pair_.endpoint->poll(none)); })) << "answers are not its end";
  for (std::size_t i = count; i-- > 0;) {
    if (i % 7 == 3) continue;
    const auto view = mapper->view(*spans[i].sub(16, 64));
    ASSERT_TRUE(view) << i << rdma::text(view.error());
    EXPECT_EQ(std::memcmp(view->data(), pair_.memory->bytes().data() + 16, 64), 0);
  }
  EXPECT_EQ(mapper->view(spans[3]).error(), Fault::access_error);
}

/// A broker that holds its answers back until `held` questions are there, and tells how many it saw at most.
class HoldingBroker {
 public:
  HoldingBroker(const std::string& path, std::size_t held, int file) : held_(held), file_(file) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, path.c_str());
    listening_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::listen(listening_.get(), 1), 0);
    thread_ = std::thread([this] { work(); });
  }
  ~HoldingBroker() { thread_.join(); }
  [[nodiscard]] std::size_t most_unanswered() const { return most_.load(); }

 private:
  void work() {
    const UniqueFd peer(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char hello[128];
    (void)!::recv(peer.get(), hello, sizeof hello, 0);
    rdma::shm::Welcome welcome;
    (void)!::send(peer.get(), &welcome, sizeof welcome, MSG_NOSIGNAL);
    std::vector<std::uint64_t> waiting;
    bool first = true;
    while (true) {
      pollfd ready{peer.get(), POLLIN, 0};
      if (waiting.size() < held_ || ::poll(&ready, 1, 100) > 0) {
        rdma::shm::Ask question;
        if (::recv(peer.get(), &question, sizeof question, 0) != static_cast<ssize_t>(sizeof question)) return;
        waiting.push_back(question.key);
        most_.store(std::max(most_.load(), waiting.size()));
        continue;
      }
      for (const auto key : waiting) {
        rdma::shm::Answer answer;
        answer.key = key;
        answer.length = 64;
        answer.has_descriptor = std::exchange(first, false) ? 1 : 0;
        iovec piece{&answer, sizeof answer};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
        msghdr message{};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        if (answer.has_descriptor != 0) {
          message.msg_control = control;
          message.msg_controllen = sizeof control;
          auto* header = CMSG_FIRSTHDR(&message);
          header->cmsg_level = SOL_SOCKET;
          header->cmsg_type = SCM_RIGHTS;
          header->cmsg_len = CMSG_LEN(sizeof(int));
          std::memcpy(CMSG_DATA(header), &file_, sizeof file_);
        }
        if (::sendmsg(peer.get(), &message, MSG_NOSIGNAL) <= 0) return;
      }
      waiting.clear();
      held_ = 1;
    }
  }
  std::size_t held_;
  int file_;
  std::atomic<std::size_t> most_{0};
  UniqueFd listening_;
  std::thread thread_;
};

TEST_F(Shm, QuestionsForExpectedKeysDoNotWaitForEachOthersAnswersAndAreBounded) {
  const auto path = pair_.folder.path() + "/holding";
  HoldingBroker broker(path, 64, pair_.memory->fd());
  auto endpoint = pair_.provider->connect(path, rdma::Token{}, {});
  ASSERT_TRUE(endpoint);
  auto* mapper = (*endpoint)->mapper();
  std::vector<rdma::RemoteSpan> spans;
  for (std::uint64_t key = 1; key <= 200; ++key) spans.push_back({0, 64, key});
  mapper->expect(spans);
  for (const auto& span : spans) ASSERT_TRUE(mapper->view(span)) << span.key;
  EXPECT_EQ(broker.most_unanswered(), 64U) << "its socket holds so many answers; with more it would have to drop us";
  endpoint = rdma::Fault::peer_gone;
}

TEST_F(Shm, ABrokerThatAnswersNoHintIsGoneOnceItIsNeeded) {
  const auto path = pair_.folder.path() + "/holding";
  HoldingBroker broker(path, 1000, pair_.memory->fd());
  auto endpoint = pair_.provider->connect(path, rdma::Token{}, {.timeout = Milliseconds(200)});
  ASSERT_TRUE(endpoint);
  std::vector<rdma::RemoteSpan> spans;
  for (std::uint64_t key = 1; key <= 200; ++key) spans.push_back({0, 64, key});
  (*endpoint)->mapper()->expect(spans);
  const auto from = std::chrono::steady_clock::now();
  EXPECT_EQ((*endpoint)->mapper()->view(spans[150]).error(), Fault::peer_gone);
  EXPECT_LT(std::chrono::steady_clock::now() - from, std::chrono::seconds(10));
  (*endpoint)->mapper()->expect(spans);  // of an endpoint that is finished: nothing
  endpoint = rdma::Fault::peer_gone;
}

TEST_F(Shm, AKilledReaderIsForgotten) {
  const auto token = pair_.admitted(5);
  ASSERT_EQ(pair_.listener->connections(), 1U);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto endpoint = pair_.provider->connect(pair_.listener->address(), token, {});
    if (endpoint) {
      auto landing = (*endpoint)->make_landing(64).value();
      (void)!::write(ready[1], "x", 1);
      while (true) {
        const rdma::ReadRequest request{*pair_.region->remote().sub(0, 64), landing->bytes(), 1};
        (void)(*endpoint)->post_reads(std::span(&request, 1));
        (void)Pair::complete(**endpoint);
      }
    }
    ::_exit(1);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(pair_.listener->connections(), 2U);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == 1; }));
  EXPECT_TRUE(others_read_on());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(Shm, AFrozenReaderHoldsNothingUp) {
  const auto token = pair_.admitted(6);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto endpoint = pair_.provider->connect(pair_.listener->address(), token, {});
    (void)!::write(ready[1], endpoint ? "x" : "y", 1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'x');
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(pair_.connect());
  ASSERT_TRUE(pair_.region->revoke());
  pair_.listener->disconnect(6);
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == 1; })) << "cut though it does not answer";
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(Shm, AForkedChildIsRefusedByItsParentsEndpoint) {
  ASSERT_TRUE(others_read_on());
  const pid_t child = ::fork();
  if (child == 0) {
    const auto view = pair_.endpoint->mapper()->view(*pair_.region->remote().sub(0, 64));
    ::_exit(view.has_error() && view.error() == Fault::forked_child ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(others_read_on());
}

TEST_F(Shm, AMemfdIsMappedOnceHoweverManyRegionsItHas) {
  auto count_mappings = [] {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find("memfd:ciuic-test") != std::string::npos ? 1 : 0;
    return count;
  };
  ASSERT_TRUE(others_read_on());
  const auto before = count_mappings();
  std::vector<Region> regions;
  for (std::size_t i = 0; i < 64; ++i) {
    regions.push_back(pair_.domain->expose(pair_.memory->part(pair_.memory, i * 4096, 4096)).value());
    ASSERT_TRUE(pair_.endpoint->mapper()->view(regions.back().remote()));
  }
  EXPECT_EQ(count_mappings(), before);
}

TEST_F(Shm, AMemfdThatCouldShrinkIsNotMapped) {
  class Shrinkable final : public rdma::Backing {
   public:
    std::uint64_t id() const override { return 1ULL << 40; }
    UniqueFd read_only_descriptor() const override {
      return UniqueFd(::open(("/proc/self/fd/" + std::to_string(fd_.get())).c_str(), O_RDONLY | O_CLOEXEC));
    }
    UniqueFd fd_{::memfd_create("ciuic-test-shrinks", MFD_CLOEXEC)};
  };
  auto backing = std::make_shared<Shrinkable>();
  ASSERT_EQ(::ftruncate(backing->fd_.get(), 4096), 0);
  const auto region = pair_.domain->expose({pair_.memory->bytes().first(4096), backing, 0}).value();
  EXPECT_EQ(pair_.endpoint->mapper()->view(region.remote()).error(), Fault::incompatible);
}

TEST_F(Shm, ARegionBeyondTheFilesEndIsRefused) {
  const auto region = pair_.domain->expose({pair_.memory->bytes().first(4096), pair_.memory, 512U << 10}).value();
  EXPECT_EQ(pair_.endpoint->mapper()->view(region.remote()).error(), Fault::access_error);
}

TEST_F(Shm, TheSocketFileHasTheModeAskedForAndGoesWithTheListener) {
  struct stat info {};
  const auto path = pair_.listener->address();
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0666U);
  pair_.listener.reset();
  EXPECT_NE(::stat(path.c_str(), &info), 0);
}

/// In a container every broker is process 1: the number of a killed one is that of the next, and other containers'
/// sockets in a folder of the node have numbers of processes that are not here.
TEST_F(Shm, ASocketThatNobodyListensAtGoesAndNoOther) {
  const auto alive = pair_.folder.path() + "/onesided-2147483646-0.sock";
  const auto dead = pair_.folder.path() + "/onesided-" + std::to_string(::getpid()) + "-0.sock";
  ListenOptions options;
  options.address = alive;
  const auto of_another = pair_.provider->listen(options);
  ASSERT_TRUE(of_another);
  {
    UniqueFd ended(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, dead.c_str());
    ASSERT_EQ(::bind(ended.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }
  options.address.clear();
  options.runtime_dir = pair_.folder.path();
  const auto next = pair_.provider->listen(options);
  ASSERT_TRUE(next);
  struct stat info {};
  EXPECT_NE(::stat(dead.c_str(), &info), 0);
  const auto token = Token::random();
  (*of_another)->admit(token, pair_.domain, 7, system_clock().now() + std::chrono::seconds(30));
  EXPECT_TRUE(pair_.provider->connect(alive, token, {}));
  EXPECT_TRUE(others_read_on());
}

TEST_F(Shm, AFolderThatOthersMayWriteToIsRefused) {
  TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  ListenOptions options;
  options.runtime_dir = folder.path();
  EXPECT_EQ(pair_.provider->listen(options).error(), Fault::refused);
}

}  // namespace
}  // namespace ciuic::testing
