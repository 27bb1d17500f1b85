// The slot's bytes. Eight words, each stored and loaded whole; the version brackets them, the checksum covers them.
#include "transport/onesided/slot.h"

#include <bit>
#include <cstring>

#include "transport/base/crc32c.h"

namespace ciuic::onesided {

namespace {

static_assert(std::endian::native == std::endian::little, "slots are little-endian and read in place");

using Words = std::array<std::uint64_t, 8>;
constexpr std::size_t checked_bytes = 56;

std::uint32_t checksum(const Words& words) { return crc32c(std::as_bytes(std::span(words)).first(checked_bytes)); }

Words encode(const Slot& slot) {
  Words words{};
  words[0] = slot.version;
  words[1] = static_cast<std::uint32_t>(slot.leader_epoch.value) | static_cast<std::uint64_t>(slot.flags) << 32 |
             static_cast<std::uint64_t>(slot.layout) << 48;
  words[2] = static_cast<std::uint64_t>(slot.log_start_offset.value);
  words[3] = static_cast<std::uint64_t>(slot.high_watermark.value);
  words[4] = static_cast<std::uint64_t>(slot.last_stable_offset.value);
  words[5] = slot.chunk_sequence;
  words[6] = slot.chunk_length | static_cast<std::uint64_t>(slot.aborted_count) << 32;
  words[7] = checksum(words) | slot.version << 32;
  return words;
}

rdma::Result<Slot> decode(const Words& words) {
  const auto version = words[0];
  if (version == 0 || (version & 1) != 0 ||
      static_cast<std::uint32_t>(version) != static_cast<std::uint32_t>(words[7] >> 32) ||
      checksum(words) != static_cast<std::uint32_t>(words[7]))
    return rdma::Fault::torn_slot;
  Slot slot;
  slot.version = version;
  slot.leader_epoch = kafka::LeaderEpoch(static_cast<std::int32_t>(words[1]));
  slot.flags = static_cast<std::uint16_t>(words[1] >> 32);
  slot.layout = static_cast<std::uint16_t>(words[1] >> 48);
  slot.log_start_offset = kafka::Offset(static_cast<std::int64_t>(words[2]));
  slot.high_watermark = kafka::Offset(static_cast<std::int64_t>(words[3]));
  slot.last_stable_offset = kafka::Offset(static_cast<std::int64_t>(words[4]));
  slot.chunk_sequence = words[5];
  slot.chunk_length = static_cast<std::uint32_t>(words[6]);
  slot.aborted_count = static_cast<std::uint32_t>(words[6] >> 32);
  return slot;
}

std::uint64_t load(const std::byte* at, std::size_t word) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at) + word, __ATOMIC_ACQUIRE);
}
void store(std::byte* at, std::size_t word, std::uint64_t value) {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(at) + word, value, __ATOMIC_RELEASE);
}

}  // namespace

SlotWriter::SlotWriter(MutableBytes slot) : at_(slot.data()), version_(load(at_, 0) & ~1ULL) {}

void SlotWriter::write(Slot now) {
  now.version = version_ + 2;
  const auto words = encode(now);
  store(at_, 0, version_ + 1);
  // Stores are released one by one, so a reader that sees a later word sees the odd version before it.
  for (std::size_t word = 1; word < words.size(); ++word) store(at_, word, words[word]);
  store(at_, 0, now.version);
  version_ = now.version;
}

rdma::Result<Slot> read_slot(Bytes mapped) {
  if (mapped.size() != slot_bytes) return rdma::Fault::torn_slot;
  Words words{};
  for (std::size_t word = 0; word < words.size(); ++word) words[word] = load(mapped.data(), word);
  if (load(mapped.data(), 0) != words[0]) return rdma::Fault::torn_slot;
  return decode(words);
}

rdma::Result<Slot> parse_slot(Bytes landed) {
  if (landed.size() != slot_bytes) return rdma::Fault::torn_slot;
  Words words{};
  std::memcpy(words.data(), landed.data(), slot_bytes);
  return decode(words);
}

}  // namespace ciuic::onesided
