// The host's memory.
#include "transport/device/host.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "transport/base/crc32c.h"

namespace ciuic::device {

void throw_exception_from_error(const Error& error, const boost::source_location& where) {
  throw std::logic_error("a device's error was not looked at: " + error.text + " at " + where.to_string());
}

namespace {

class Host final : public Device {
 public:
  const std::string& name() const override { return name_; }
  bool is_host() const override { return true; }
  Result<void> copy_in(Span to, Bytes from) override {
    std::copy(from.begin(), from.end(), at(to));  // memcpy takes no null, which empty bytes may have
    return {};
  }
  Result<void> copy_out(MutableBytes to, Span from) override {
    std::copy_n(at(from), to.size(), to.begin());
    return {};
  }
  Result<void> wipe(Span span) override {
    std::memset(at(span), 0, span.bytes);
    return {};
  }
  Result<std::size_t> heads(Span span, std::span<BatchHead> into) override {
    constexpr auto header = kafka::batch_header_bytes, overhead = kafka::batch_overhead_bytes;
    std::size_t count = 0;
    for (std::size_t next = 0; count < into.size() && next <= span.bytes && span.bytes - next >= header;) {
      auto& head = into[count++];
      head.at = static_cast<std::uint32_t>(next);
      std::memcpy(head.bytes.data(), at(span) + next, header);
      const auto length = kafka::load_be<std::int32_t>(head.bytes.data() + kafka::batch_at::length);
      if (length < static_cast<std::int32_t>(header - overhead)) break;
      next += static_cast<std::size_t>(length) + overhead;
    }
    return count;
  }
  Result<void> checksums(Span span, std::span<const Slice> slices, std::span<std::uint32_t> into) override {
    for (std::size_t i = 0; i < slices.size(); ++i) into[i] = crc32c(Bytes(at(span) + slices[i].at, slices[i].bytes));
    return {};
  }
  Result<DmaBuf> dma_buf(Span /*span*/) override { return Error{"host memory needs no dma-buf"}; }
  Result<std::unique_ptr<Pin>> pin(Bytes /*host*/) override { return std::make_unique<Pin>(); }

 private:
  static std::byte* at(Span span) { return reinterpret_cast<std::byte*>(span.address); }
  const std::string name_ = "host";
};

}  // namespace

std::shared_ptr<Device> make_host() { return std::make_shared<Host>(); }

}  // namespace ciuic::device
