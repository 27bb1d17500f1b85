#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/bytes.h"
#include "transport/base/result.h"
#include "transport/base/unique_fd.h"
#include "transport/kafka/record_batch.h"

/// Memory that record batches land in and that the CPU may have no way to: what can be done with it. A GPU's, or the
/// host's own (host.h), so that one path serves both. Next: transport/onesided/landing_area.h.
namespace ciuic::device {

/// What failed, with the driver's name for it, and the remedy where there is one.
struct Error {
  std::string text{};
};
template <class T>
using Result = ResultOf<T, Error>;
/// What `Result::value()` does with an error nobody looked at: std::logic_error, a bug.
[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location& where);

/// Bytes of a device by their address there. Host addresses and those of GPUs never overlap in one process (CUDA's
/// unified addressing), but only the device, and cards that were given its dma-buf, may follow a GPU's.
struct Span {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  bool operator==(const Span&) const = default;

  /// The `n` bytes from `at`. REQUIRES: they are inside.
  [[nodiscard]] Span sub(std::size_t at, std::size_t n) const { return {address + at, n}; }
};

/// A span as cards know it: `Span.bytes` from `offset` in the descriptor's dma-buf.
struct DmaBuf {
  UniqueFd descriptor{};
  std::uint64_t offset = 0;
};

/// The beginning of a record batch that lies in a span.
struct BatchHead {
  std::uint32_t at = 0;  ///< its first byte, from the span's
  std::array<std::byte, kafka::batch_header_bytes> bytes{};
};

/// Bytes of a span.
struct Slice {
  std::uint32_t at = 0;
  std::uint32_t bytes = 0;
};

/// Host memory that the device's copy engine reads by itself while this lives. Ends on any thread, before its device.
class Pin {
 public:
  virtual ~Pin() = default;
};

/// One memory. Calls block until done; one thread at a time. What fails has changed nothing but, maybe, the bytes it
/// was to write.
class Device {
 public:
  virtual ~Device() = default;
  /// "host", or as its driver calls it: "cuda:0 (NVIDIA H200)".
  [[nodiscard]] virtual const std::string& name() const = 0;
  /// The CPU may follow its addresses.
  [[nodiscard]] virtual bool is_host() const = 0;
  /// REQUIRES of all: spans lie in memory of this device, and are under 4 GiB where offsets in them are 32 bits.
  [[nodiscard]] virtual Result<void> copy_in(Span to, Bytes from) = 0;  ///< sizes are equal
  [[nodiscard]] virtual Result<void> copy_out(MutableBytes to, Span from) = 0;
  /// Zeros.
  [[nodiscard]] virtual Result<void> wipe(Span span) = 0;
  /// The heads of the record batches in `span`, which begins with one: each lies where the length of the one before
  /// ends. The last is the first that does not say a length of a batch (under 49), or ends beyond the span, or the one
  /// that `into` has no room behind; one that is not whole itself is not told. Gives how many. What a card wrote before
  /// its completion was seen is seen.
  [[nodiscard]] virtual Result<std::size_t> heads(Span span, std::span<BatchHead> into) = 0;
  /// CRC32C of each slice of `span`, of which there are as many as `into` has places.
  [[nodiscard]] virtual Result<void> checksums(Span span, std::span<const Slice> slices,
                                               std::span<std::uint32_t> into) = 0;
  /// For cards to write to the span. Errors: the device or its driver cannot.
  [[nodiscard]] virtual Result<DmaBuf> dma_buf(Span span) = 0;
  /// REQUIRES: `host` is mapped, at least for reading, longer than the pin lives. Errors: the driver does not take it.
  [[nodiscard]] virtual Result<std::unique_ptr<Pin>> pin(Bytes host) = 0;
};

}  // namespace ciuic::device
