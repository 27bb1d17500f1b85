#include "broker/api/fetch_sessions.h"

#include <random>

namespace ciuic::broker {
namespace {
// Apache's min.incremental.fetch.session.eviction.ms.
constexpr std::chrono::minutes evictable_after{2};
}  // namespace

std::shared_ptr<FetchSession> FetchSessions::create(std::vector<FetchPartition> partitions, bool by_topic_id) {
  const std::lock_guard lock(mutex_);
  if (sessions_.size() >= slots_) {
    auto oldest = sessions_.end();
    for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
      if (oldest == sessions_.end() || it->second->last_used < oldest->second->last_used) oldest = it;
    }
    if (oldest == sessions_.end() || clock_.now() - oldest->second->last_used < evictable_after) return nullptr;
    sessions_.erase(oldest);
  }
  thread_local std::mt19937 random{std::random_device{}()};
  std::uniform_int_distribution<std::int32_t> any(1, std::numeric_limits<std::int32_t>::max());
  auto session = std::make_shared<FetchSession>();
  do {
    session->id = any(random);
  } while (sessions_.contains(session->id));
  session->by_topic_id = by_topic_id;
  session->partitions = std::move(partitions);
  session->last_used = clock_.now();
  sessions_.emplace(session->id, session);
  return session;
}

std::shared_ptr<FetchSession> FetchSessions::find(std::int32_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  found->second->last_used = clock_.now();
  return found->second;
}

void FetchSessions::remove(std::int32_t id) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(id);
}

std::size_t FetchSessions::size() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

}  // namespace ciuic::broker
