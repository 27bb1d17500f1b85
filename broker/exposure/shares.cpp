// Shares of pinned memory. Not here: what is done with them (exposure.cpp, partition_exposure.cpp).
#include "broker/exposure/shares.h"

#include <algorithm>

namespace ciuic::broker {

void PinnedShares::add(std::string_view principal, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  auto& holding = holdings_[std::string(principal)];
  for (auto* one : {&holding, &all_}) {
    one->bytes += static_cast<std::int64_t>(bytes);
    ++one->regions;
  }
}

void PinnedShares::remove(std::string_view principal, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  const auto found = holdings_.find(principal);
  if (found == holdings_.end()) return;
  for (auto* one : {&found->second, &all_}) {
    one->bytes -= static_cast<std::int64_t>(bytes);
    --one->regions;
  }
  forget_idle();
}

void PinnedShares::forget_idle() {
  std::erase_if(holdings_, [this](const auto& one) { return one.second.regions <= 0 && !in_want(one.second); });
}

void PinnedShares::refused(std::string_view principal, Of what) {
  const std::scoped_lock lock(mutex_);
  const auto now = clock_.now();
  // What is given up while it is short makes nobody's share smaller.
  const bool same = is_short() && what == short_of_;
  room_ = same ? std::max(room_, all_.of(what)) : all_.of(what);
  short_of_ = what;
  short_until_ = now + patience_;
  holdings_[std::string(principal)].refused_at = now;
  forget_idle();
}

bool PinnedShares::is_short() const { return short_until_ && clock_.now() < *short_until_; }

bool PinnedShares::in_want(const Holding& holding) const {
  return holding.refused_at && clock_.now() - *holding.refused_at < patience_;
}

std::int64_t PinnedShares::share() const {
  const auto many = std::count_if(holdings_.begin(), holdings_.end(),
                                  [this](const auto& one) { return one.second.regions > 0 || in_want(one.second); });
  return room_ / std::max<std::int64_t>(many, 1);
}

PinnedShares::Holdings::const_iterator PinnedShares::most() const {
  return std::max_element(holdings_.begin(), holdings_.end(), [this](const auto& a, const auto& b) {
    return a.second.of(short_of_) < b.second.of(short_of_);
  });
}

std::optional<PinnedShares::Allowance> PinnedShares::allowance(std::string_view principal) const {
  const std::scoped_lock lock(mutex_);
  if (!is_short()) return std::nullopt;
  const auto each = share();
  // Who was refused and has its share stands in nobody's way: the device will say what is left.
  const bool needed = std::any_of(holdings_.begin(), holdings_.end(), [&](const auto& one) {
    return one.first != principal && in_want(one.second) && one.second.of(short_of_) < each;
  });
  if (!needed) return std::nullopt;
  const auto found = holdings_.find(principal);
  const auto has = found == holdings_.end() ? 0 : found->second.of(short_of_);
  return Allowance{short_of_, std::max<std::int64_t>(each - has, 0)};
}

std::optional<std::string> PinnedShares::largest() const {
  const std::scoped_lock lock(mutex_);
  const auto found = most();
  if (!is_short() || found == holdings_.end() || found->second.of(short_of_) <= 0) return std::nullopt;
  return found->first;
}

std::optional<PinnedShares::Excess> PinnedShares::excess(std::string_view for_whom) const {
  const std::scoped_lock lock(mutex_);
  const auto found = most();
  if (!is_short() || found == holdings_.end() || found->first == for_whom) return std::nullopt;
  const auto each = share();
  const auto has = found->second.of(short_of_);
  const auto wanting = holdings_.find(for_whom);
  // Principals that are about equal would else take from each other in turn.
  if (has <= each + each / 4 || (wanting != holdings_.end() && wanting->second.of(short_of_) >= each))
    return std::nullopt;
  return Excess{found->first, short_of_, has - each};
}

std::int64_t PinnedShares::bytes_of(std::string_view principal) const {
  const std::scoped_lock lock(mutex_);
  const auto found = holdings_.find(principal);
  return found == holdings_.end() ? 0 : found->second.bytes;
}

}  // namespace ciuic::broker
