// What strangers say before there is any trust between the ends. The first byte's low bits choose: 0 the messages of
// shm, verbs, ofi and ucx and the addresses alone; 1 a broker of shm that answers a client as it likes; 2 a client of
// shm that asks a broker as it likes. Each message has two bytes of length before it.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "tests/conformance/support/memfd.h"
#include "tests/conformance/support/providers.h"
#include "tests/fuzz/support/input.h"
#include "transport/base/log.h"
#include "transport/rdma/address.h"
#include "transport/rdma/ofi/protocol.h"
#include "transport/rdma/shm/protocol.h"
#include "transport/rdma/shm/shm.h"
#include "transport/rdma/ucx/protocol.h"
#include "transport/rdma/verbs/protocol.h"

using namespace ciuic;
using fuzz::Input;
using fuzz::must;
namespace ofi = rdma::ofi;
namespace ucx = rdma::ucx;
namespace shm = rdma::shm;
namespace verbs = rdma::verbs;

namespace {

template <class Message>
void parse_shm(Bytes bytes) {
  must(shm::parse<Message>(bytes).has_value() == (bytes.size() == sizeof(Message)));
}

void messages(Input input) {
  const auto taken = input.piece();
  // To the byte, so that a look behind the end is seen.
  const auto copy = std::make_unique<std::byte[]>(taken.size());
  std::copy(taken.begin(), taken.end(), copy.get());
  const Bytes bytes(copy.get(), taken.size());
  parse_shm<shm::Hello>(bytes);
  parse_shm<shm::Welcome>(bytes);
  parse_shm<shm::Ask>(bytes);
  parse_shm<shm::Answer>(bytes);
  must(verbs::parse<verbs::Hello>(bytes.data(), bytes.size()).has_value() == (bytes.size() >= sizeof(verbs::Hello)));
  must(verbs::parse<verbs::Welcome>(bytes.data(), bytes.size()).has_value() ==
       (bytes.size() >= sizeof(verbs::Welcome)));
  must(verbs::parse<verbs::Hello>(nullptr, sizeof(verbs::Hello)) == std::nullopt);
  must(ofi::parse<ofi::Hello>(bytes).has_value() == (bytes.size() >= sizeof(ofi::Hello)));
  must(ofi::parse<ofi::Welcome>(bytes).has_value() == (bytes.size() >= sizeof(ofi::Welcome)));
  if (const auto hello = ofi::parse<ofi::RdmHello>(bytes))
    if (const auto name = ofi::name_in(*hello)) must(!name->empty() && name->size() <= ofi::name_bytes_max);
  if (const auto welcome = ofi::parse<ofi::RdmWelcome>(bytes))
    if (const auto name = ofi::name_in(*welcome)) must(!name->empty() && name->size() <= ofi::name_bytes_max);
  must(ucx::parse<ucx::Hello>(bytes).has_value() == (bytes.size() == sizeof(ucx::Hello)));
  must(ucx::parse<ucx::KeyAnswer>(bytes).has_value() == (bytes.size() == sizeof(ucx::KeyAnswer)));
  (void)rdma::Token::from(bytes);
  if (const auto all = rdma::parse_addresses(as_text(bytes))) {
    must(!all->empty());
    for (auto address : *all) must(rdma::Address::parse(address.text()).has_value());
  }
}

/// The lowest free descriptor: no higher afterwards than before, or one has leaked.
int lowest_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get(); }

bool send_bytes(int socket, Bytes bytes) {
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

/// Sends one message with `count` copies of a descriptor.
void send_with(int socket, Bytes bytes, int descriptor, unsigned count) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  if (count > 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    auto* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (unsigned i = 0; i < count; ++i)
      std::memcpy(CMSG_DATA(header) + i * sizeof(int), &descriptor, sizeof descriptor);
  }
  (void)!::sendmsg(socket, &message, MSG_NOSIGNAL);
}

/// Kept over all runs: a socket to connect to, a listener, the memory they hand out.
struct World {
  World()
      : listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), memory(std::make_shared<testing::Memfd>(8192)) {
    log::set_level(log::Level::off);
    path = folder.path() + "/broker";
    const auto name = name_of(path);
    must(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 &&
         ::listen(listening.get(), 8) == 0);
    provider = rdma::make_shm_provider(system_clock());
    domain = provider->open_domain("User:a").value();
    region.emplace(domain->expose(memory->part(memory, 0, 4096)).value());
    rdma::ListenOptions options;
    options.runtime_dir = folder.path();
    listener = provider->listen(options).value();
  }
  static sockaddr_un name_of(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path.c_str(), std::min(path.size() + 1, sizeof name.sun_path - 1));
    return name;
  }
  testing::TemporaryFolder folder;
  std::string path;
  UniqueFd listening;
  std::shared_ptr<testing::Memfd> memory;
  std::shared_ptr<rdma::Provider> provider;
  std::shared_ptr<rdma::Domain> domain;
  std::optional<rdma::Region> region;
  std::unique_ptr<rdma::Listener> listener;
};

void serve(int listening, Input& input, int descriptor) {
  UniqueFd peer(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
  const timeval patience{2, 0};
  must(peer && ::setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
  std::array<std::byte, 128> heard;
  if (::recv(peer.get(), heard.data(), heard.size(), 0) <= 0) return;
  if ((input.number<std::uint8_t>() & 7) == 0) {
    if (!send_bytes(peer.get(), input.piece())) return;
  } else {
    const shm::Welcome welcome;
    if (!send_bytes(peer.get(), std::as_bytes(std::span(&welcome, 1)))) return;
  }
  while (!input.empty()) {
    const auto got = ::recv(peer.get(), heard.data(), heard.size(), 0);
    if (got != static_cast<ssize_t>(sizeof(shm::Ask))) return;
    const auto kind = input.number<std::uint8_t>();
    auto answer = to_buffer(input.piece());
    const unsigned count = (kind >> 1) & 3;
    if ((kind & 1) == 0) {
      answer.resize(sizeof(shm::Answer));
      shm::Answer right;
      std::memcpy(&right, answer.data(), sizeof right);
      std::memcpy(&right.key, heard.data() + offsetof(shm::Ask, key), sizeof right.key);
      right.kind = 2;
      right.has_descriptor = count == 1 ? 1 : 0;
      std::memcpy(answer.data(), &right, sizeof right);
    }
    if (answer.empty()) return;  // of length 0: cannot be told from the end
    send_with(peer.get(), answer, descriptor, count);
  }
}

void hostile_broker(World& world, Input input) {
  const int lowest = lowest_descriptor();
  const auto kind = input.number<std::uint8_t>();
  UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  must(file && ::ftruncate(file.get(), input.number<std::uint16_t>()) == 0);
  if ((kind & 1) == 0) must(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  std::array<rdma::RemoteSpan, 6> spans;
  for (auto& span : spans) {
    span.key = input.number<std::uint8_t>();
    span.address = input.number<std::uint16_t>();
    span.length = input.number<std::uint16_t>();
  }
  if ((kind & 2) != 0) spans[5] = {input.number<std::uint64_t>(), input.number<std::uint32_t>(), spans[0].key};
  std::thread broker([&] { serve(world.listening.get(), input, file.get()); });
  {
    rdma::ConnectOptions options;
    auto endpoint = world.provider->connect(world.path, rdma::Token{}, options);
    if (endpoint) {
      std::vector<Bytes> seen;
      if ((kind & 4) != 0) (*endpoint)->mapper()->expect(spans);
      for (const auto& span : spans) {
        const auto bytes = (*endpoint)->mapper()->view(span);
        if (!bytes) break;
        must(bytes->size() == span.length);
        if (!bytes->empty()) seen.push_back(*bytes);
      }
      // Whatever was mapped stays readable, even if the broker would like it otherwise.
      (void)!::ftruncate(file.get(), 0);
      for (const auto bytes : seen) {
        const volatile std::byte first = bytes.front(), last = bytes.back();
        (void)first;
        (void)last;
      }
    }
  }
  broker.join();
  file = UniqueFd();
  must(lowest_descriptor() <= lowest);
}

void hostile_client(World& world, Input input) {
  if (input.empty()) return;  // nobody would hear, and the broker may take the descriptor of one that is gone later
  rdma::Token token;
  token.bytes[0] = 1;
  const auto now = system_clock().now();
  world.listener->admit(token, world.domain, 1, now + std::chrono::seconds(10));
  {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto name = World::name_of(world.listener->address());
    const timeval patience{2, 0};
    must(socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) {
      for (bool hello = true; !input.empty(); hello = false) {
        const auto kind = input.number<std::uint8_t>();
        auto message = to_buffer(input.piece());
        if (message.empty()) message.resize(1);  // of length 0: cannot be told from the end
        if ((kind & 1) == 0 && hello) {
          shm::Hello right;
          std::copy(token.bytes.begin(), token.bytes.end(), right.token);
          message = to_buffer(std::as_bytes(std::span(&right, 1)));
        } else if ((kind & 1) == 0) {
          shm::Ask right;
          right.key = world.region->remote().key;
          message = to_buffer(std::as_bytes(std::span(&right, 1)));
        }
        send_with(socket.get(), message, socket.get(), (kind >> 1) & 1);
        // Heard, and answered or closed. Room for no descriptor: what comes with an answer is closed by the kernel.
        std::array<std::byte, 128> answer;
        const auto got = ::recv(socket.get(), answer.data(), answer.size(), 0);
        must(got >= 0 || errno == ECONNRESET);
        if (got <= 0) break;
        must(got == static_cast<ssize_t>(hello ? sizeof(shm::Welcome) : sizeof(shm::Answer)));
      }
    }
  }
  world.listener->disconnect(1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const auto what = input.number<std::uint8_t>() & 3;
  if (what == 0 || what == 3) {
    messages(input);
    return 0;
  }
  static World world;
  if (what == 1) {
    hostile_broker(world, input);
  } else {
    hostile_client(world, input);
  }
  return 0;
}
