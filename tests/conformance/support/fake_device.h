#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "transport/device/host.h"

namespace ciuic::testing {

/// A device whose memory the CPU cannot follow: its addresses are mapped without any right, so that a touch ends the
/// process; calls, and cards by the dma-buf, go through another mapping of the same memory.
class FakeDevice final : public device::Device {
 public:
  template <class T>
  using Result = device::Result<T>;
  using Span = device::Span;

  explicit FakeDevice(std::size_t bytes) : bytes_(bytes) {
    fd_ = UniqueFd(::memfd_create("ciuic-device", MFD_CLOEXEC));
    if (!fd_ || ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) std::abort();
    named_ = map(PROT_NONE);
    reached_ = map(PROT_READ | PROT_WRITE);
  }
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;
  ~FakeDevice() override {
    ::munmap(named_, bytes_);
    ::munmap(reached_, bytes_);
  }
  [[nodiscard]] Span memory() const { return {reinterpret_cast<std::uintptr_t>(named_), bytes_}; }
  /// Looks at memory past the device, for tests.
  [[nodiscard]] Bytes see(Bytes device_bytes) const {
    return {reached_ + (device_bytes.data() - named_), device_bytes.size()};
  }
  /// Asked before each call: an error is what the call comes to.
  std::function<std::string(std::string_view call)> fails{};

  const std::string& name() const override { return name_; }
  bool is_host() const override { return false; }
  Result<void> copy_in(Span to, Bytes from) override {
    return run<void>("copy_in", [&] { return host_->copy_in(at(to), from); });
  }
  Result<void> copy_out(MutableBytes to, Span from) override {
    return run<void>("copy_out", [&] { return host_->copy_out(to, at(from)); });
  }
  Result<void> wipe(Span span) override {
    return run<void>("wipe", [&] { return host_->wipe(at(span)); });
  }
  Result<std::size_t> heads(Span span, std::span<device::BatchHead> into) override {
    return run<std::size_t>("heads", [&] { return host_->heads(at(span), into); });
  }
  Result<void> checksums(Span span, std::span<const device::Slice> slices, std::span<std::uint32_t> into) override {
    return run<void>("checksums", [&] { return host_->checksums(at(span), slices, into); });
  }
  Result<device::DmaBuf> dma_buf(Span span) override {
    return run<device::DmaBuf>("dma_buf", [&]() -> Result<device::DmaBuf> {
      return device::DmaBuf{UniqueFd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)), span.address - memory().address};
    });
  }
  Result<std::unique_ptr<device::Pin>> pin(Bytes host) override {
    return run<std::unique_ptr<device::Pin>>("pin", [&] { return host_->pin(host); });
  }

 private:
  std::byte* map(int rights) {
    void* const at = ::mmap(nullptr, bytes_, rights, MAP_SHARED, fd_.get(), 0);
    if (at == MAP_FAILED) std::abort();
    return static_cast<std::byte*>(at);
  }
  [[nodiscard]] Span at(Span span) const {
    return {span.address - memory().address + reinterpret_cast<std::uintptr_t>(reached_), span.bytes};
  }
  template <class T, class Call>
  Result<T> run(std::string_view call, Call&& does) {
    if (fails)
      if (auto why = fails(call); !why.empty()) return device::Error{std::move(why)};
    return does();
  }

  const std::string name_ = "fake:0";
  std::size_t bytes_;
  UniqueFd fd_;
  std::byte* named_ = nullptr;
  std::byte* reached_ = nullptr;
  std::shared_ptr<device::Device> host_ = device::make_host();
};

}  // namespace ciuic::testing
