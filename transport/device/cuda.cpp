// An NVIDIA GPU through its driver: copies, dma-bufs and pins. Its kernels: cuda_compute.h.
#include "transport/device/cuda.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "transport/device/cuda_compute.h"

namespace ciuic::device {

Result<std::shared_ptr<Device>> open_cuda(Span memory) {
  const auto driver = cuda::Library::load();
  if (!driver) return driver.error();
  return cuda::open(**driver, memory);
}

namespace cuda {

namespace {

class Pinned final : public Pin {
 public:
  Pinned(std::shared_ptr<PrimaryContext> context, void* host) : context_(std::move(context)), host_(host) {}
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() override {
    const Current current(*context_);
    (void)context_->driver().cuMemHostUnregister(host_);  // fails only in a lost context, which holds no pages
  }

 private:
  const std::shared_ptr<PrimaryContext> context_;
  void* const host_;
};

struct StreamCloser {
  std::shared_ptr<PrimaryContext> context;
  void operator()(Stream stream) const {
    const Current current(*context);
    (void)context->driver().cuStreamDestroy(stream);
  }
};
using OwnedStream = std::unique_ptr<CUstream_st, StreamCloser>;

template <class T>
Result<T> ask(const Library& driver, PointerAttribute what, Address address) {
  T value{};
  if (const auto code = driver.cuPointerGetAttribute(&value, what, address)) {
    auto error = driver.failed("cuPointerGetAttribute", code);
    if (code == invalid_value) error.text += fmt::format("; {:#x} is not memory of a CUDA device", address);
    return error;
  }
  return value;
}

/// The allocation that `inside` lies in.
Result<Span> allocation(const Library& driver, Span inside) {
  const auto start = ask<Address>(driver, PointerAttribute::range_start_addr, inside.address);
  if (!start) return start.error();
  const auto bytes = ask<std::size_t>(driver, PointerAttribute::range_size, inside.address);
  if (!bytes) return bytes.error();
  const auto at = inside.address - *start;
  if (inside.bytes == 0 || at > *bytes || inside.bytes > *bytes - at)
    return Error{
        fmt::format("{} bytes at {:#x} are not inside one allocation of a GPU: the one there has {} bytes at {:#x}",
                    inside.bytes, inside.address, *bytes, *start)};
  return Span{*start, *bytes};
}

Result<Ordinal> device_of(const Library& driver, Address address) {
  const auto type = ask<unsigned>(driver, PointerAttribute::memory_type, address);
  if (!type) return type.error();
  if (*type != memory_type_device)
    return Error{
        fmt::format("{:#x} is host memory that CUDA knows, not a GPU's: batches land there by the host", address)};
  const auto managed = ask<unsigned>(driver, PointerAttribute::is_managed, address);
  if (!managed) return managed.error();
  if (*managed != 0)
    return Error{
        fmt::format("{:#x} is managed memory, which moves between host and GPU: allocate it by cudaMalloc "
                    "(PyTorch: a plain CUDA tensor)",
                    address)};
  const auto ordinal = ask<int>(driver, PointerAttribute::device_ordinal, address);
  if (!ordinal) return ordinal.error();
  Ordinal device = 0;
  if (const auto code = driver.cuDeviceGet(&device, *ordinal)) return driver.failed("cuDeviceGet", code);
  return device;
}

class Gpu final : public Device {
 public:
  Gpu(std::shared_ptr<PrimaryContext> context, OwnedStream stream)
      : context_(std::move(context)),
        driver_(context_->driver()),
        stream_(std::move(stream)),
        name_(fmt::format("cuda:{} ({})", context_->device(), driver_.device_name(context_->device()))) {
    const auto ordering = driver_.attribute(DeviceAttribute::gpu_direct_rdma_writes_ordering, context_->device());
    const auto options = driver_.attribute(DeviceAttribute::gpu_direct_rdma_flush_writes_options, context_->device());
    flush_first_ = ordering < writes_to_owner && (options & flush_by_host) != 0 && driver_.cuFlushGPUDirectRDMAWrites;
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() override {
    const Current current(*context_);
    compute_.reset();
  }

  const std::string& name() const override { return name_; }
  bool is_host() const override { return false; }

  Result<void> copy_in(Span to, Bytes from) override {
    if (from.empty()) return {};
    return on_stream("cuMemcpyHtoDAsync",
                     [&] { return driver_.cuMemcpyHtoDAsync(to.address, from.data(), from.size(), stream_.get()); });
  }
  Result<void> copy_out(MutableBytes to, Span from) override {
    if (to.empty()) return {};
    return on_stream("cuMemcpyDtoHAsync",
                     [&] { return driver_.cuMemcpyDtoHAsync(to.data(), from.address, to.size(), stream_.get()); });
  }
  Result<void> wipe(Span span) override {
    if (span.bytes == 0) return {};
    return on_stream("cuMemsetD8Async",
                     [&] { return driver_.cuMemsetD8Async(span.address, 0, span.bytes, stream_.get()); });
  }

  Result<std::size_t> heads(Span span, std::span<BatchHead> into) override {
    const Current current(*context_);
    if (auto ready = compute(current); !ready) return ready.error();
    return compute_->heads(span, into);
  }
  Result<void> checksums(Span span, std::span<const Slice> slices, std::span<std::uint32_t> into) override {
    // A kernel that reads past an allocation takes the whole process's context with it.
    for (const auto& slice : slices)
      if (slice.at > span.bytes || slice.bytes > span.bytes - slice.at)
        return Error{fmt::format("{} bytes from {} on are not all in a span of {}", slice.bytes, slice.at, span.bytes)};
    const Current current(*context_);
    if (auto ready = compute(current); !ready) return ready;
    return compute_->checksums(span, slices, into);
  }

  Result<DmaBuf> dma_buf(Span span) override {
    const Current current(*context_);
    if (auto made = current.made(); !made) return made.error();
    if (!driver_.cuMemGetHandleForAddressRange)
      return Error{"the NVIDIA driver is older than CUDA 11.7's (515) and knows no dma-buf: update it"};
    if (driver_.attribute(DeviceAttribute::dma_buf_supported, context_->device()) == 0)
      return Error{fmt::format("{} gives no dma-buf: it needs NVIDIA's open kernel modules and Linux 5.12", name_)};
    const auto whole = allocation(driver_, span);
    if (!whole) return whole.error();
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const auto start = span.address / page * page;
    const auto bytes = (span.address - start + span.bytes + page - 1) / page * page;
    if (start < whole->address || bytes > whole->bytes - (start - whole->address))
      return Error{
          fmt::format("a dma-buf has whole pages of {} bytes, and the allocation of {} bytes at {:#x} does not have "
                      "all that {} bytes at {:#x} lie in: allocate whole pages",
                      page, whole->bytes, whole->address, span.bytes, span.address)};
    int descriptor = -1;
    if (const auto code = driver_.cuMemGetHandleForAddressRange(&descriptor, start, bytes, range_dma_buf_fd, 0))
      return driver_.failed("cuMemGetHandleForAddressRange", code);
    return DmaBuf{UniqueFd(descriptor), span.address - start};
  }

  Result<std::unique_ptr<Pin>> pin(Bytes host) override {
    const Current current(*context_);
    if (auto made = current.made(); !made) return made.error();
    // The driver only reads by it, whatever it is declared; it does not take it mutable only.
    void* const at = const_cast<std::byte*>(host.data());
    // As writable first: pages that only reading brought in may be copied away from the driver at the next write.
    auto code = driver_.cuMemHostRegister(at, host.size(), host_portable);
    const bool read_only =
        driver_.attribute(DeviceAttribute::read_only_host_register_supported, context_->device()) != 0;
    if (code != success && code != host_memory_already_registered && read_only)
      code = driver_.cuMemHostRegister(at, host.size(), host_portable | host_register_read_only);
    if (code != success) {
      auto error = driver_.failed("cuMemHostRegister", code);
      if (!read_only) error.text += fmt::format("; {} takes no memory that is mapped for reading only", name_);
      return error;
    }
    return std::make_unique<Pinned>(context_, at);
  }

 private:
  template <class Call>
  Result<void> on_stream(const char* name, Call call) {
    const Current current(*context_);
    if (auto made = current.made(); !made) return made;
    if (const auto code = call()) return driver_.failed(name, code);
    if (const auto code = driver_.finish(stream_.get())) return driver_.failed("cuStreamSynchronize", code);
    return {};
  }

  /// Some GPUs see what a card wrote only once they were told to.
  Result<void> flush(const Current& current) {
    if (!flush_first_) return {};
    if (auto made = current.made(); !made) return made;
    constexpr int this_context = 0;  // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX
    if (const auto code = driver_.cuFlushGPUDirectRDMAWrites(this_context, writes_to_owner))
      return driver_.failed("cuFlushGPUDirectRDMAWrites", code);
    return {};
  }
  Result<void> compute(const Current& current) {
    if (auto made = current.made(); !made) return made;
    if (!compute_) {
      auto made = Compute::make(*context_, stream_.get());
      if (!made) return made.error();
      compute_ = std::move(*made);
    }
    return flush(current);
  }

  const std::shared_ptr<PrimaryContext> context_;
  const Library& driver_;
  const OwnedStream stream_;
  const std::string name_;
  bool flush_first_ = false;
  std::unique_ptr<Compute> compute_{};
};

}  // namespace

Result<std::shared_ptr<PrimaryContext>> PrimaryContext::retain(const Library& driver, Ordinal device) {
  Context context = nullptr;
  if (const auto code = driver.cuDevicePrimaryCtxRetain(&context, device))
    return driver.failed("cuDevicePrimaryCtxRetain", code);
  return std::make_shared<PrimaryContext>(driver, device, context);
}

Result<std::shared_ptr<Device>> open(const Library& driver, Span memory) {
  if (const auto code = driver.cuInit(0)) return driver.failed("cuInit", code);
  const auto device = device_of(driver, memory.address);
  if (!device) return device.error();
  if (const auto whole = allocation(driver, memory); !whole) return whole.error();
  auto context = PrimaryContext::retain(driver, *device);
  if (!context) return context.error();
  const Current current(**context);
  if (auto made = current.made(); !made) return made.error();
  Stream stream = nullptr;
  // Not in step with the default stream: a trainer's own work does not wait for ours, nor ours for it.
  if (const auto code = driver.cuStreamCreate(&stream, stream_non_blocking))
    return driver.failed("cuStreamCreate", code);
  OwnedStream owned(stream, StreamCloser{*context});
  return std::make_shared<Gpu>(std::move(*context), std::move(owned));
}

}  // namespace cuda
}  // namespace ciuic::device
