// What a client reads one-sided: grants as they come over the wire, slots and chunks as a broker (or whoever writes its
// memory) leaves them. The first byte's low bits choose: 0 a grant's response, 1 a slot, else a reader over one chunk
// whose slots and batches get their checksums mended, so that what they say is reached; 4: copied and not mapped.
#include "tests/fuzz/support/batches.h"
#include "tests/fuzz/support/input.h"
#include "transport/base/crc32c.h"
#include "transport/kafka/record_batch.h"
#include "transport/onesided/reader.h"

using namespace ciuic;
using fuzz::Input;
using fuzz::must;

namespace {

constexpr std::size_t slots = 2;
constexpr std::size_t capacity_max = 0xFFFF;

/// Slots, then a chunk: "remote" memory whose addresses count from its beginning.
class FakeEndpoint final : public rdma::Endpoint, public rdma::Mapper {
 public:
  FakeEndpoint(MutableBytes memory, bool maps) : memory_(memory) {
    caps_.maps_remote = maps;
    caps_.read_bytes_max = 256;
    caps_.reads_outstanding_max = 4;
  }
  const rdma::Caps& caps() const override { return caps_; }
  rdma::Mapper* mapper() override { return caps_.maps_remote ? this : nullptr; }
  rdma::Result<std::unique_ptr<rdma::Landing>> make_landing(std::size_t bytes) override {
    must(bytes <= capacity_max);  // never more than what a grant names
    return std::unique_ptr<rdma::Landing>(std::make_unique<Heap>(bytes));
  }
  rdma::Result<Bytes> view(const rdma::RemoteSpan& span) override {
    if (span.address > memory_.size() || span.length > memory_.size() - span.address) return rdma::Fault::access_error;
    return Bytes(memory_).subspan(span.address, span.length);
  }
  rdma::Result<std::size_t> post_reads(std::span<const rdma::ReadRequest> batch) override {
    for (const auto& request : batch) {
      must(request.to.size() == request.from.length && request.from.length <= caps_.read_bytes_max);
      const auto bytes = view(request.from);
      if (bytes && !bytes->empty()) std::memcpy(request.to.data(), bytes->data(), bytes->size());
      done_.push_back({request.id, bytes ? std::nullopt : std::optional(bytes.error())});
    }
    return batch.size();
  }
  rdma::Result<std::size_t> poll(std::span<rdma::Completion> into) override {
    const auto count = std::min(into.size(), done_.size());
    std::copy_n(done_.begin(), count, into.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  void close() override {}

 private:
  struct Heap final : rdma::Landing {
    explicit Heap(std::size_t size) : buffer(size) {}
    MutableBytes bytes() override { return buffer; }
    Buffer buffer;
  };
  rdma::Caps caps_;
  MutableBytes memory_;
  std::vector<rdma::Completion> done_;
};

void check_grant(const onesided::Grant& grant) {
  must(grant.slot.length == onesided::slot_bytes);
  auto before = kafka::Offset(0);
  for (const auto& chunk : grant.chunks) {
    must(chunk.start <= chunk.length && chunk.length <= chunk.memory.length);
    must(chunk.base_offset >= before && (!chunk.next_offset || *chunk.next_offset > chunk.base_offset));
    must(chunk.next_offset || &chunk == &grant.chunks.back());
    before = chunk.next_offset.value_or(before);
  }
}

void grants(Input input) {
  const auto lease_ms = input.number<std::int32_t>();
  const auto response = kafka::decode<kafka::OneSidedGrantResponse>(input.rest(), 0);
  if (!response) return;
  for (const auto& topic : response->topics)
    for (const auto& partition : topic.partitions)
      if (const auto grant = onesided::grant_of(partition, kafka::Offset(0), kafka::Isolation::read_committed,
                                                Clock::TimePoint{}, lease_ms))
        check_grant(*grant);
}

void one_slot(Input input) {
  const auto landed = input.rest();
  const auto parsed = onesided::parse_slot(landed);
  if (landed.size() != onesided::slot_bytes) return must(!parsed);
  alignas(64) std::array<std::byte, onesided::slot_bytes> mapped;
  std::memcpy(mapped.data(), landed.data(), landed.size());
  const auto read = onesided::read_slot(mapped);
  must(read.has_value() == parsed.has_value() && (!read || *read == *parsed));
  if (!read) return;
  // A writer goes on from what it finds there.
  onesided::SlotWriter(mapped).write(*read);
  const auto again = onesided::read_slot(mapped);
  must(again && again->version == read->version + 2 && again->high_watermark == read->high_watermark);
}

void mend_slot(MutableBytes slot) {
  slot[0] &= std::byte{0xFE};
  std::memcpy(slot.data() + 60, slot.data(), 4);
  const auto crc = crc32c(Bytes(slot).first(56));
  std::memcpy(slot.data() + 56, &crc, sizeof crc);
}

void check(const onesided::Delivery& got, const onesided::Reader& reader, kafka::Offset before,
           kafka::Isolation isolation) {
  if (got.batches.empty()) return;
  const auto end =
      isolation == kafka::Isolation::read_committed ? reader.slot().last_stable_offset : reader.slot().high_watermark;
  must(got.next_offset > before && got.next_offset <= end && reader.position() == got.next_offset);
  std::uint64_t bytes = 0;
  auto least = before;
  for (const auto one : got.batches) {
    const auto batch = kafka::RecordBatchView::parse(one);
    must(batch && batch->size() == one.size() && batch->crc_valid());
    must(batch->last_offset() >= least && batch->leader_epoch() <= reader.slot().leader_epoch);
    least = batch->next_offset();
    bytes += one.size();
  }
  must(bytes == got.bytes && least == got.next_offset);
}

void read_chunk(Input input, bool maps) {
  const auto isolation =
      (input.number<std::uint8_t>() & 1) != 0 ? kafka::Isolation::read_committed : kafka::Isolation::read_uncommitted;
  kafka::OneSidedGrantResponse::GrantedPartition from;
  from.aborted_count = input.number<std::uint8_t>();
  from.slot = {.address = 0, .length = static_cast<std::int32_t>(onesided::slot_bytes), .key = 1};
  from.last_stable_offset = input.number<std::int64_t>();
  std::vector<std::byte> plain(slots * onesided::slot_bytes);
  for (std::size_t i = 0; i < slots; ++i) {
    const auto bytes = input.bytes(onesided::slot_bytes);
    if (!bytes.empty()) std::memcpy(plain.data() + i * onesided::slot_bytes, bytes.data(), bytes.size());
    mend_slot(MutableBytes(plain).subspan(i * onesided::slot_bytes, onesided::slot_bytes));
  }
  const auto count = input.number<std::uint8_t>() % 3U + 1;
  for (unsigned i = 0; i < count; ++i) {
    auto& chunk = from.chunks.emplace_back();
    chunk.sequence = i + 1;
    chunk.base_offset = input.number<std::int64_t>();
    chunk.next_offset = input.number<std::int64_t>();
    chunk.length = input.number<std::uint16_t>();
    chunk.start = input.number<std::uint16_t>();
    chunk.capacity = input.number<std::uint16_t>();
    chunk.address = static_cast<std::int64_t>(plain.size()) + input.number<std::int16_t>();
    chunk.key = 1;
  }
  const kafka::Offset position(input.number<std::int64_t>());
  plain.insert(plain.end(), input.rest().begin(), input.rest().end());
  fuzz::mend_batches(MutableBytes(plain).subspan(slots * onesided::slot_bytes));
  // To the byte, so that a look behind the end is seen; slots begin at a multiple of eight.
  const auto memory = std::make_unique<std::byte[]>(plain.size());
  std::memcpy(memory.get(), plain.data(), plain.size());
  const MutableBytes all(memory.get(), plain.size());

  auto grant = onesided::grant_of(from, position, isolation, Clock::TimePoint{}, 60'000);
  if (!grant) return;
  check_grant(*grant);
  ManualClock clock;
  onesided::ReadQueue queue(std::make_unique<FakeEndpoint>(all, maps), clock);
  onesided::ReaderLimits limits;
  limits.read_bytes = 512;
  onesided::Reader reader(queue, limits);
  if (!reader.adopt(std::move(*grant), position)) return;
  for (int step = 0; step < 64; ++step) {
    if (step == 24) std::memcpy(all.data(), all.data() + onesided::slot_bytes, onesided::slot_bytes);
    queue.poll();
    const auto before = reader.position();
    const auto got = reader.read();
    if (got) check(*got, reader, before, isolation);
    must(reader.position() >= before);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const auto what = input.number<std::uint8_t>();
  if ((what & 3) == 0) {
    grants(input);
  } else if ((what & 3) == 1) {
    one_slot(input);
  } else {
    read_chunk(input, (what & 4) == 0);
  }
  return 0;
}
