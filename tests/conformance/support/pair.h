#pragma once
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "tests/conformance/support/memfd.h"
#include "tests/conformance/support/providers.h"
#include "transport/base/log.h"

namespace ciuic::testing {

/// Broker and client of one provider, connected, with some memory exposed.
class Pair {
 public:
  static constexpr std::size_t exposed_bytes = 256U << 10;
  static constexpr std::size_t exposed_at = 64U << 10;  // of the memfd: there is memory on both sides of it

  explicit Pair(const Subject& subject) : provider(subject.make(system_clock())), striped(subject.striped) {
    options.source = subject.source;
    options.timeout = std::chrono::seconds(20);  // a lost message of rdma_cm comes again after seconds
    log::set_level(log::Level::off);             // hundreds of connections a test
    memory = std::make_shared<Memfd>(512U << 10);
    for (std::size_t i = 0; i < memory->bytes().size(); ++i) memory->bytes()[i] = pattern(i);
    domain = provider->open_domain("User:alice").value();
    ListenOptions listening;
    listening.runtime_dir = folder.path();
    listening.socket_mode = 0666;
    listening.address = subject.listen;
    listening.connections_per_principal_max = 8;
    listener = provider->listen(listening).value();
    region.emplace(domain->expose(memory->part(memory, exposed_at, exposed_bytes)).value());
    endpoint = connect().value();
  }
  static std::byte pattern(std::size_t at) { return static_cast<std::byte>(at * 31 + at / 253); }

  Token admitted(SessionId session = 1, std::shared_ptr<Domain> of = nullptr) {
    const auto token = Token::random();
    listener->admit(token, of ? std::move(of) : domain, session, system_clock().now() + std::chrono::seconds(30));
    return token;
  }
  Result<std::unique_ptr<Endpoint>> connect(SessionId session = 1) {
    auto both = options;
    if (striped) both.second = admitted(session);
    return provider->connect(listener->address(), admitted(session), both);
  }
  Result<std::unique_ptr<Endpoint>> connect(const Token& token) {
    return provider->connect(listener->address(), token, options);
  }
  /// Reads to the end, cut at the provider's limit. The destination is filled with 0xEE before.
  Result<Buffer> read(Endpoint& from, const RemoteSpan& span) {
    auto landing = from.make_landing(std::max<std::size_t>(span.length, 1));
    if (!landing) return landing.error();
    std::fill((*landing)->bytes().begin(), (*landing)->bytes().end(), std::byte{0xEE});
    for (std::uint32_t at = 0; at < span.length || span.length == 0;) {
      const auto length = std::min(span.length - at, from.caps().read_bytes_max);
      const ReadRequest request{{span.address + at, length, span.key}, (*landing)->bytes().subspan(at, length), 7};
      if (const auto posted = from.post_reads(std::span(&request, 1)); !posted) return posted.error();
      if (const auto fault = complete(from)) {
        untouched = std::all_of((*landing)->bytes().begin(), (*landing)->bytes().end(),
                                [](std::byte b) { return b == std::byte{0xEE}; });
        return *fault;
      }
      at += length;
      if (span.length == 0) break;
    }
    return Buffer((*landing)->bytes().begin(), (*landing)->bytes().begin() + span.length);
  }
  static std::optional<Fault> complete(Endpoint& from) {
    std::array<Completion, 1> completion;
    const auto until = system_clock().now() + std::chrono::seconds(20);
    while (system_clock().now() < until) {
      const auto got = from.poll(completion);
      if (!got) return got.error();
      if (*got == 1) return completion[0].fault;
    }
    return Fault::read_timed_out;
  }
  bool holds(const Buffer& bytes, std::size_t at) const {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != pattern(exposed_at + at + i)) return false;
    return true;
  }
  /// That an endpoint is to the listener, once it has counted.
  [[nodiscard]] std::size_t connections_of_one() const { return striped ? 2 : 1; }
  /// Waits for what the broker's side does on its own thread.
  template <class Condition>
  static bool soon(Condition condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return condition();
  }

  TemporaryFolder folder;
  ConnectOptions options;
  std::shared_ptr<Provider> provider;
  bool striped;  // an endpoint is two connections
  std::shared_ptr<Memfd> memory;
  std::shared_ptr<Domain> domain;
  std::unique_ptr<Listener> listener;
  std::optional<Region> region;
  std::unique_ptr<Endpoint> endpoint;
  bool untouched = false;
};

}  // namespace ciuic::testing
