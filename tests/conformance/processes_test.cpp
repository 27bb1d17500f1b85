// Readers and brokers as processes of their own, over every provider that reads from another process. A reader that
// stands still in the middle of its READs while its memory is revoked and gets other bytes, and then goes on: what a
// provider does not keep from it the reader's own rule must, by which what arrived counts if it is whole and the lease
// is in force afterwards. And both sides killed.
#include <fcntl.h>
#include <fmt/core.h>

#include <random>
#include <sstream>
#include <thread>

#include "tests/conformance/support/child_process.h"
#include "tests/conformance/support/pair.h"

namespace ciuic::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t piece_bytes = 64U << 10;
constexpr std::uint32_t pieces = 32;
constexpr std::byte older{0x11}, later{0x22}, nothing{0xEE};

std::vector<Subject> subjects_of_other_processes() {
  std::vector<Subject> found;
  for (const auto& subject : all_subjects())
    if (!subject.name.starts_with("memory") && !subject.name.ends_with("decorated")) found.push_back(subject);
  return found;
}

Subject subject_named(const std::string& wanted) {
  for (const auto& one : all_subjects())
    if (one.name == wanted) return one;
  std::abort();
}

/// Of a child, to the test that started it.
void say(const std::string& line) { (void)!::write(ChildProcess::report_fd, line.data(), line.size()); }

/// What the reader made of its READs: pieces whole and in time; whole and too late; with bytes missing or mixed; whole,
/// in time and wrong; with any byte that was written after the revocation, however they ended.
struct Tally {
  long believed = 0, late = 0, torn = 0, wrong = 0, later_bytes = 0;
  void count(Bytes piece, bool succeeded, bool in_force) {
    const auto is = [piece](std::byte what) {
      return static_cast<std::size_t>(std::count(piece.begin(), piece.end(), what));
    };
    if (is(later) > 0) ++later_bytes;
    if (!succeeded) return;
    if (is(older) != piece.size() && is(later) != piece.size())
      ++torn;
    else if (!in_force)
      ++late;
    else
      ++(is(older) == piece.size() ? believed : wrong);
  }
};

/// The process that freezes or is killed: reads its region over and over, until it is refused or its lease is long
/// over.
void read_until_refused(std::istringstream& words) {
  const auto say = [](const std::string& line) { (void)!::write(ChildProcess::report_fd, line.data(), line.size()); };
  std::string name_of_subject, address, token;
  RemoteSpan span;
  int lease_ms = 0;
  words >> name_of_subject >> address >> token >> span.address >> span.length >> span.key >> lease_ms;
  log::set_level(log::Level::off);
  const auto subject = subject_named(name_of_subject);
  const auto provider = subject.make(system_clock());
  auto endpoint = provider->connect(address, token_of(token), {20s, subject.source}).value();
  auto landing = endpoint->make_landing(piece_bytes * pieces).value();
  const auto deadline = system_clock().now() + Milliseconds(lease_ms);

  Tally tally;
  std::optional<Fault> fault;
  int rounds_over = 0;
  for (int round = 0; !fault && rounds_over < 20; ++round) {
    if (system_clock().now() >= deadline) ++rounds_over;
    std::fill(landing->bytes().begin(), landing->bytes().end(), nothing);
    std::vector<ReadRequest> batch;
    for (std::uint32_t i = 0; i < pieces; ++i)
      batch.push_back(
          {*span.sub(i * piece_bytes, piece_bytes), landing->bytes().subspan(i * piece_bytes, piece_bytes), i});
    std::size_t posted = 0, completed = 0;
    std::array<Completion, pieces> done;
    while (completed < pieces && !fault) {
      const auto took =
          posted < pieces ? endpoint->post_reads(std::span(batch).subspan(posted)) : Result<std::size_t>(0);
      if (took) posted += *took;
      if (!took && took.error() != Fault::would_block) fault = took.error();
      const auto got = endpoint->poll(done);
      if (!got) fault = got.error();
      for (std::size_t i = 0; got && i < *got; ++i, ++completed) {
        if (done[i].fault) fault = done[i].fault;
        const auto piece = landing->bytes().subspan(done[i].id * piece_bytes, piece_bytes);
        tally.count(piece, !done[i].fault, system_clock().now() < deadline);
      }
    }
    if (round == 0) say("reading\n");
  }
  endpoint->close();
  // Nothing is written there any more: what came of READs that were never told of.
  const bool leaked = std::count(landing->bytes().begin(), landing->bytes().end(), later) > 0;
  say(fmt::format("{} {} {} {} {} {}\n", tally.believed, tally.late, tally.torn, tally.wrong,
                  tally.later_bytes + (leaked ? 1 : 0), fault ? name(*fault) : "none"));
}

[[maybe_unused]] const bool is_reader = child_role("CIUIC_READER_CHILD", &read_until_refused);

class OtherProcess : public ::testing::TestWithParam<Subject> {
 protected:
  /// The others are served as if nothing were.
  void expect_nobody_waits() {
    const auto began = system_clock().now();
    const auto read = pair_.read(*pair_.endpoint, *pair_.region->remote().sub(0, 65536));
    ASSERT_TRUE(read) << name(read.error());
    EXPECT_TRUE(pair_.holds(*read, 0));
    auto another = pair_.connect(3);
    ASSERT_TRUE(another) << name(another.error());
    EXPECT_TRUE(pair_.read(**another, *pair_.region->remote().sub(4096, 64)));
    EXPECT_LT(system_clock().now() - began, 5s);
  }
  std::unique_ptr<ChildProcess> start_reader(const RemoteSpan& span, int lease_ms) {
    auto reader = std::make_unique<ChildProcess>(
        "CIUIC_READER_CHILD", fmt::format("{} {} {} {} {} {} {}", GetParam().name, pair_.listener->address(),
                                          text_of(pair_.admitted(5)), span.address, span.length, span.key, lease_ms));
    EXPECT_EQ(reader->line(), "reading");
    return reader;
  }
  Pair pair_{GetParam()};
  const std::size_t alone_ = pair_.connections_of_one();
  std::shared_ptr<Memfd> memory_ = std::make_shared<Memfd>(piece_bytes * pieces);
};

class FrozenReader : public OtherProcess {
 protected:
  enum class End { lease_over, forced };
  void freeze_and_thaw(End end) {
    std::fill(memory_->bytes().begin(), memory_->bytes().end(), older);
    auto region = pair_.domain->expose(memory_->part(memory_, 0, piece_bytes * pieces)).value();
    const bool lease_first = end == End::lease_over || !strict();
    constexpr int lease_ms = 600;
    const auto child = start_reader(region.remote(), lease_first ? lease_ms : 60'000);
    auto& reader = *child;
    std::this_thread::sleep_for(std::chrono::microseconds(dice_() % 30'000));
    reader.freeze();
    expect_nobody_waits();
    if (lease_first) std::this_thread::sleep_for(Milliseconds(lease_ms));
    const auto began = system_clock().now();
    ASSERT_TRUE(region.revoke());
    if (end == End::forced) pair_.listener->disconnect(5);
    EXPECT_LT(system_clock().now() - began, 2s) << "nothing waits for it";
    std::fill(memory_->bytes().begin(), memory_->bytes().end(), later);
    if (end == End::forced) {
      EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == alone_; }))
          << "cut though it does not answer";
    }
    expect_nobody_waits();
    reader.thaw();
    std::istringstream report(reader.line());
    Tally tally;
    std::string fault;
    ASSERT_TRUE(report >> tally.believed >> tally.late >> tally.torn >> tally.wrong >> tally.later_bytes >> fault);
    EXPECT_EQ(reader.wait(), 0);
    EXPECT_GT(tally.believed, 0);
    EXPECT_EQ(tally.wrong, 0) << "later bytes taken for the older";
    if (strict()) {
      EXPECT_EQ(tally.later_bytes, 0) << "it got bytes of others";
      EXPECT_NE(fault, "none");
    } else if (end == End::forced && pair_.provider->crosses_hosts()) {
      EXPECT_NE(fault, "none");
    }
    late_ += tally.late;
    torn_ += tally.torn;
    EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == alone_; }));
    expect_nobody_waits();
  }
  /// The provider itself keeps later bytes from it.
  [[nodiscard]] bool strict() const { return pair_.provider->caps().enforces_revocation && !GetParam().soft_iwarp; }

  std::mt19937 dice_{17};
  long late_ = 0, torn_ = 0;
};

TEST_P(FrozenReader, NeverTakesLaterBytesForTheOlderAndHoldsNobodyUp) {
  for (int round = 0; round < 3; ++round) freeze_and_thaw(End::lease_over);
  RecordProperty("pieces_too_late", static_cast<int>(late_));
  RecordProperty("pieces_torn", static_cast<int>(torn_));
}

/// Where rights are taken away no lease is waited for: the connection goes first.
TEST_P(FrozenReader, ThatIsCutWhileItStandsGetsNothingMore) {
  for (int round = 0; round < 3; ++round) freeze_and_thaw(End::forced);
}

using KilledReader = OtherProcess;
TEST_P(KilledReader, IsForgottenWithItsReadsUnderWay) {
  if (GetParam().falls_with_a_killed_reader)
    GTEST_SKIP() << "this host's " << GetParam().name << " can end a process whose reader is killed amid a READ";
  const auto region = pair_.domain->expose(memory_->part(memory_, 0, piece_bytes * pieces)).value();
  auto reader = start_reader(region.remote(), 60'000);
  EXPECT_GT(pair_.listener->connections(), alone_);
  const auto began = system_clock().now();
  (void)reader->kill();
  EXPECT_TRUE(Pair::soon([&] { return pair_.listener->connections() == alone_; }));
  const auto took = std::chrono::duration_cast<Milliseconds>(system_clock().now() - began);
  RecordProperty("noticed_ms", std::to_string(took.count()));
  expect_nobody_waits();
}

/// The process that is killed: serves one reader.
void serve_until_killed(std::istringstream& words) {
  std::string name_of_subject, token;
  ListenOptions options;
  words >> name_of_subject >> token >> options.runtime_dir;
  log::set_level(log::Level::off);
  const auto subject = subject_named(name_of_subject);
  const auto provider = subject.make(system_clock());
  options.address = subject.listen;
  const auto listener = provider->listen(options).value();
  const auto memory = std::make_shared<Memfd>(piece_bytes);
  std::fill(memory->bytes().begin(), memory->bytes().end(), older);
  const auto domain = provider->open_domain("User:alice").value();
  const auto region = domain->expose(memory->part(memory, 0, piece_bytes)).value();
  listener->admit(token_of(token), domain, 1, system_clock().now() + 60s);
  const auto span = region.remote();
  say(fmt::format("{} {} {} {}\n", listener->address(), span.address, span.length, span.key));
  while (true) ::pause();
}

[[maybe_unused]] const bool is_broker = child_role("CIUIC_BROKER_CHILD", &serve_until_killed);

class KilledBroker : public ::testing::TestWithParam<Subject> {};

/// What a client's way back begins with.
TEST_P(KilledBroker, IsNoticedByItsReadersSoonAndInWords) {
  const TemporaryFolder folder;
  const auto token = Token::random();
  ChildProcess broker("CIUIC_BROKER_CHILD", fmt::format("{} {} {}", GetParam().name, text_of(token), folder.path()));
  std::istringstream words(broker.line());
  std::string address;
  RemoteSpan span;
  ASSERT_TRUE(words >> address >> span.address >> span.length >> span.key);
  const auto provider = GetParam().make(system_clock());
  ConnectOptions options{20s, GetParam().source};
  const auto endpoint = provider->connect(address, token, options).value();
  const auto landing = endpoint->make_landing(piece_bytes).value();
  const ReadRequest request{span, landing->bytes(), 1};
  const auto read = [&]() -> std::optional<Fault> {
    std::fill(landing->bytes().begin(), landing->bytes().end(), nothing);
    if (const auto posted = endpoint->post_reads(std::span(&request, 1)); !posted) return posted.error();
    return Pair::complete(*endpoint);
  };
  for (int i = 0; i < 20; ++i) ASSERT_FALSE(read());
  const auto began = system_clock().now();
  (void)broker.kill();
  std::optional<Fault> fault;
  while (!fault && system_clock().now() - began < 10s) {
    fault = read();
    const auto wrong = std::count_if(landing->bytes().begin(), landing->bytes().end(),
                                     [](std::byte byte) { return byte != older && byte != nothing; });
    ASSERT_EQ(wrong, 0);
    std::array<Completion, 1> none;
    if (const auto polled = endpoint->poll(none); !fault && !polled) fault = polled.error();
  }
  const auto took = std::chrono::duration_cast<Milliseconds>(system_clock().now() - began);
  ASSERT_TRUE(fault);
  EXPECT_EQ(outcome_of(*fault), Outcome::reconnect) << name(*fault);
  EXPECT_LT(took, 5s);
  RecordProperty("noticed_ms", std::to_string(took.count()));
  options.timeout = 2s;
  const auto again = provider->connect(address, Token::random(), options);
  ASSERT_TRUE(again.has_error());
  EXPECT_LT(system_clock().now() - began - took, 10s) << "nobody is there any more, and that is said";
  RecordProperty("then", std::string(name(again.error())));
}

INSTANTIATE_TEST_SUITE_P(Every, FrozenReader, ::testing::ValuesIn(subjects_of_other_processes()),
                         [](const auto& subject) { return subject.param.name; });
INSTANTIATE_TEST_SUITE_P(Every, KilledReader, ::testing::ValuesIn(subjects_of_other_processes()),
                         [](const auto& subject) { return subject.param.name; });
INSTANTIATE_TEST_SUITE_P(Every, KilledBroker, ::testing::ValuesIn(subjects_of_other_processes()),
                         [](const auto& subject) { return subject.param.name; });

}  // namespace
}  // namespace ciuic::testing
