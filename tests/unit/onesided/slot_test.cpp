// Slots: what is torn is seen.
#include "transport/onesided/slot.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace ciuic::onesided {
namespace {

struct alignas(64) Memory {
  std::array<std::byte, slot_bytes> bytes{};
};

Slot some() {
  Slot slot;
  slot.leader_epoch = kafka::LeaderEpoch(3);
  slot.flags = slot_flag::sealed;
  slot.layout = 9;
  slot.log_start_offset = kafka::Offset(5);
  slot.high_watermark = kafka::Offset(1LL << 40);
  slot.last_stable_offset = kafka::Offset(77);
  slot.chunk_sequence = 12;
  slot.chunk_length = 4096;
  slot.aborted_count = 2;
  return slot;
}

TEST(Slot, ReadsBackAsWritten) {
  Memory memory;
  EXPECT_EQ(read_slot(memory.bytes).error(), rdma::Fault::torn_slot) << "never written";
  SlotWriter writer(memory.bytes);
  writer.write(some());
  auto expected = some();
  expected.version = 2;
  EXPECT_EQ(read_slot(memory.bytes).value(), expected);
  EXPECT_EQ(parse_slot(memory.bytes).value(), expected);
  SlotWriter again(memory.bytes);
  again.write(some());
  EXPECT_EQ(read_slot(memory.bytes)->version, 4U) << "a later writer goes on counting";
}

TEST(Slot, AnyOtherByteIsSeen) {
  Memory memory;
  SlotWriter(memory.bytes).write(some());
  for (std::size_t at = 0; at < slot_bytes; ++at) {
    auto torn = memory;
    torn.bytes[at] ^= std::byte{1};
    EXPECT_TRUE(parse_slot(torn.bytes).has_error()) << at;
  }
  EXPECT_TRUE(parse_slot(Bytes(memory.bytes).first(63)).has_error());
}

TEST(Slot, ATearBetweenTwoWritesIsSeen) {
  Memory before, after;
  SlotWriter one(before.bytes);
  one.write(some());
  after = before;
  auto later = some();
  later.high_watermark = later.high_watermark + 1;
  SlotWriter(after.bytes).write(later);
  for (std::size_t cut = 8; cut < slot_bytes; cut += 8) {
    auto torn = after;
    std::memcpy(torn.bytes.data() + cut, before.bytes.data() + cut, slot_bytes - cut);
    if (torn.bytes == after.bytes) continue;
    EXPECT_TRUE(parse_slot(torn.bytes).has_error()) << cut;
  }
}

TEST(Slot, AReaderBesideAWriterSeesOnlyWholeSlots) {
  Memory memory;
  SlotWriter writer(memory.bytes);
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    for (std::int64_t i = 1; !stop.load(); ++i) {
      auto slot = some();
      slot.high_watermark = slot.last_stable_offset = slot.log_start_offset = kafka::Offset(i);
      writer.write(slot);
    }
  });
  std::uint64_t version = 0;
  for (int whole = 0; whole < 20000;) {
    const auto slot = read_slot(memory.bytes);
    if (!slot) continue;
    ++whole;
    EXPECT_GE(slot->version, version);
    version = slot->version;
    ASSERT_EQ(slot->high_watermark, slot->last_stable_offset);
    ASSERT_EQ(slot->high_watermark, slot->log_start_offset);
  }
  stop.store(true);
  thread.join();
}

}  // namespace
}  // namespace ciuic::onesided
