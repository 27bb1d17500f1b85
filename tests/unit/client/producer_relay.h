#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ciuic::client::test {

/// A TCP relay on loopback that loses connections by seed: before a piece of bytes went on, after half of it, or after
/// all of it, in either direction. What the broker has then done, its client cannot know.
class CuttingRelay {
 public:
  /// One piece in `one_in` ends its connection. 0: none.
  CuttingRelay(std::uint64_t seed, std::uint32_t one_in);
  CuttingRelay(const CuttingRelay&) = delete;
  CuttingRelay& operator=(const CuttingRelay&) = delete;
  ~CuttingRelay();

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void relay_to(std::uint16_t port) { target_.store(port); }
  void set_one_in(std::uint32_t one_in) { one_in_.store(one_in); }
  [[nodiscard]] std::uint64_t cuts() const { return cuts_.load(); }

 private:
  void run();
  /// False: the connection is to end.
  [[nodiscard]] bool forward(int from, int to);

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<std::uint16_t> target_{0};
  std::atomic<std::uint32_t> one_in_;
  std::atomic<std::uint64_t> cuts_{0};
  std::atomic<bool> stop_{false};
  std::mt19937_64 dice_;
  std::map<int, int> peer_;  ///< both ways
  std::thread thread_;
};

}  // namespace ciuic::client::test
