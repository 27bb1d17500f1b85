#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "broker/broker.h"
#include "transport/kafka/net/connection.h"

namespace ciuic::broker {

/// From frames to handlers, and the connections there are. Any thread.
class Dispatcher final : public kafka::net::Service {
 public:
  explicit Dispatcher(Broker& broker);

  /// Takes a new connection's socket on `shard`, or closes it where a limit says so. On that shard.
  void accept(Shard& shard, boost::asio::ip::tcp::socket socket);
  /// Every connection answers what it has read, then ends.
  void drain();
  void close_all();
  [[nodiscard]] std::size_t connections() const { return open_.load(); }

  boost::asio::awaitable<Answer> handle(std::shared_ptr<kafka::net::Connection> connection,
                                        std::shared_ptr<const kafka::net::RequestBytes> request) override;
  [[nodiscard]] std::optional<std::size_t> memory_for(std::int16_t api_key, std::size_t request_bytes) const override;
  void closed(kafka::net::Connection& connection) override;

 private:
  void each(const std::function<void(kafka::net::Connection&)>& act);

  Broker& broker_;
  kafka::net::ConnectionLimits limits_;
  kafka::net::MemoryBudget budget_;
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<std::size_t> open_{0};
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<kafka::net::Connection>> connections_;
  std::unordered_map<std::string, int> by_host_;
};

}  // namespace ciuic::broker
