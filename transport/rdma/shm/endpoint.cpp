// The client's end of shm: asks for keys over the socket, maps each memfd once, reads in place or copies.
// Nothing from the socket is believed: lengths against the file's real size, the file against shrinking.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <unordered_map>
#include <vector>

#include "transport/base/fork_guard.h"
#include "transport/base/log.h"
#include "transport/rdma/shm/protocol.h"

namespace ciuic::rdma::shm {

namespace {

constexpr std::size_t keys_remembered = 1U << 16;
/// Questions without an answer yet. The broker drops a peer whose answers find no room in its socket: these do, several
/// times over.
constexpr std::size_t asks_outstanding_max = 64;

/// A read-only mapping of a part of a memfd.
class Piece {
 public:
  Piece(const std::byte* at, std::uint64_t offset, std::size_t length) : at_(at), offset_(offset), length_(length) {}
  Piece(Piece&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), offset_(other.offset_), length_(other.length_) {}
  Piece& operator=(Piece&&) = delete;
  ~Piece() {
    if (at_) ::munmap(const_cast<std::byte*>(at_), length_);
  }
  [[nodiscard]] std::optional<Bytes> find(std::uint64_t offset, std::uint32_t length) const {
    if (offset < offset_ || offset - offset_ > length_ || length > length_ - (offset - offset_)) return std::nullopt;
    return Bytes(at_ + (offset - offset_), length);
  }

 private:
  const std::byte* at_;
  std::uint64_t offset_;
  std::size_t length_;
};

struct Mapped {
  UniqueFd descriptor;
  std::uint64_t mapped_to = 0;
  std::vector<Piece> pieces;
};

class HeapLanding final : public Landing {
 public:
  explicit HeapLanding(std::size_t size) : bytes_(size) {}
  MutableBytes bytes() override { return bytes_; }

 private:
  Buffer bytes_;
};

class ShmEndpoint final : public Endpoint, public Mapper {
 public:
  ShmEndpoint(UniqueFd socket, Milliseconds timeout, const Clock& clock)
      : socket_(std::move(socket)), timeout_(timeout), clock_(clock) {}

  const Caps& caps() const override { return shm_caps(); }
  Mapper* mapper() override { return this; }
  Result<std::unique_ptr<Landing>> make_landing(std::size_t bytes) override {
    return std::unique_ptr<Landing>(std::make_unique<HeapLanding>(bytes));
  }
  Result<Bytes> view(const RemoteSpan& span) override;
  void expect(std::span<const RemoteSpan> spans) override;
  Result<std::size_t> post_reads(std::span<const ReadRequest> batch) override;
  Result<std::size_t> poll(std::span<Completion> into) override;
  void close() override {
    done_.clear();
    wanted_.clear();
    asked_.clear();
    socket_ = UniqueFd();
    if (!broken_) broken_ = Fault::peer_gone;
  }

 private:
  struct Region {
    std::uint64_t address;
    Bytes bytes;
  };
  [[nodiscard]] Result<const Region*> learn(std::uint64_t key);
  [[nodiscard]] Result<Bytes> map(std::uint64_t backing, UniqueFd descriptor, std::uint64_t offset,
                                  std::uint32_t length);
  [[nodiscard]] Result<void> ask(std::uint64_t key, int flags);
  void ask_wanted();
  [[nodiscard]] Result<Status> take_answer();
  [[nodiscard]] Result<Answer> receive(UniqueFd& descriptor);
  [[nodiscard]] bool readable(Milliseconds within);
  void look_at_socket();
  Fault break_with(Fault fault) {
    if (!broken_) broken_ = fault;
    return fault;
  }

  UniqueFd socket_;
  Milliseconds timeout_;
  const Clock& clock_;
  ForkGuard fork_{};
  std::optional<Fault> broken_;
  std::unordered_map<std::uint64_t, Region> regions_;
  std::unordered_map<std::uint64_t, Mapped> mapped_;
  std::deque<std::uint64_t> wanted_;  // keys expected, not asked for yet
  std::deque<std::uint64_t> asked_;   // in the order of the answers to come
  std::deque<Completion> done_;
  Clock::TimePoint looked_at_{};
};

Result<Bytes> ShmEndpoint::view(const RemoteSpan& span) {
  if (fork_.in_child()) return Fault::forked_child;
  if (broken_) return *broken_ == Fault::peer_gone ? Fault::peer_gone : Fault::qp_in_error;
  const Region* region = nullptr;
  if (const auto found = regions_.find(span.key); found != regions_.end()) {
    region = &found->second;
  } else {
    const auto learnt = learn(span.key);
    if (!learnt) return learnt.error();
    region = *learnt;
  }
  if (span.address < region->address) return break_with(Fault::access_error);
  const auto at = span.address - region->address;
  if (at > region->bytes.size() || span.length > region->bytes.size() - at) return break_with(Fault::access_error);
  return region->bytes.subspan(at, span.length);
}

void ShmEndpoint::expect(std::span<const RemoteSpan> spans) {
  if (fork_.in_child() || broken_) return;
  for (const auto& span : spans)
    if (wanted_.size() < keys_remembered && !regions_.contains(span.key)) wanted_.push_back(span.key);
  while (!broken_ && !asked_.empty() && readable(Milliseconds(0)))
    if (const auto status = take_answer(); !status) break_with(status.error());
  ask_wanted();
}

Result<const ShmEndpoint::Region*> ShmEndpoint::learn(std::uint64_t key) {
  const auto deadline = clock_.now() + timeout_;
  bool asked = std::find(asked_.begin(), asked_.end(), key) != asked_.end();
  while (true) {
    if (!asked && asked_.size() < asks_outstanding_max) {
      if (const auto sent = ask(key, 0); !sent) return break_with(sent.error());
      asked = true;
    }
    ask_wanted();
    const auto left = std::chrono::ceil<Milliseconds>(deadline - clock_.now());
    if (!readable(std::max(left, Milliseconds(0)))) return break_with(Fault::peer_gone);
    const bool ours = !asked_.empty() && asked_.front() == key;
    const auto status = take_answer();
    if (!status) return break_with(status.error());
    if (!ours) continue;
    if (*status == Status::ok) return &regions_.find(key)->second;
    return break_with(*status == Status::unknown_key ? Fault::access_error : Fault::resources_exhausted);
  }
}

Result<void> ShmEndpoint::ask(std::uint64_t key, int flags) {
  Ask question;
  question.key = key;
  if (::send(socket_.get(), &question, sizeof question, MSG_NOSIGNAL | flags) != static_cast<ssize_t>(sizeof question))
    return (flags & MSG_DONTWAIT) != 0 && errno == EAGAIN ? Fault::would_block : Fault::peer_gone;
  asked_.push_back(key);
  return {};
}

/// As many as may be under way.
void ShmEndpoint::ask_wanted() {
  while (!broken_ && !wanted_.empty() && asked_.size() < asks_outstanding_max) {
    const auto key = wanted_.front();
    if (!regions_.contains(key)) {
      const auto sent = ask(key, MSG_DONTWAIT);
      if (!sent && sent.error() == Fault::would_block) return;
      if (!sent) break_with(sent.error());
    }
    wanted_.pop_front();
  }
}

bool ShmEndpoint::readable(Milliseconds within) {
  pollfd ready{socket_.get(), POLLIN, 0};
  int count = 0;
  do count = ::poll(&ready, 1, static_cast<int>(within.count()));
  while (count < 0 && errno == EINTR);
  return count > 0;
}

/// The answer that lies in the socket. One that refuses is no fault yet: nobody may need the key any more.
Result<Status> ShmEndpoint::take_answer() {
  UniqueFd descriptor;
  const auto answer = receive(descriptor);
  if (!answer) return answer.error();
  asked_.pop_front();
  if (answer->status != Status::ok) return answer->status;
  const auto bytes = map(answer->backing, std::move(descriptor), answer->offset, answer->length);
  if (!bytes && bytes.error() == Fault::resources_exhausted) return Status::no_descriptor;
  if (!bytes) return bytes.error();
  // Keys of chunks that are long gone: forgetting all is rare, and asking again is cheap.
  if (regions_.size() >= keys_remembered) regions_.clear();
  regions_.insert_or_assign(answer->key, Region{answer->offset, *bytes});
  return Status::ok;
}

Result<Answer> ShmEndpoint::receive(UniqueFd& descriptor) {
  std::array<std::byte, sizeof(Answer) + 1> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec piece{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  // Room for one descriptor and not a byte more: with its padding there would be room for two, and nobody to close
  // both.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const auto got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  for (auto* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int)))
      continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    descriptor = UniqueFd(fd);
  }
  if (got <= 0) return Fault::peer_gone;
  const auto answer = parse<Answer>(Bytes(bytes).first(static_cast<std::size_t>(got)));
  if (!answer || asked_.empty() || answer->kind != 2 || answer->key != asked_.front() ||
      (answer->has_descriptor != 0) != static_cast<bool>(descriptor))
    return (message.msg_flags & MSG_CTRUNC) != 0 ? Fault::resources_exhausted : Fault::incompatible;
  return *answer;
}

Result<Bytes> ShmEndpoint::map(std::uint64_t backing, UniqueFd descriptor, std::uint64_t offset, std::uint32_t length) {
  auto& mapped = mapped_[backing];
  if (descriptor) {
    // A file that could shrink under the mapping would kill this process at its next read.
    const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return Fault::incompatible;
    mapped.descriptor = std::move(descriptor);
  }
  for (const auto& piece : mapped.pieces)
    if (const auto bytes = piece.find(offset, length)) return *bytes;
  struct stat info {};
  if (!mapped.descriptor || ::fstat(mapped.descriptor.get(), &info) != 0) return Fault::incompatible;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (length == 0 || offset > size || length > size - offset) return Fault::access_error;
  // Usually all that the file has grown by; a range across an earlier end gets a mapping of its own.
  constexpr std::uint64_t page = 4096;
  std::uint64_t from = mapped.mapped_to;
  std::uint64_t to = size;
  if (offset < from) {
    from = offset / page * page;
    to = offset + length;
  }
  void* at = ::mmap(nullptr, to - from, PROT_READ, MAP_SHARED | MAP_NORESERVE, mapped.descriptor.get(),
                    static_cast<off_t>(from));
  if (at == MAP_FAILED) return Fault::resources_exhausted;
  if (to == size) mapped.mapped_to = size;
  mapped.pieces.emplace_back(static_cast<const std::byte*>(at), from, to - from);
  return *mapped.pieces.back().find(offset, length);
}

/// A slot is written while it is copied: whole words, so that only its version can tell, never a torn word.
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

Result<std::size_t> ShmEndpoint::post_reads(std::span<const ReadRequest> batch) {
  if (fork_.in_child()) return Fault::forked_child;
  if (broken_) return *broken_ == Fault::peer_gone ? Fault::peer_gone : Fault::qp_in_error;
  std::size_t taken = 0;
  for (const auto& request : batch) {
    if (done_.size() >= shm_caps().reads_outstanding_max) break;
    if (request.from.length > shm_caps().read_bytes_max || request.to.size() != request.from.length)
      return break_with(Fault::access_error);
    ++taken;
    if (broken_) {
      done_.push_back({request.id, Fault::qp_in_error});
      continue;
    }
    const auto bytes = request.from.length == 0 ? Result<Bytes>(Bytes{}) : view(request.from);
    if (bytes && !bytes->empty()) copy_out(*bytes, request.to);
    done_.push_back({request.id, bytes ? std::nullopt : std::optional(bytes.error())});
  }
  if (taken == 0 && !batch.empty()) return Fault::would_block;
  return taken;
}

Result<std::size_t> ShmEndpoint::poll(std::span<Completion> into) {
  if (fork_.in_child()) return Fault::forked_child;
  std::size_t count = 0;
  while (count < into.size() && !done_.empty()) {
    into[count++] = done_.front();
    done_.pop_front();
  }
  if (count > 0) return count;
  look_at_socket();
  if (broken_) return *broken_;
  return count;
}

void ShmEndpoint::look_at_socket() {
  const auto now = clock_.now();
  if (broken_ || now - looked_at_ < Milliseconds(1)) return;
  looked_at_ = now;
  // Nothing is sent to us unasked: readable with no answer due means closed.
  while (!broken_ && readable(Milliseconds(0))) {
    if (asked_.empty()) {
      broken_ = Fault::peer_gone;
    } else if (const auto status = take_answer(); !status) {
      broken_ = status.error();
    }
  }
  ask_wanted();
}

}  // namespace

Result<std::unique_ptr<Endpoint>> connect(const std::string& address, const Token& token, const ConnectOptions& options,
                                          const Clock& clock) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (address.empty() || address.size() >= sizeof name.sun_path) return Fault::address_unreachable;
  std::memcpy(name.sun_path, address.c_str(), address.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return Fault::resources_exhausted;
  const auto ms = std::max<std::int64_t>(options.timeout.count(), 1);
  const timeval patience{ms / 1000, ms % 1000 * 1000};
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
    return Fault::resources_exhausted;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0)
    return Fault::address_unreachable;
  Hello hello;
  std::memcpy(hello.token, token.bytes.data(), sizeof hello.token);
  if (::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello))
    return Fault::peer_gone;
  std::array<std::byte, sizeof(Welcome) + 1> bytes;
  const auto got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
  if (got <= 0) return Fault::peer_gone;
  const auto welcome = parse<Welcome>(Bytes(bytes).first(static_cast<std::size_t>(got)));
  if (!welcome || welcome->magic_number != magic) return Fault::incompatible;
  if (welcome->status == Status::refused) return Fault::refused;
  if (welcome->status != Status::ok || welcome->version_number != version) return Fault::incompatible;
  return std::unique_ptr<Endpoint>(std::make_unique<ShmEndpoint>(std::move(socket), options.timeout, clock));
}

}  // namespace ciuic::rdma::shm
