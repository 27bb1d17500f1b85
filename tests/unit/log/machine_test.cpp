// The log on the machine's own files and threads, where the other tests have simulated ones: bytes through page cache
// and restart, and that written partitions do not keep more files open than they may.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "broker/log/open_logs.h"
#include "tests/unit/log/support/log_world.h"

namespace ciuic::broker {
namespace {

namespace fs = std::filesystem;
using testing::LogWorld;
using testing::make_batch;

/// An owner's executor with a thread of its own.
class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor() : thread_([this] { work(); }) {}
  ~ThreadExecutor() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void post(Task task) override { post_at({}, std::move(task)); }
  void post_at(Clock::TimePoint when, Task task) override {
    {
      const std::scoped_lock lock(mutex_);
      tasks_.emplace(when, std::move(task));
    }
    wake_.notify_one();
  }
  [[nodiscard]] bool is_current() const override { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (tasks_.empty() || tasks_.begin()->first > system_clock().now()) {
        wake_.wait_for(lock, Milliseconds(2));
        continue;
      }
      auto task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
      lock.unlock();
      task();
      task = {};
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::multimap<Clock::TimePoint, Task> tasks_;  // equal times stay in the order posted
  std::thread thread_;
};

/// The machine's files, of which few logs may stay open.
class FewOpen final : public Files {
 public:
  explicit FewOpen(std::size_t limit) : open_logs_(limit) {}
  IoResult<std::shared_ptr<File>> open(const std::string& path, OpenMode mode) override {
    return real_.open(path, mode);
  }
  IoResult<std::vector<DirectoryEntry>> list(const std::string& directory) override { return real_.list(directory); }
  IoResult<void> make_directories(const std::string& path) override { return real_.make_directories(path); }
  IoResult<void> rename(const std::string& from, const std::string& to) override { return real_.rename(from, to); }
  IoResult<void> remove(const std::string& path) override { return real_.remove(path); }
  IoResult<void> remove_all(const std::string& path) override { return real_.remove_all(path); }
  IoResult<bool> exists(const std::string& path) override { return real_.exists(path); }
  IoResult<void> sync_directory(const std::string& path) override { return real_.sync_directory(path); }
  IoResult<std::shared_ptr<MappedFile>> make_mapped(const std::string& path, std::uint64_t bytes) override {
    return real_.make_mapped(path, bytes);
  }
  OpenLogs* open_logs() override { return &open_logs_; }

 private:
  Files& real_ = posix_files();
  OpenLogs open_logs_;
};

TEST(ThreadPool, RunsEveryJobAndThoseOfAQueueInTheirOrder) {
  constexpr int queues = 24;
  constexpr int jobs = 200;
  std::vector<std::vector<int>> ran(queues);
  {
    ThreadPoolIo pool(posix_files(), 3);
    std::vector<IoQueue> names;
    for (int i = 0; i < queues; ++i) names.push_back(pool.make_queue());
    std::vector<std::thread> owners;
    for (int owner = 0; owner < 3; ++owner)
      owners.emplace_back([&, owner] {
        for (int job = 0; job < jobs; ++job)
          for (auto queue = static_cast<std::size_t>(owner); queue < queues; queue += 3)
            pool.submit(names[queue], [&ran, queue, job] { ran[queue].push_back(job); });
      });
    for (auto& owner : owners) owner.join();
  }
  std::vector<int> all;
  for (int job = 0; job < jobs; ++job) all.push_back(job);
  for (const auto& queue : ran) EXPECT_EQ(queue, all);
}

TEST(ThreadPool, AJobThatIsHeldUpHoldsNoOtherQueueUp) {
  // Before the pool, whose threads still touch them when the test's thread already has its answer.
  std::promise<void> let_go;
  std::promise<void> others;
  auto held = let_go.get_future();
  std::atomic<int> left{3};
  ThreadPoolIo pool(posix_files(), 2);
  pool.submit(pool.make_queue(), [&held] { held.wait(); });
  for (int i = 0; i < 3; ++i)
    pool.submit(pool.make_queue(), [&] {
      if (left.fetch_sub(1) == 1) others.set_value();
    });
  EXPECT_EQ(others.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  let_go.set_value();
}

/// An owner whose posts run at once where they are not held.
class Heard final : public Executor {
 public:
  void post(Task task) override {
    if (HeldPosts::take(*this, task)) return;
    ++tasks;
    task();
  }
  void post_at(Clock::TimePoint, Task) override { std::abort(); }
  [[nodiscard]] bool is_current() const override { return false; }
  std::atomic<int> tasks{0};
};

TEST(ThreadPool, AWriteThatTheKernelHoldsUpHoldsOthersUpForAMoment) {
  // Writes to the page cache share a thread while it comes on. One that is throttled keeps neither the jobs behind it
  // nor the answers of those before it, even when nobody submits any more.
  for (const auto pause : {0, 20}) {
    Heard owner;
    std::promise<void> let_go;
    std::promise<void> before;
    std::promise<void> others;
    auto held = let_go.get_future();
    std::atomic<int> left{3};
    ThreadPoolIo pool(posix_files(), 2);
    pool.submit_cached(pool.make_queue(), [&] { owner.post([&before] { before.set_value(); }); });
    pool.submit_cached(pool.make_queue(), [&held] { held.wait(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    for (int i = 0; i < 3; ++i)
      pool.submit_cached(pool.make_queue(), [&] {
        if (left.fetch_sub(1) == 1) others.set_value();
      });
    EXPECT_EQ(before.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    EXPECT_EQ(others.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    let_go.set_value();
  }
}

TEST(ThreadPool, OwnersHearOfAWriteBeforeTheThreadGoesToTheDisk) {
  Heard owner;
  std::promise<void> begin;
  std::promise<void> heard;
  std::promise<void> let_go;
  auto begun = begin.get_future();
  auto held = let_go.get_future();
  ThreadPoolIo pool(posix_files(), 1);
  pool.submit_cached(pool.make_queue(), [&begun] { begun.wait(); });
  pool.submit_cached(pool.make_queue(), [&] { owner.post([&heard] { heard.set_value(); }); });
  pool.submit(pool.make_queue(), [&held] { held.wait(); });
  begin.set_value();
  EXPECT_EQ(heard.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  let_go.set_value();
}

TEST(ThreadPool, AQueuesAnswersKeepItsOrderWhateverKindItsJobsAre) {
  Heard owner;
  constexpr int queues = 12;
  constexpr int jobs = 400;
  std::array<std::mutex, queues> locks;
  std::array<std::vector<int>, queues> answers;
  {
    ThreadPoolIo pool(posix_files(), 3);
    std::vector<IoQueue> names;
    for (int i = 0; i < queues; ++i) names.push_back(pool.make_queue());
    for (int job = 0; job < jobs; ++job) {
      for (std::size_t queue = 0; queue < queues; ++queue) {
        auto task = [&, queue, job] {
          owner.post([&, queue, job] {
            const std::scoped_lock lock(locks[queue]);
            answers[queue].push_back(job);
          });
        };
        if ((job + static_cast<int>(queue)) % 3 == 0)
          pool.submit(names[queue], task);
        else
          pool.submit_cached(names[queue], task);
      }
    }
  }
  std::vector<int> all;
  for (int job = 0; job < jobs; ++job) all.push_back(job);
  for (const auto& queue : answers) EXPECT_EQ(queue, all);
  EXPECT_LT(owner.tasks, queues * jobs) << "none went together";
}

TEST(HeldPosts, GoInTheirOrderOneTaskAnExecutor) {
  Heard first;
  Heard second;
  std::vector<int> ran;
  HeldPosts held;
  {
    const HeldPosts::Scope scope(held);
    for (int i = 0; i < 6; ++i) (i % 2 == 0 ? first : second).post([&ran, i] { ran.push_back(i); });
    EXPECT_TRUE(ran.empty());
    held.send();
    EXPECT_EQ(ran, (std::vector<int>{0, 2, 4, 1, 3, 5}));
    first.post([&ran] { ran.push_back(6); });
    EXPECT_EQ(ran.size(), 6U);
  }
  std::thread([&held] { held.send(); }).join();
  EXPECT_EQ(ran.back(), 6);
  EXPECT_EQ(first.tasks, 2);
  EXPECT_EQ(second.tasks, 1);
  first.post([&ran] { ran.push_back(7); });
  EXPECT_EQ(ran.back(), 7) << "nothing is held any more";
}

class OnTheMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ciuic-log-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    start();
  }
  void TearDown() override {
    stop();
    fs::remove_all(folder);
  }

  void start() {
    io = std::make_unique<ThreadPoolIo>(files, 3);
    LogDirectorySettings settings;
    settings.path = folder.string();
    settings.limits.journal_bytes = journal_bytes;
    auto opened = LogDirectory::open(settings, Arena::make(LogWorld::small_arena()), *io, system_clock(), nullptr);
    ASSERT_TRUE(opened) << opened.error().text;
    directory = std::move(*opened);
    const auto loaded = directory->load([this](const FoundPartition& found) {
      return std::optional(PartitionPlan{found.topic_id.value_or(kafka::TopicId{}), config, &executor});
    });
    ASSERT_TRUE(loaded) << loaded.error().text;
  }
  void stop() {
    if (!directory) return;
    std::promise<bool> clean;
    directory->close(1, [&clean](const auto& done) { clean.set_value(done.has_value()); });
    EXPECT_TRUE(clean.get_future().get());
    io.reset();
    directory.reset();
  }

  std::future<ResultOf<AppendResult, AppendError>> append(const std::shared_ptr<Partition>& partition, Buffer batch) {
    auto answer = std::make_shared<std::promise<ResultOf<AppendResult, AppendError>>>();
    auto future = answer->get_future();
    executor.post([partition, answer, batch = std::move(batch)] {
      partition->append(batch, {}, [answer](auto result) { answer->set_value(std::move(result)); });
    });
    return future;
  }
  /// Every byte of the log from its start, brought in from the file where it is not in memory.
  Buffer everything(const std::shared_ptr<Partition>& partition, kafka::Offset end) {
    Buffer all;
    kafka::Offset at{0};
    while (at < end) {
      auto step = std::make_shared<std::promise<void>>();
      auto failed = std::make_shared<std::string>();
      executor.post([&, step, failed] {
        const auto result = partition->read({.offset = at});
        if (result && result->bytes > 0) {
          for (auto span : result->spans) {
            all.insert(all.end(), span.begin(), span.end());
            for (; !span.empty(); span = span.subspan(kafka::RecordBatchView::parse(span)->size()))
              at = kafka::RecordBatchView::parse(span)->next_offset();
          }
        } else if (result && result->miss) {
          return partition->bring_in(*result->miss, 1U << 20, MemoryFor::fetch, [step, failed](const auto& loaded) {
            if (!loaded) *failed = loaded.error().text;
            step->set_value();
          });
        } else {
          *failed = result ? "nothing to read" : result.error().text;
        }
        step->set_value();
      });
      step->get_future().get();
      if (!failed->empty()) {
        ADD_FAILURE() << *failed << " at offset " << at.value;
        return all;
      }
    }
    return all;
  }
  [[nodiscard]] std::size_t logs_open() const {
    std::size_t open = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the iterator's own descriptor
      const auto target = fs::read_symlink(entry.path(), gone).string();
      if (target.starts_with(folder.string()) && target.ends_with(".log")) ++open;
    }
    return open;
  }

  static constexpr std::size_t open_max = 4;
  fs::path folder;
  std::uint64_t journal_bytes = 0;  // each append makes its partition's file open
  LogConfig config;
  FewOpen files{open_max};
  ThreadExecutor executor;
  std::unique_ptr<ThreadPoolIo> io;
  std::unique_ptr<LogDirectory> directory;
};

TEST_F(OnTheMachine, ManyWrittenPartitionsKeepFewFilesOpenAndEveryByte) {
  constexpr int partitions = 40;
  constexpr int rounds = 6;
  config.segment_bytes = 1 << 20;
  std::vector<std::shared_ptr<Partition>> all;
  for (int i = 0; i < partitions; ++i) {
    auto made = directory->create({"t", kafka::PartitionIndex(i)}, {kafka::Uuid::random(), config, &executor});
    ASSERT_TRUE(made) << made.error().text;
    all.push_back(*made);
  }
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::future<ResultOf<AppendResult, AppendError>>> answers;
    for (int i = 0; i < partitions; ++i)
      answers.push_back(
          append(all[static_cast<std::size_t>(i)],
                 make_batch({.records = 2 + i % 3, .value_bytes = static_cast<std::size_t>(100 + 700 * round)})));
    for (auto& answer : answers) {
      const auto result = answer.get();
      ASSERT_TRUE(result) << result.error().error.text;
    }
    EXPECT_LE(logs_open(), open_max);
    EXPECT_GT(logs_open(), 0U);
  }
  std::vector<Buffer> before;
  std::vector<kafka::Offset> ends;
  for (int i = 0; i < partitions; ++i) {
    ends.push_back(kafka::Offset(rounds * (2 + i % 3)));
    before.push_back(everything(all[static_cast<std::size_t>(i)], ends.back()));
    EXPECT_FALSE(before.back().empty());
  }
  all.clear();
  stop();
  start();
  EXPECT_TRUE(directory->was_clean());
  for (int i = 0; i < partitions; ++i) {
    const auto partition = directory->find({"t", kafka::PartitionIndex(i)});
    ASSERT_TRUE(partition);
    EXPECT_EQ(everything(partition, ends[static_cast<std::size_t>(i)]), before[static_cast<std::size_t>(i)])
        << "t-" << i;
  }
  EXPECT_LE(logs_open(), open_max);
}

TEST_F(OnTheMachine, WhatAKilledProcessAcknowledgedFromTheJournalIsInTheFilesAfterTheNextStart) {
  stop();
  journal_bytes = 256U << 10;
  start();
  constexpr int partitions = 7;
  config.segment_bytes = 1 << 16;
  std::vector<std::shared_ptr<Partition>> all;
  for (int i = 0; i < partitions; ++i) {
    auto made = directory->create({"t", kafka::PartitionIndex(i)}, {kafka::Uuid::random(), config, &executor});
    ASSERT_TRUE(made) << made.error().text;
    all.push_back(*made);
  }
  // More than the ring holds, so that it goes round.
  std::vector<kafka::Offset> ends(partitions);
  for (int round = 0; round < 200; ++round) {
    const auto i = static_cast<std::size_t>(round % partitions);
    const auto result = append(all[i], make_batch({.records = 2, .value_bytes = 3000U + 11U * i})).get();
    ASSERT_TRUE(result) << result.error().error.text;
    ends[i] = result->last_offset + 1;
  }
  std::vector<Buffer> before;
  for (std::size_t i = 0; i < partitions; ++i) before.push_back(everything(all[i], ends[i]));
  // As kill -9 leaves it: a copy of the directory while the process still runs.
  const auto copy = fs::path(folder.string() + "-killed");
  fs::remove_all(copy);
  std::promise<void> copied;
  executor.post([&] {
    fs::copy(folder, copy, fs::copy_options::recursive);
    copied.set_value();
  });
  copied.get_future().get();
  all.clear();
  stop();
  EXPECT_FALSE(fs::exists(folder / "ciuic-journal-0")) << "a clean stop leaves no journal";
  fs::remove_all(folder);
  fs::rename(copy, folder);
  start();
  EXPECT_FALSE(directory->was_clean());
  for (int i = 0; i < partitions; ++i) {
    const auto partition = directory->find({"t", kafka::PartitionIndex(i)});
    ASSERT_TRUE(partition);
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(partition->published_high_watermark(), ends[at]) << "t-" << i;
    EXPECT_EQ(everything(partition, ends[at]), before[at]) << "t-" << i;
  }
}

}  // namespace
}  // namespace ciuic::broker
