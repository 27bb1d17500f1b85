// READs through the one-sided seam, as bare as `ib_read_bw` and `ib_read_lat` do them: no slots, no batches, no checks.
//   verbs_reads serve LISTEN               exposes 16 MiB; prints what a reader needs to know, serves until killed
//   verbs_reads bandwidth ADDRESS TOKEN SPAN SOURCE BYTES READS   one line: MB/s
//   verbs_reads latency   ADDRESS TOKEN SPAN SOURCE BYTES READS   one line: median and 99th percentile in us
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/log.h"
#include "transport/rdma/registry.h"

namespace {

using namespace ciuic;
using namespace ciuic::rdma;
using Steady = std::chrono::steady_clock;

constexpr std::uint32_t exposed_bytes = 16U << 20;

[[noreturn]] void fail(Fault fault, const char* what) {
  fmt::print(stderr, "verbs_reads: {}: {}; {}\n", what, text(fault), remedy(fault));
  std::exit(1);
}
template <class T>
T must(Result<T> result, const char* what) {
  if (!result) fail(result.error(), what);
  return std::move(*result);
}

int serve(const std::string& address) {
  log::set_level(log::Level::warn);
  const auto provider = must(make_provider("verbs", system_clock()), "provider");
  const auto domain = must(provider->open_domain("User:bench"), "domain");
  ListenOptions options;
  options.address = address;
  const auto listener = must(provider->listen(options), "listen");
  void* memory = ::mmap(nullptr, exposed_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  const auto region = must(domain->expose({Bytes(static_cast<std::byte*>(memory), exposed_bytes)}), "expose");
  // One token a line, each good for one connection.
  for (int i = 0; i < 64; ++i) {
    const auto token = Token::random();
    listener->admit(token, domain, 1, system_clock().now() + std::chrono::hours(1));
    std::string hex;
    for (const auto byte : token.bytes) hex += fmt::format("{:02x}", byte);
    fmt::print("{} {} {}:{}:{}\n", listener->address(), hex, region.remote().address, region.remote().length,
               region.remote().key);
  }
  std::fflush(stdout);
  ::pause();
  return 0;
}

struct Reader {
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Landing> landing;
  RemoteSpan span;

  explicit Reader(const std::vector<std::string>& words, std::uint32_t bytes) {
    const auto provider = must(make_provider("verbs", system_clock()), "provider");
    Token token;
    for (std::size_t i = 0; i < token.bytes.size(); ++i)
      token.bytes[i] = static_cast<std::uint8_t>(std::stoul(words[2].substr(2 * i, 2), nullptr, 16));
    const auto first = words[3].find(':'), second = words[3].rfind(':');
    span = {std::stoull(words[3]), static_cast<std::uint32_t>(std::stoul(words[3].substr(first + 1))),
            std::stoull(words[3].substr(second + 1))};
    ConnectOptions options;
    options.source = words[4] == "-" ? "" : words[4];
    endpoint = must(provider->connect(words[1], token, options), "connect");
    landing = must(endpoint->make_landing(std::size_t{bytes} * endpoint->caps().reads_outstanding_max), "landing");
  }
  [[nodiscard]] ReadRequest request(std::uint64_t number, std::uint32_t bytes) const {
    const auto places = endpoint->caps().reads_outstanding_max;
    return {*span.sub(static_cast<std::uint32_t>(number % (exposed_bytes / bytes)) * bytes, bytes),
            landing->bytes().subspan(number % places * bytes, bytes), number};
  }
};

int bandwidth(const std::vector<std::string>& words) {
  const auto bytes = static_cast<std::uint32_t>(std::stoul(words[5]));
  const auto reads = std::stoull(words[6]);
  Reader reader(words, bytes);
  std::uint64_t posted = 0, done = 0;
  std::array<Completion, 32> completions;
  const auto began = Steady::now();
  while (done < reads) {
    while (posted < reads) {
      const auto one = reader.request(posted, bytes);
      const auto taken = reader.endpoint->post_reads(std::span(&one, 1));
      if (!taken && taken.error() != Fault::would_block) fail(taken.error(), "post");
      if (!taken) break;
      ++posted;
    }
    const auto got = must(reader.endpoint->poll(completions), "poll");
    for (std::size_t i = 0; i < got; ++i)
      if (completions[i].fault) fail(*completions[i].fault, "read");
    done += got;
  }
  const std::chrono::duration<double> took = Steady::now() - began;
  fmt::print("{:.2f}\n", static_cast<double>(reads) * bytes / 1e6 / took.count());
  return 0;
}

int latency(const std::vector<std::string>& words) {
  const auto bytes = static_cast<std::uint32_t>(std::stoul(words[5]));
  const auto reads = std::stoull(words[6]);
  Reader reader(words, bytes);
  std::vector<double> all;
  all.reserve(reads);
  std::array<Completion, 1> completion;
  for (std::uint64_t i = 0; i < reads; ++i) {
    const auto one = reader.request(i, bytes);
    const auto began = Steady::now();
    (void)must(reader.endpoint->post_reads(std::span(&one, 1)), "post");
    while (must(reader.endpoint->poll(completion), "poll") == 0) {
    }
    if (completion[0].fault) fail(*completion[0].fault, "read");
    all.push_back(std::chrono::duration<double, std::micro>(Steady::now() - began).count());
  }
  std::sort(all.begin(), all.end());
  fmt::print("{:.2f} {:.2f}\n", all[all.size() / 2], all[all.size() * 99 / 100]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "serve") return serve(words[1]);
  if (words.size() == 7 && words[0] == "bandwidth") return bandwidth(words);
  if (words.size() == 7 && words[0] == "latency") return latency(words);
  fmt::print(stderr, "run bench/verbs_vs_perftest, which knows the arguments\n");
  return 2;
}
