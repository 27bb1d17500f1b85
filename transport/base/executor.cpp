#include "transport/base/executor.h"

#include <algorithm>

namespace ciuic {

namespace {
thread_local HeldPosts* holder = nullptr;
}

HeldPosts::Scope::Scope(HeldPosts& posts) { holder = &posts; }
HeldPosts::Scope::~Scope() { holder = nullptr; }

bool HeldPosts::take(Executor& executor, Task& task) {
  if (holder == nullptr) return false;
  const std::scoped_lock lock(holder->mutex_);
  auto& held = holder->held_;
  auto at = std::find_if(held.begin(), held.end(), [&](const Held& one) { return one.executor == &executor; });
  if (at == held.end()) at = held.insert(held.end(), Held{&executor, {}});
  at->tasks.push_back(std::move(task));
  return true;
}

void HeldPosts::send() {
  std::vector<Held> held;
  {
    const std::scoped_lock lock(mutex_);
    held.swap(held_);
  }
  auto* const own = std::exchange(holder, nullptr);
  for (auto& one : held) {
    if (one.tasks.size() == 1) {
      one.executor->post(std::move(one.tasks.front()));
      continue;
    }
    one.executor->post([tasks = std::move(one.tasks)]() mutable {
      for (auto& task : tasks) task();
    });
  }
  holder = own;
}

}  // namespace ciuic
