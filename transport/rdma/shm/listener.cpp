// The broker's end of shm: one thread, epoll, non-blocking sockets. A peer that does not read its answers, sends
// anything unexpected or says nothing is closed; nobody waits for it. Not here: what a key means (the domain).
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "transport/base/log.h"
#include "transport/rdma/shm/protocol.h"
#include "transport/rdma/token_desk.h"

namespace ciuic::rdma::shm {

namespace {

constexpr std::size_t strangers_max = 64;  ///< connections that have not shown a token yet
constexpr Milliseconds hello_timeout{3000};
constexpr std::string_view socket_prefix = "onesided-";
constexpr std::string_view socket_suffix = ".sock";

std::optional<sockaddr_un> name_of(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path) return std::nullopt;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  return name;
}

/// Removes sockets that nobody listens at. Whose they were says nothing: brokers in containers share a folder of the
/// node, and each of them is process 1.
void remove_dead_sockets(const std::string& directory) {
  DIR* dir = ::opendir(directory.c_str());
  if (!dir) return;
  while (const auto* entry = ::readdir(dir)) {
    const std::string_view file = entry->d_name;
    if (!file.starts_with(socket_prefix) || !file.ends_with(socket_suffix)) continue;
    const auto path = directory + "/" + entry->d_name;
    const auto name = name_of(path);
    const UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!name || !probe) continue;
    if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&*name), sizeof *name) != 0 && errno == ECONNREFUSED)
      ::unlink(path.c_str());
  }
  ::closedir(dir);
}

/// Nobody else's, whatever process number it has.
std::string new_socket_path(const std::string& directory) {
  std::uint64_t random = 0;
  const auto bytes = Token::random().bytes;
  std::memcpy(&random, bytes.data(), sizeof random);
  return fmt::format("{}/{}{}-{:016x}{}", directory, socket_prefix, ::getpid(), random, socket_suffix);
}

/// The directory is there, a directory, and nobody else's to put sockets into.
bool prepare_directory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0711) != 0 && errno != EEXIST) {
    log::error("rdma", "shm: cannot make onesided.runtime.dir={}: {}; name a directory that can be made", directory,
               std::strerror(errno));
    return false;
  }
  struct stat info {};
  const bool ours = ::lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                    (info.st_uid == ::geteuid() || info.st_uid == 0);
  const bool open_to_all = (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
  if (ours && !open_to_all) return true;
  log::error(
      "rdma",
      "shm: onesided.runtime.dir={} is not a directory of this user, or others may write to it; chown and chmod it",
      directory);
  return false;
}

struct Peer {
  UniqueFd socket;
  Clock::TimePoint opened;
  std::shared_ptr<KeyTable> domain;  // null: a stranger
  SessionId session = 0;
  std::unordered_set<std::uint64_t> has_descriptor_of;
};

class ShmListener final : public Listener {
 public:
  ShmListener(const ListenOptions& options, const Clock& clock) : options_(options), clock_(clock), desk_(clock) {}
  ~ShmListener() override;
  Result<void> start();

  std::string address() const override { return path_; }
  void admit(const Token& token, std::shared_ptr<Domain> domain, SessionId session, Clock::TimePoint until) override {
    desk_.admit(token, std::move(domain), session, until);
  }
  void disconnect(SessionId session) override;
  std::size_t connections() const override { return connections_.load(std::memory_order_relaxed); }

 private:
  void work();
  void accept_some();
  void hear(int fd);
  bool handle(Peer& peer, Bytes message);
  bool greet(Peer& peer, const Hello& hello);
  bool answer(Peer& peer, const Ask& ask);
  void drop(int fd, const char* why);
  void drop_silent_strangers();
  std::size_t of_principal(std::string_view principal) const;

  ListenOptions options_;
  const Clock& clock_;
  TokenDesk desk_;
  std::string path_;
  UniqueFd listening_, epoll_, wake_;
  std::unordered_map<int, Peer> peers_;  // the thread's
  std::size_t strangers_ = 0;
  bool accepting_ = true;
  std::atomic<std::size_t> connections_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<SessionId> to_cut_;
  std::thread thread_;
};

Result<void> ShmListener::start() {
  const auto directory =
      options_.runtime_dir.empty() ? std::string("/tmp/ciuic-") + std::to_string(::geteuid()) : options_.runtime_dir;
  if (!prepare_directory(directory)) return Fault::refused;
  remove_dead_sockets(directory);
  path_ = options_.address.empty() ? new_socket_path(directory) : options_.address;
  // It gets its name once it listens: another broker that starts in the same folder would take it for dead.
  const auto bound = options_.address.empty() ? path_ + ".new" : path_;
  const auto name = name_of(bound);
  if (!name) {
    log::error("rdma", "shm: socket path {} has {} bytes, {} are allowed; choose a shorter onesided.runtime.dir", bound,
               bound.size(), sizeof(sockaddr_un::sun_path) - 1);
    return Fault::refused;
  }
  listening_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listening_ || !epoll_ || !wake_) return Fault::resources_exhausted;
  if (::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&*name), sizeof *name) != 0 ||
      ::chmod(bound.c_str(), options_.socket_mode & 0777) != 0 || ::listen(listening_.get(), 128) != 0 ||
      (bound != path_ && ::rename(bound.c_str(), path_.c_str()) != 0)) {
    log::error("rdma", "shm: cannot listen at {}: {}", path_, std::strerror(errno));
    return Fault::refused;
  }
  for (const int fd : {listening_.get(), wake_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return Fault::resources_exhausted;
  }
  thread_ = std::thread([this] { work(); });
  return {};
}

ShmListener::~ShmListener() {
  stopping_.store(true);
  const std::uint64_t one = 1;
  if (thread_.joinable()) {
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  if (listening_) ::unlink(path_.c_str());
}

void ShmListener::disconnect(SessionId session) {
  desk_.forget(session);
  {
    const std::scoped_lock lock(mutex_);
    to_cut_.push_back(session);
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void ShmListener::work() {
  std::array<epoll_event, 64> events{};
  while (!stopping_.load()) {
    const int timeout = !accepting_ ? 50 : strangers_ > 0 ? 500 : -1;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    if (count < 0 && errno != EINTR) {
      log::error("rdma", "shm: epoll_wait: {}", std::strerror(errno));
      return;
    }
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == wake_.get()) {
        std::uint64_t value;
        (void)!::read(fd, &value, sizeof value);
      } else if (fd == listening_.get()) {
        accept_some();
      } else {
        hear(fd);
      }
    }
    std::vector<SessionId> cut;
    {
      const std::scoped_lock lock(mutex_);
      cut.swap(to_cut_);
    }
    for (const auto session : cut) {
      std::vector<int> fds;
      for (const auto& [fd, peer] : peers_)
        if (peer.domain && peer.session == session) fds.push_back(fd);
      for (const int fd : fds) drop(fd, "session ended");
    }
    drop_silent_strangers();
    if (!accepting_ && count == 0) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = listening_.get();
      accepting_ = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listening_.get(), &event) == 0;
    }
  }
  peers_.clear();
  connections_.store(0);
}

void ShmListener::accept_some() {
  for (int i = 0; i < 16; ++i) {
    UniqueFd socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The peer stays in the backlog and would wake us for ever: look away for a moment.
        log::bounded(log::Level::warn, "rdma", "shm: no descriptor for a connection ({}); raise `ulimit -n`",
                     std::strerror(errno));
        accepting_ = ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listening_.get(), nullptr) != 0;
      }
      return;
    }
    // A storm of strangers costs the oldest stranger its place, never a reader its connection.
    if (strangers_ >= strangers_max) {
      int oldest = -1;
      for (const auto& [fd, peer] : peers_)
        if (!peer.domain && (oldest < 0 || peer.opened < peers_.at(oldest).opened)) oldest = fd;
      if (oldest >= 0) drop(oldest, "too many connections without a token");
    }
    if (peers_.size() >= static_cast<std::size_t>(options_.connections_max) + strangers_max) continue;
    const int fd = socket.get();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) continue;
    peers_.emplace(fd, Peer{std::move(socket), clock_.now(), nullptr, 0, {}});
    ++strangers_;
  }
}

void ShmListener::hear(int fd) {
  const auto found = peers_.find(fd);
  if (found == peers_.end()) return;
  // Few at a time, so that a chatterbox leaves time for the others; epoll comes back for the rest.
  for (int i = 0; i < 8; ++i) {
    std::array<std::byte, 128> bytes;
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;  // no control buffer: descriptors sent to us are closed by the kernel
    const auto got = ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return drop(fd, "peer closed");
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return drop(fd, "message too long, or with descriptors");
    if (!handle(found->second, Bytes(bytes).first(static_cast<std::size_t>(got))))
      return drop(fd, "refused or malformed");
  }
}

bool ShmListener::handle(Peer& peer, Bytes message) {
  if (!peer.domain) {
    const auto hello = parse<Hello>(message);
    return hello && hello->magic_number == magic && greet(peer, *hello);
  }
  const auto ask = parse<Ask>(message);
  return ask && ask->kind == 1 && answer(peer, *ask);
}

std::size_t ShmListener::of_principal(std::string_view principal) const {
  std::size_t count = 0;
  for (const auto& [fd, peer] : peers_) count += peer.domain && peer.domain->principal() == principal ? 1 : 0;
  return count;
}

bool ShmListener::greet(Peer& peer, const Hello& hello) {
  Welcome welcome;
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(peer.socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return false;
  if (hello.version_number != version) {
    welcome.status = Status::incompatible;
  } else {
    auto admission = desk_.redeem(*Token::from(std::as_bytes(std::span(hello.token))));
    if (!admission) {
      welcome.status = Status::refused;
      log::bounded(log::Level::warn, "rdma", "shm: connection refused, token unknown, used or expired pid={} uid={}",
                   who.pid, who.uid);
    } else if (connections() >= options_.connections_max ||
               of_principal(admission->domain->principal()) >= options_.connections_per_principal_max) {
      welcome.status = Status::refused;
      log::bounded(log::Level::warn, "rdma", "shm: connection refused, too many principal={} pid={}",
                   admission->domain->principal(), who.pid);
    } else {
      peer.domain = std::dynamic_pointer_cast<KeyTable>(admission->domain);
      if (!peer.domain) return false;
      peer.session = admission->session;
      --strangers_;
      connections_.fetch_add(1);
      log::bounded(log::Level::info, "rdma", "shm: reader connected principal={} session={} pid={} uid={}",
                   peer.domain->principal(), peer.session, who.pid, who.uid);
    }
  }
  const bool sent = ::send(peer.socket.get(), &welcome, sizeof welcome, MSG_DONTWAIT | MSG_NOSIGNAL) ==
                    static_cast<ssize_t>(sizeof welcome);
  return sent && welcome.status == Status::ok;
}

bool ShmListener::answer(Peer& peer, const Ask& ask) {
  Answer answer;
  answer.key = ask.key;
  UniqueFd descriptor;
  const auto known = peer.domain->find(ask.key);
  if (!known) {
    answer.status = Status::unknown_key;
  } else {
    answer.backing = known->backing->id();
    answer.offset = known->offset;
    answer.length = known->length;
    if (!peer.has_descriptor_of.contains(answer.backing)) {
      descriptor = known->backing->read_only_descriptor();
      if (descriptor)
        answer.has_descriptor = 1;
      else
        answer.status = Status::no_descriptor;
    }
  }
  iovec piece{&answer, sizeof answer};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (answer.has_descriptor != 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = descriptor.get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  if (::sendmsg(peer.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof answer))
    return false;
  if (answer.has_descriptor != 0) peer.has_descriptor_of.insert(answer.backing);
  return true;
}

void ShmListener::drop(int fd, const char* why) {
  const auto found = peers_.find(fd);
  if (found == peers_.end()) return;
  if (found->second.domain) {
    connections_.fetch_sub(1);
    log::bounded(log::Level::info, "rdma", "shm: reader gone principal={} session={} why=\"{}\"",
                 found->second.domain->principal(), found->second.session, why);
  } else {
    --strangers_;
    log::debug("rdma", "shm: stranger dropped why=\"{}\"", why);
  }
  peers_.erase(found);  // closing takes it out of epoll
}

void ShmListener::drop_silent_strangers() {
  if (strangers_ == 0) return;
  const auto now = clock_.now();
  std::vector<int> silent;
  for (const auto& [fd, peer] : peers_)
    if (!peer.domain && now - peer.opened > hello_timeout) silent.push_back(fd);
  for (const int fd : silent) drop(fd, "no hello in time");
}

}  // namespace

Result<std::unique_ptr<Listener>> listen(const ListenOptions& options, const Clock& clock) {
  auto listener = std::make_unique<ShmListener>(options, clock);
  if (const auto started = listener->start(); !started) return started.error();
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace ciuic::rdma::shm
