// Runs the kernels, and puts together on the host what many threads found.
#include "transport/device/cuda_compute.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "transport/device/cuda_kernels.h"

namespace ciuic::device::cuda {

namespace {

using kernels::Head, kernels::Piece, kernels::piece_bytes, kernels::Walk;

constexpr std::size_t pieces_max = 32768;  // of a launch: 32 MiB
/// What is shared: pieces and their sums, or the end of a walk and its heads.
constexpr std::size_t shared_bytes = pieces_max * (sizeof(Piece) + sizeof(std::uint32_t));
constexpr std::size_t heads_max = (shared_bytes - sizeof(Walk)) / sizeof(Head);

static_assert(kernels::header_bytes == kafka::batch_header_bytes);
static_assert(kernels::overhead_bytes == kafka::batch_overhead_bytes);

}  // namespace

Result<std::unique_ptr<Compute>> Compute::make(const PrimaryContext& context, Stream stream) {
  if (kernels_ptx.empty())
    return Error{
        "this build has no GPU kernels: there was no clang that compiles for nvptx64; install clang-14 and build anew"};
  const auto& driver = context.driver();
  std::unique_ptr<Compute> made(new Compute(driver, stream));  // NOLINT(cppcoreguidelines-owning-memory)
  std::array<char, 1024> log{};
  std::array options{jit_error_log_buffer, jit_error_log_buffer_bytes};
  std::array<void*, 2> values{log.data(), std::bit_cast<void*>(log.size() - 1)};
  const auto loaded =
      driver.cuModuleLoadDataEx(&made->module_, kernels_ptx.data(), options.size(), options.data(), values.data());
  if (loaded != success) {
    auto error = driver.failed("cuModuleLoadDataEx", loaded);
    if (log[0] != '\0') error.text += fmt::format("; the driver's compiler: {}", log.data());
    return error;
  }
  for (const auto& [function, name] : {std::pair{&made->heads_, "ciuic_heads"}, {&made->checksums_, "ciuic_checksums"}})
    if (const auto code = driver.cuModuleGetFunction(function, made->module_, name))
      return driver.failed("cuModuleGetFunction", code);
  if (const auto code = driver.cuMemHostAlloc(&made->shared_, shared_bytes, host_portable | host_mapped))
    return driver.failed("cuMemHostAlloc", code);
  return made;
}

Compute::Compute(const Library& driver, Stream stream) : driver_(driver), stream_(stream), behind_(piece_bytes) {}

Compute::~Compute() {
  // In a lost context these fail, and the process's end frees what they do not.
  if (shared_) (void)driver_.cuMemFreeHost(shared_);
  if (module_) (void)driver_.cuModuleUnload(module_);
}

Result<void> Compute::run(Function kernel, unsigned blocks, unsigned threads, void** parameters) {
  if (const auto code = driver_.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream_, parameters, nullptr))
    return driver_.failed("cuLaunchKernel", code);
  if (const auto code = driver_.finish(stream_)) return driver_.failed("cuStreamSynchronize", code);
  return {};
}

Result<std::size_t> Compute::heads(Span span, std::span<BatchHead> into) {
  // By unified addressing the GPU knows pinned memory by the host's address.
  auto* walk = static_cast<Walk*>(shared_);
  auto* found = reinterpret_cast<Head*>(walk + 1);
  Address address = span.address;
  std::uint64_t bytes = span.bytes, from = 0;
  std::size_t count = 0;
  while (count < into.size() && from <= bytes && bytes - from >= kernels::header_bytes) {
    std::uint64_t room = std::min(into.size() - count, heads_max);
    std::array<void*, 6> parameters{
        &address, &bytes, &from, &room, static_cast<void*>(&found), static_cast<void*>(&walk)};
    if (auto ran = run(heads_, 1, 1, parameters.data()); !ran) return ran.error();
    for (std::size_t i = 0; i < walk->count; ++i, ++count) {
      into[count].at = found[i].at;
      std::memcpy(into[count].bytes.data(), static_cast<const void*>(found[i].words), kernels::header_bytes);
    }
    from = walk->next;
  }
  return count;
}

Result<void> Compute::checksums(Span span, std::span<const Slice> slices, std::span<std::uint32_t> into) {
  auto* pieces = static_cast<Piece*>(shared_);
  auto* sums = reinterpret_cast<std::uint32_t*>(pieces + pieces_max);
  Address address = span.address;
  std::uint32_t done = 0;  // of slices[next]
  for (std::size_t next = 0; next < slices.size();) {
    slice_of_.clear();
    while (next < slices.size() && slice_of_.size() < pieces_max) {
      const auto& slice = slices[next];
      const auto left = slice.bytes - done;
      // The first takes what no whole pieces are, so that each one behind is as long as the tables are for.
      const auto bytes = left % piece_bytes != 0 ? left % piece_bytes : std::min(left, piece_bytes);
      pieces[slice_of_.size()] = {slice.at + done, bytes};
      slice_of_.push_back(next);
      done += bytes;
      if (done == slice.bytes) ++next, done = 0;
    }
    std::uint64_t count = slice_of_.size();
    std::array<void*, 4> parameters{&address, static_cast<void*>(&pieces), &count, static_cast<void*>(&sums)};
    const auto blocks = static_cast<unsigned>((count + kernels::threads - 1) / kernels::threads);
    if (auto ran = run(checksums_, blocks, kernels::threads, parameters.data()); !ran) return ran;
    for (std::size_t i = 0; i < count; ++i) {
      auto& sum = into[slice_of_[i]];
      const bool first = pieces[i].at == slices[slice_of_[i]].at;
      sum = first ? sums[i] : behind_(sum, sums[i]);
    }
  }
  return {};
}

}  // namespace ciuic::device::cuda
