#pragma once
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/unique_fd.h"
#include "transport/rdma/provider.h"

namespace ciuic::testing {

/// What this program does where it is started as a child: a test that is there only if the environment has `role`,
/// whose value is the words it is told.
using ChildsWork = void (*)(std::istringstream& words);
inline bool child_role(const char* role, ChildsWork work) {
  class Work final : public ::testing::Test {
   public:
    Work(ChildsWork work, const char* words) : work_(work), words_(words) {}
    void TestBody() override { work_(words_); }

   private:
    ChildsWork work_;
    std::istringstream words_;
  };
  const char* const words = std::getenv(role);
  if (words == nullptr) return false;
  ::testing::RegisterTest("Child", role, nullptr, nullptr, __FILE__, __LINE__,
                          [work, words]() -> ::testing::Test* { return new Work(work, words); });
  return true;
}

/// This test program again, in a role: a child by fork would share devices and mappings with us. Killed at the end.
class ChildProcess {
 public:
  static constexpr int report_fd = 9;  ///< of the child: what it writes there `line` gives

  ChildProcess(const std::string& role, const std::string& words) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    report_ = UniqueFd(ends[0]);
    const UniqueFd theirs(ends[1]);
    std::vector<char*> environment;
    for (char** one = environ; *one != nullptr; ++one)
      if (!std::string_view(*one).starts_with("GTEST_OUTPUT=")) environment.push_back(*one);
    auto variable = role + "=" + words;
    environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe", only = "--gtest_filter=Child." + role;
    std::string quiet = "--gtest_brief=1";
    char* arguments[] = {program.data(), only.data(), quiet.data(), nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), report_fd);
    ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);  // its tests are not ours
    if (::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environment.data()) != 0) std::abort();
    ::posix_spawn_file_actions_destroy(&actions);
  }
  ~ChildProcess() { (void)kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// The next line of its report; empty: it ended, or nothing came for 60 seconds.
  std::string line() {
    while (true) {
      if (const auto end = unread_.find('\n'); end != std::string::npos) {
        const auto found = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return found;
      }
      pollfd ready{report_.get(), POLLIN, 0};
      std::array<char, 1024> bytes;
      if (::poll(&ready, 1, 60'000) <= 0) return {};
      const auto got = ::read(report_.get(), bytes.data(), bytes.size());
      if (got <= 0) return {};
      unread_.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }
  /// Returns when it stands.
  void freeze() {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }
  void thaw() { ::kill(pid_, SIGCONT); }
  /// Returns when it is gone; its status as of waitpid, or that of an earlier call.
  int kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    return wait();
  }
  int wait() {
    if (pid_ > 0) ::waitpid(pid_, &status_, 0);
    pid_ = 0;
    return status_;
  }

 private:
  pid_t pid_ = 0;
  int status_ = 0;
  UniqueFd report_;
  std::string unread_;
};

/// Tokens as text, for a child.
inline rdma::Token token_of(const std::string& text) {
  rdma::Token token;
  for (std::size_t i = 0; i < token.bytes.size(); ++i)
    token.bytes[i] = static_cast<std::uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  return token;
}
inline std::string text_of(const rdma::Token& token) {
  std::string text;
  for (const auto byte : token.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace ciuic::testing
