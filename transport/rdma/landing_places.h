#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "transport/base/bytes.h"
#include "transport/base/fork_guard.h"
#include "transport/rdma/provider.h"

/// Landings of providers whose device must know them. `Owned` is an owning pointer to a registration, or to nothing.
namespace ciuic::rdma {

/// Memory that READs land in. The endpoint's, whoever holds the Landing.
template <class Owned>
struct LandingPlace {
  LandingPlace(std::byte* memory, std::size_t mapped, std::size_t used)
      : at(memory), mapped_bytes(mapped), bytes(used) {}
  LandingPlace(const LandingPlace&) = delete;
  LandingPlace& operator=(const LandingPlace&) = delete;
  ~LandingPlace() {
    if (fork.in_child()) {  // the registration is the parent's
      (void)registration.release();
      return;
    }
    registration.reset();
    if (mapped_bytes > 0) ::munmap(at, mapped_bytes);
  }
  /// Memory of somebody else, who keeps it for longer.
  [[nodiscard]] static std::unique_ptr<LandingPlace> of(MutableBytes memory) {
    return std::make_unique<LandingPlace>(memory.data(), 0, memory.size());
  }
  /// Anonymous memory of whole pages, huge ones where that is worth it; null: the kernel refuses.
  [[nodiscard]] static std::unique_ptr<LandingPlace> make(std::size_t bytes) {
    constexpr std::size_t page_bytes = 4096, huge_page_bytes = 2U << 20;
    const bool huge = bytes >= huge_page_bytes;
    const auto unit = huge ? huge_page_bytes : page_bytes;
    const auto mapped = (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
    void* at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    if (huge) ::madvise(at, mapped, MADV_HUGEPAGE);
    return std::make_unique<LandingPlace>(static_cast<std::byte*>(at), mapped, bytes);
  }

  std::byte* at;
  std::size_t mapped_bytes;  ///< 0: not ours
  std::size_t bytes;
  Owned registration{};
  std::uint32_t pending = 0;  ///< READs into it
  bool left = false;          ///< its Landing is gone
  ForkGuard fork{};
};

/// All places of an endpoint. Outlives it while Landings live.
template <class Owned>
class LandingPlaces : public std::enable_shared_from_this<LandingPlaces<Owned>> {
 public:
  using Place = LandingPlace<Owned>;

  /// Null: no place has all of them. Places of the caller's memory may overlap, and be the same; any that has them
  /// does.
  [[nodiscard]] Place* find(MutableBytes bytes) {
    for (auto after = by_address_.upper_bound(bytes.data()); after != by_address_.begin();) {
      auto& place = *(--after)->second;
      const auto at = static_cast<std::size_t>(bytes.data() - place.at);
      if (!place.left && at <= place.bytes && bytes.size() <= place.bytes - at) return &place;
    }
    return nullptr;
  }
  [[nodiscard]] std::unique_ptr<Landing> add(std::unique_ptr<Place> place) {
    auto& kept = *place;
    by_address_.emplace(kept.at, std::move(place));
    return std::make_unique<Held>(this->shared_from_this(), kept);
  }
  void done(Place& place) {
    if (--place.pending == 0 && place.left) forget(place);
  }
  /// The connection is gone: nothing lands any more. Registrations end, for their domain will.
  void end() {
    std::erase_if(by_address_, [](const auto& one) { return one.second->left; });
    for (auto& [at, place] : by_address_) {
      place->registration.reset();
      place->pending = 0;
    }
  }

 private:
  class Held final : public Landing {
   public:
    Held(std::shared_ptr<LandingPlaces> places, Place& place) : places_(std::move(places)), place_(place) {}
    ~Held() override { places_->leave(place_); }
    MutableBytes bytes() override { return {place_.at, place_.bytes}; }

   private:
    std::shared_ptr<LandingPlaces> places_;
    Place& place_;
  };

  void leave(Place& place) {
    place.left = true;
    if (place.pending == 0) forget(place);
  }
  void forget(const Place& place) {
    const auto [first, last] = by_address_.equal_range(place.at);
    by_address_.erase(std::find_if(first, last, [&](const auto& one) { return one.second.get() == &place; }));
  }

  std::multimap<const std::byte*, std::unique_ptr<Place>> by_address_;
};

}  // namespace ciuic::rdma
