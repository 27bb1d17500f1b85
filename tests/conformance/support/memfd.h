#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "transport/rdma/provider.h"

namespace ciuic::testing {

/// Memory as the broker has it: a memfd, mapped read-write here, handed out read-only.
class Memfd final : public rdma::Backing {
 public:
  explicit Memfd(std::size_t size) : size_(size), id_(next_id()) {
    fd_ = UniqueFd(::memfd_create("ciuic-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd_ || ::fchmod(fd_.get(), 0400) != 0 || ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0 ||
        ::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0)
      std::abort();
    void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (at == MAP_FAILED) std::abort();
    at_ = static_cast<std::byte*>(at);
  }
  ~Memfd() override { ::munmap(at_, size_); }
  std::uint64_t id() const override { return id_; }
  UniqueFd read_only_descriptor() const override {
    return UniqueFd(::open(("/proc/self/fd/" + std::to_string(fd_.get())).c_str(), O_RDONLY | O_CLOEXEC));
  }
  [[nodiscard]] MutableBytes bytes() { return {at_, size_}; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] rdma::Exposable part(const std::shared_ptr<Memfd>& self, std::size_t at, std::size_t size) {
    return {Bytes(at_ + at, size), self, at};
  }

 private:
  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> ids{1};
    return ids.fetch_add(1);
  }
  std::size_t size_;
  std::uint64_t id_;
  UniqueFd fd_;
  std::byte* at_;
};

}  // namespace ciuic::testing
