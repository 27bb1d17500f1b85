// Kill and restart of brokers and one-sided readers by seed, while records are produced: each is read once, in order.
//   onesided_rounds BROKER                       the rounds; CIUIC_ROUNDS, CIUIC_SEED, CIUIC_PROVIDER (shm, verbs, ofi,
//                                                ucx), CIUIC_EVENT (only rounds of this name)
//   onesided_rounds read BOOTSTRAP PROVIDER OFFSET…   a reader, started by the above: one line a poll on stdout
// In the guest of tools/rdma-vm (CIUIC_PROVIDER=verbs) rounds also cut the wire, lose packets, and remove a device and
// bring it back.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ciuic/client.h"

namespace {

using namespace ciuic::client;
using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr const char* topic = "rounds";
constexpr int partitions = 2;

std::string env(const char* name, std::string fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : std::move(fallback);
}

/// With two devices on each side (`--rails 2`) both addresses, else one.
bool two_rails() { return !env("RDMA_VM_ADDR3", "").empty(); }
std::string addresses(const char* first, const char* second, std::string fallback = "") {
  const auto one = env(first, std::move(fallback));
  return two_rails() ? one + "," + env(second, "") : one;
}

/// Below those that the system takes for connections: the broker must get it again after each of its lives.
int free_port() {
  int below = 0;
  if (!(std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> below)) below = 32768;
  std::random_device dice;
  for (int i = 0; i < 1000; ++i) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int port = std::uniform_int_distribution(10000, below - 1)(dice);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free = ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(socket);
    if (free) return port;
  }
  return 0;
}

/// Processes that must not outlive this one.
std::array<std::atomic<pid_t>, 2> children{};

/// Where the kernel has a process's threads: who waits for ever shows so. Nothing where only root may see it.
void print_stacks(pid_t pid) {
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ignored))
    for (const char* const what : {"comm", "stack"}) {
      std::stringstream text;
      text << std::ifstream(task.path() / what).rdbuf();
      fmt::print("{}", text.str());
    }
}

[[noreturn]] void fail(const std::string& why) {
  for (const auto& child : children)
    if (child.load() > 0) print_stacks(child.load());
  for (const auto& child : children)
    if (child.load() > 0) ::kill(child.load(), SIGKILL);
  fmt::print("FAILED: {}\n", why);
  std::fflush(stdout);
  std::_Exit(1);
}

Config settings(const std::string& bootstrap) { return {{"bootstrap.servers", bootstrap}}; }

// --- The reader's process ---

/// Checks that the n-th record of a partition has offset n and says n; tells where it is: "at P NEXT_OFFSET PATH".
int read(const std::string& bootstrap, const std::string& provider, const std::vector<std::int64_t>& from) {
  auto config = settings(bootstrap);
  config.emplace_back("onesided.providers", provider);
  if (provider != "shm") config.emplace_back("onesided.source", addresses("RDMA_VM_ADDR0", "RDMA_VM_ADDR2"));
  auto consumer = Consumer::open(config);
  if (!consumer) fail(consumer.error().text);
  std::vector<TopicPartitionOffset> wanted;
  std::vector<std::int64_t> next = from;
  for (int p = 0; p < partitions; ++p) wanted.push_back({topic, p, from[static_cast<std::size_t>(p)], {}});
  if (const auto done = consumer->assign(wanted); !done) fail(done.error().text);
  RecordReader records;
  while (true) {
    const auto batches = consumer->poll(100ms);
    if (!batches) {
      fmt::print("error {}\n", batches.error().text);
      if (batches.error().trouble == Trouble::data_loss || batches.error().trouble == Trouble::fatal) return 1;
    } else {
      for (const auto& batch : *batches) {
        auto& expected = next[static_cast<std::size_t>(batch.partition())];
        if (const auto opened = records.open(batch); !opened) fail(opened.error().text);
        while (const auto* found = records.next()) {
          const auto& record = *found;
          if (record.offset < expected) continue;  // the batch began before where we started
          const auto text = as_text(record.value.value_or(Bytes{}));
          std::int64_t number = -1;
          (void)std::from_chars(text.data(), text.data() + text.size(), number);
          if (record.offset != expected || number != expected) {
            fmt::print("wrong partition {} expected {} offset {} says {}\n", batch.partition(), expected, record.offset,
                       number);
            return 1;
          }
          ++expected;
        }
      }
    }
    for (int p = 0; p < partitions; ++p) {
      const auto path = consumer->path({topic, p});
      fmt::print("at {} {} {}\n", p, next[static_cast<std::size_t>(p)],
                 path.path == Path::one_sided ? path.provider : std::string(name(path.path)));
    }
    std::fflush(stdout);
  }
}

// --- The rounds ---

struct Child {
  std::atomic<pid_t>& pid;
  void end(int signal) {
    if (pid == 0) return;
    ::kill(pid, signal);
    if (signal == SIGKILL) ::kill(pid, SIGCONT);
    int status = 0;
    ::waitpid(pid, &status, 0);
    pid = 0;
  }
};

pid_t start(const std::vector<std::string>& words, int out) {
  std::vector<char*> arguments;
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, out, 1);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("cannot start " + words[0]);
  return pid;
}

class Rounds {
 public:
  Rounds(std::string broker, std::string provider, std::uint64_t seed)
      : broker_program_(std::move(broker)), provider_(std::move(provider)), dice_(seed) {
    std::string pattern = (std::filesystem::temp_directory_path() / "ciuic-rounds-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) fail("no temporary folder");
    folder_ = pattern;
    log_ = ::open((folder_ + "/broker.log").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
    start_broker();
    start_reader();
    producer_ = std::thread([this] { produce(); });
  }
  ~Rounds() {
    stop_.store(true);
    producer_.join();
    reader_.end(SIGKILL);
    broker_.end(SIGKILL);
    if (reader_out_ >= 0) ::close(reader_out_);
    ::close(log_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void round(int number) {
    enum class Where { anywhere, on_wire, not_ucx };
    struct Event {
      const char* name;
      void (Rounds::*run)();
      Where where;  // on_wire: needs the guest's; not_ucx: its TCP ends a broker whose reader goes amid a READ
    };
    static constexpr std::array<Event, 11> events{{{"broker killed", &Rounds::kill_broker, Where::anywhere},
                                                   {"reader killed", &Rounds::kill_reader, Where::not_ucx},
                                                   {"both killed", &Rounds::kill_both, Where::anywhere},
                                                   {"reader frozen", &Rounds::freeze_reader, Where::anywhere},
                                                   {"broker frozen", &Rounds::freeze_broker, Where::not_ucx},
                                                   {"broker stopped", &Rounds::stop_broker, Where::anywhere},
                                                   {"packets lost", &Rounds::lose_packets, Where::on_wire},
                                                   {"wire cut", &Rounds::cut_wire, Where::on_wire},
                                                   {"link down", &Rounds::link_down, Where::on_wire},
                                                   {"broker's device", &Rounds::remove_broker_device, Where::on_wire},
                                                   {"reader's device", &Rounds::remove_reader_device, Where::on_wire}}};
    const auto happens = [this](Where where) {
      return where == Where::on_wire ? provider_ == "verbs" : where == Where::anywhere || provider_ != "ucx";
    };
    const auto& event = [&]() -> const Event& {
      while (true) {
        const auto& one = events[dice_() % events.size()];
        if (!only_.empty() ? only_ == one.name : happens(one.where)) return one;
      }
    }();
    std::this_thread::sleep_for(std::chrono::milliseconds(dice_() % 200));
    (this->*event.run)();
    const auto began = Steady::now();
    // Records that nobody has yet: what the reader says of them it says afterwards.
    std::array<std::int64_t, partitions> goal{};
    for (std::size_t p = 0; p < partitions; ++p) goal[p] = acknowledged_[p].load() + 50;
    const auto there = [&] {
      bool all = true;
      for (std::size_t p = 0; p < partitions; ++p) all = all && at_[p] > goal[p] && path_[p] == provider_;
      return all;
    };
    // Everything acknowledged is read, more than that, and one-sidedly again.
    while (!there()) {
      if (Steady::now() - began > 60s)
        fail(fmt::format("round {} ({}): read to {} and {} of {} and {}, paths {} and {}; the broker's log: {}", number,
                         event.name, at_[0], at_[1], goal[0], goal[1], path_[0], path_[1], tail_of_log()));
      listen(50ms);
    }
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now() - began).count();
    auto& seen = took_[event.name];
    seen.first += 1;
    seen.second = std::max<std::int64_t>(seen.second, took);
  }
  void report() const {
    for (const auto& [name, seen] : took_)
      fmt::print("{:>4} x {:<15} slowest back on {} after {} ms\n", seen.first, name, provider_, seen.second);
    fmt::print("{} records acknowledged and read once\n", acknowledged_[0].load() + acknowledged_[1].load());
  }

 private:
  void start_broker() {
    const auto port_file = folder_ + "/port";
    std::filesystem::remove(port_file);
    std::vector<std::string> words{broker_program_, "--port-file", port_file};
    for (const std::string& one :
         {"log.dirs=" + folder_ + "/logs", fmt::format("listeners=PLAINTEXT://127.0.0.1:{}", port_),
          fmt::format("num.partitions={}", partitions), std::string("onesided.lease.ms=1500"),
          "onesided.providers=" + provider_,
          "onesided.listen=" +
              addresses("RDMA_VM_ADDR1", "RDMA_VM_ADDR3", provider_ == "ofi" || provider_ == "ucx" ? "127.0.0.1" : ""),
          std::string("rdma.trusted.readers=true"), std::string("log.segment.bytes=1048576"),
          std::string("log.memory.bytes=67108864")}) {
      words.push_back("--override");
      words.push_back(one);
    }
    broker_.pid = start(words, log_);
    const auto began = Steady::now();
    while (!std::filesystem::exists(port_file)) {
      if (Steady::now() - began > 30s) fail("the broker did not start: " + tail_of_log());
      std::this_thread::sleep_for(5ms);
    }
  }
  [[nodiscard]] std::string bootstrap() const { return fmt::format("127.0.0.1:{}", port_); }
  [[nodiscard]] std::string tail_of_log() const {
    std::ifstream file(folder_ + "/broker.log");
    std::stringstream all;
    all << file.rdbuf();
    const auto text = all.str();
    return text.substr(text.size() > 3000 ? text.size() - 3000 : 0);
  }
  void start_reader() {
    if (reader_out_ >= 0) ::close(reader_out_);
    unread_.clear();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("no pipe");
    std::vector<std::string> words{"/proc/self/exe", "read", bootstrap(), provider_};
    for (const auto offset : at_) words.push_back(std::to_string(offset));
    reader_.pid = start(words, ends[1]);
    ::close(ends[1]);
    reader_out_ = ends[0];
    path_ = {};
  }
  /// Takes what the reader says, for so long at most.
  void listen(std::chrono::milliseconds patience) {
    pollfd ready{reader_out_, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(patience.count())) <= 0) return;
    std::array<char, 65536> bytes;
    const auto got = ::read(reader_out_, bytes.data(), bytes.size());
    if (got <= 0) fail("the reader ended by itself: " + last_error_);
    unread_.append(bytes.data(), static_cast<std::size_t>(got));
    std::size_t end = 0;
    while ((end = unread_.find('\n')) != std::string::npos) {
      const auto line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      std::istringstream words(line);
      std::string what;
      std::size_t partition = 0;
      words >> what;
      if (what == "at") {
        words >> partition >> at_.at(partition) >> path_.at(partition);
      } else {
        last_error_ = line;
        if (what != "error") fail("the reader: " + line);
      }
    }
  }
  /// Numbers each partition's records from 0 on; idempotent, so that offset and number agree if nothing is lost.
  void produce() {
    auto config = settings(bootstrap());
    config.emplace_back("linger.ms", "1");
    config.emplace_back("delivery.timeout.ms", "600000");
    auto producer = Producer::open(config);
    if (!producer) fail(producer.error().text);
    std::array<std::int64_t, partitions> number{};
    std::string value;
    while (!stop_.load()) {
      for (int p = 0; p < partitions; ++p) {
        auto& mine = number[static_cast<std::size_t>(p)];
        if (mine - acknowledged_[static_cast<std::size_t>(p)].load() > 2000) continue;
        value = std::to_string(mine);
        value.resize(200, ' ');
        RecordToSend record;
        record.topic = topic;
        record.partition = p;
        record.value = as_bytes(value);
        const auto sent = producer->send(record, [this, p, expected = mine](const Result<Written>& written) {
          if (!written && stop_.load()) return;
          if (!written) fail("not written: " + written.error().text);
          if (written->offset >= 0 && written->offset != expected)
            fail(fmt::format("record {} of partition {} was written at {}", expected, p, written->offset));
          acknowledged_[static_cast<std::size_t>(p)].store(expected);
        });
        if (sent) ++mine;
      }
      std::this_thread::sleep_for(1ms);
    }
  }

  void kill_broker() {
    broker_.end(SIGKILL);
    start_broker();
  }
  void stop_broker() {
    broker_.end(SIGTERM);
    start_broker();
  }
  void kill_reader() {
    reader_.end(SIGKILL);
    start_reader();
  }
  void kill_both() {
    reader_.end(SIGKILL);
    broker_.end(SIGKILL);
    start_broker();
    start_reader();
  }
  /// Past its lease: chunks are taken from it meanwhile.
  void freeze_reader() {
    ::kill(reader_.pid, SIGSTOP);
    std::this_thread::sleep_for(2500ms);
    ::kill(reader_.pid, SIGCONT);
  }
  void freeze_broker() {
    ::kill(broker_.pid, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(500 + dice_() % 2500));
    ::kill(broker_.pid, SIGCONT);
  }
  static void shell(const std::string& command) {
    if (std::system(command.c_str()) != 0) fail(command);
  }
  void lose_packets() {
    shell("tc qdisc add dev rdma0 root netem loss 5% && tc qdisc add dev rdma1 root netem loss 5%");
    std::this_thread::sleep_for(1500ms);
    shell("tc qdisc del dev rdma0 root && tc qdisc del dev rdma1 root");
  }
  void cut_wire() {
    shell("tc qdisc add dev rdma0 root netem loss 100%");
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + dice_() % 2000));
    shell("tc qdisc del dev rdma0 root");
  }
  void link_down() {
    shell("ip link set rdma1 down");
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + dice_() % 2000));
    shell(
        "ip link set rdma1 up; ip neigh replace 10.77.0.1 lladdr 02:77:00:00:00:01 dev rdma1 nud permanent;"
        " ip neigh replace 10.77.0.2 lladdr 02:77:00:00:00:02 dev rdma0 nud permanent");
  }

  /// The device of one side goes and comes back while both processes live: Fetch over TCP meanwhile, verbs afterwards
  /// by themselves. Soft-RoCE waits with the removal for whoever has the device open, so they must have let go of it
  /// too.
  void remove_broker_device() { remove_device("rxe1", "rdma1", "0a4d:0002"); }
  void remove_reader_device() { remove_device("rxe0", "rdma0", "0a4d:0001"); }
  void remove_device(const std::string& device, const std::string& interface, const std::string& gid) {
    const auto before = Steady::now();
    while (path_[0] != provider_ || path_[1] != provider_) {  // in the first round it has just begun
      if (Steady::now() - before > 30s) fail("nothing is read over verbs: " + tail_of_log());
      listen(50ms);
    }
    const auto removed = folder_ + "/removed";
    shell(fmt::format("(rdma link del {}; touch {}) &", device, removed));
    const auto began = Steady::now();
    const auto goal = acknowledged_[0].load() + 50;
    // Where there is another device it is read by that one.
    while (at_[0] <= goal || (path_[0] != "tcp" && !two_rails()) || !std::filesystem::exists(removed)) {
      if (Steady::now() - began > 30s)
        fail(fmt::format("{} {}; the reader without it: read to {} of {}, path {}; the broker's log: {}", device,
                         std::filesystem::exists(removed) ? "is gone" : "does not go", at_[0], goal, path_[0],
                         tail_of_log()));
      listen(50ms);
    }
    shell(fmt::format("rm {}; rdma link add {} type rxe netdev {}", removed, device, interface));
    while (std::system(fmt::format("grep -q {} /sys/class/infiniband/{}/ports/1/gids/*", gid, device).c_str()) != 0)
      std::this_thread::sleep_for(20ms);
  }

  std::string broker_program_, provider_, folder_;
  std::string only_ = env("CIUIC_EVENT", "");
  std::mt19937_64 dice_;
  int log_ = -1, reader_out_ = -1;
  const int port_ = free_port();
  Child broker_{children[0]}, reader_{children[1]};
  std::string unread_, last_error_;
  std::array<std::int64_t, partitions> at_{};
  std::array<std::string, partitions> path_{};
  std::array<std::atomic<std::int64_t>, partitions> acknowledged_{-1, -1};
  std::map<std::string, std::pair<int, std::int64_t>> took_;
  std::atomic<bool> stop_{false};
  std::thread producer_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  ::signal(SIGPIPE, SIG_DFL);
  if (words.size() == 3 + partitions && words[0] == "read") {
    std::vector<std::int64_t> from;
    for (std::size_t i = 3; i < words.size(); ++i) from.push_back(std::stoll(words[i]));
    return read(words[1], words[2], from);
  }
  if (words.size() != 1) {
    fmt::print(stderr, "usage: onesided_rounds BROKER\n");
    return 2;
  }
  const auto count = std::stoi(env("CIUIC_ROUNDS", "20"));
  const auto seed = std::stoull(env("CIUIC_SEED", "1"));
  const auto provider = env("CIUIC_PROVIDER", "shm");
  fmt::print("{} rounds, seed {}, provider {}\n", count, seed, provider);
  std::fflush(stdout);
  {
    Rounds rounds(words[0], provider, seed);
    for (int i = 0; i < count; ++i) rounds.round(i);
    rounds.report();
  }
  fmt::print("{} passed, 0 failed\n", count);
  return 0;
}
