#pragma once
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "transport/base/executor.h"

namespace ciuic::broker {

/// One io_context with one thread: connections live on one, partitions are owned by one.
class Shard final : public Executor {
 public:
  explicit Shard(std::size_t index);
  ~Shard() override;  // stops and joins

  void start();
  /// Lets the thread end after what is queued; posts from then on are dropped with the shard.
  void stop();
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] boost::asio::io_context& context() { return context_; }
  /// The shard whose thread this is; nullptr on others.
  [[nodiscard]] static Shard* current();

  void post(Task task) override;
  void post_at(Clock::TimePoint when, Task task) override;
  [[nodiscard]] bool is_current() const override { return current() == this; }

 private:
  std::size_t index_;
  boost::asio::io_context context_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

/// All shards of a broker.
class Shards {
 public:
  explicit Shards(std::size_t count);
  void start();
  void stop();
  [[nodiscard]] std::size_t size() const { return shards_.size(); }
  [[nodiscard]] Shard& operator[](std::size_t index) { return *shards_[index % shards_.size()]; }
  [[nodiscard]] std::vector<Executor*> executors();

 private:
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace ciuic::broker
