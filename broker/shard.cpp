#include "broker/shard.h"

#include <pthread.h>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace ciuic::broker {
namespace asio = boost::asio;

namespace {
thread_local Shard* current_shard = nullptr;
}

Shard::Shard(std::size_t index) : index_(index), context_(1), work_(asio::make_work_guard(context_)) {}

Shard::~Shard() { stop(); }

void Shard::start() {
  thread_ = std::thread([this] {
    current_shard = this;
    ::pthread_setname_np(::pthread_self(), ("shard-" + std::to_string(index_)).c_str());
    context_.run();
    current_shard = nullptr;
  });
}

void Shard::stop() {
  work_.reset();
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

Shard* Shard::current() { return current_shard; }

void Shard::post(Task task) {
  if (HeldPosts::take(*this, task)) return;
  asio::post(context_, [task = std::move(task)]() mutable { task(); });
}

void Shard::post_at(Clock::TimePoint when, Task task) {
  const auto at =
      asio::steady_timer::time_point(std::chrono::duration_cast<asio::steady_timer::duration>(when.time_since_epoch()));
  auto timer = std::make_unique<asio::steady_timer>(context_, at);
  auto& waiting = *timer;
  waiting.async_wait([timer = std::move(timer), task = std::move(task)](boost::system::error_code error) mutable {
    if (!error) task();
  });
}

Shards::Shards(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) shards_.push_back(std::make_unique<Shard>(i));
}
void Shards::start() {
  for (auto& shard : shards_) shard->start();
}
void Shards::stop() {
  for (auto& shard : shards_) shard->stop();
}
std::vector<Executor*> Shards::executors() {
  std::vector<Executor*> all;
  for (auto& shard : shards_) all.push_back(shard.get());
  return all;
}

}  // namespace ciuic::broker
