#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "transport/base/crc32c_combine.h"
#include "transport/device/cuda_context.h"

namespace ciuic::device::cuda {

/// The kernels as PTX, which every driver since CUDA 9 compiles for its GPU; empty where the build had no clang.
extern const std::string_view kernels_ptx;

/// Our kernels in one context, and the pinned host memory by which they and the host hand each other what they found:
/// they write to it across the bus, so that nothing need be copied. Made at the first use: compiling takes a while,
/// and who only copies needs none of it.
class Compute {
 public:
  /// The context is current in this thread: here, in all calls, and when it ends.
  [[nodiscard]] static Result<std::unique_ptr<Compute>> make(const PrimaryContext& context, Stream stream);
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;
  ~Compute();

  [[nodiscard]] Result<std::size_t> heads(Span span, std::span<BatchHead> into);
  [[nodiscard]] Result<void> checksums(Span span, std::span<const Slice> slices, std::span<std::uint32_t> into);

 private:
  Compute(const Library& driver, Stream stream);
  Result<void> run(Function kernel, unsigned blocks, unsigned threads, void** parameters);

  const Library& driver_;
  const Stream stream_;
  Module module_ = nullptr;
  Function heads_ = nullptr, checksums_ = nullptr;
  void* shared_ = nullptr;
  const Crc32cCombine behind_;
  std::vector<std::size_t> slice_of_;  // of each piece in flight
};

}  // namespace ciuic::device::cuda
