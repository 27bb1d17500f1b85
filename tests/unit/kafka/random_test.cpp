// Every message and version against bytes that nobody meant: truncated, damaged, with lying lengths, or plain noise.
// Nothing may crash, and decoding may not allocate more than a bound in the bytes given. CIUIC_SEED replays a run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <random>
#include <string>

#include "tests/unit/kafka/support/message_table.h"
#include "transport/kafka/record_batch.h"

namespace {
thread_local std::size_t allocated = 0;
}

void* operator new(std::size_t size) {
  allocated += size;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ciuic::kafka {
namespace {

class Random : public ::testing::Test {
 protected:
  Random()
      : seed_(std::getenv("CIUIC_SEED") != nullptr ? std::stoull(std::getenv("CIUIC_SEED")) : std::random_device{}()),
        trace_(__FILE__, __LINE__, "replay: CIUIC_SEED=" + std::to_string(seed_)),
        dice_(seed_) {}

  std::size_t up_to(std::size_t n) { return dice_() % (n + 1); }

  Buffer noise(std::size_t size) {
    Buffer bytes(size);
    for (auto& byte : bytes) byte = static_cast<std::byte>(dice_());
    return bytes;
  }

  void damage(Buffer& bytes) {
    if (bytes.empty()) return;
    const auto at = up_to(bytes.size() - 1);
    switch (dice_() % 5) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes[at] ^= static_cast<std::byte>(1U << (dice_() % 8));
        break;
      case 2:
        bytes[at] = std::byte{0xFF};
        break;  // the start of a huge varint or a negative length
      case 3:
        for (std::size_t i = at; i < bytes.size() && i < at + 4; ++i)
          bytes[i] = i == at ? std::byte{0x7F} : std::byte{0xFF};
        break;
      default:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), up_to(9), std::byte{0x80});
        break;
    }
  }

  /// Decoding may take 64 times the bytes for structs, the bytes once for strings, and a little.
  void decode_within_bounds(const testing::MessageCase& message, Bytes bytes, std::int16_t version) {
    const auto before = allocated;
    const bool decoded = message.decodes(bytes, version);
    ASSERT_LE(allocated - before, 66 * bytes.size() + 8192)
        << message.name << " v" << version << ", " << bytes.size() << " bytes";
    if (!decoded) return;
    ASSERT_TRUE(message.again(bytes, version).stable)
        << message.name << " v" << version << " changes when written again";
  }

  std::uint64_t seed_;
  ::testing::ScopedTrace trace_;
  std::mt19937_64 dice_;
};

TEST_F(Random, MessagesComeBackEqual) {
  for (const auto& message : testing::every_message()) {
    for (auto v = message.versions.min; v <= message.versions.max; ++v) {
      for (int round = 0; round < 10; ++round) {
        const auto bytes = message.random(dice_, v);
        ASSERT_TRUE(bytes) << message.name << " v" << v;
        const auto again = message.again(*bytes, v);
        ASSERT_TRUE(again.stable && again.bytes == *bytes) << message.name << " v" << v;
      }
    }
  }
}

TEST_F(Random, EveryTruncationIsRefused) {
  for (const auto& message : testing::every_message()) {
    for (auto v = message.versions.min; v <= message.versions.max; ++v) {
      const auto bytes = message.random(dice_, v);
      ASSERT_TRUE(bytes);
      for (std::size_t size = 0; size < bytes->size(); size += 1 + bytes->size() / 64) {
        EXPECT_FALSE(message.decodes(Bytes(*bytes).first(size), v)) << message.name << " v" << v << " of " << size;
      }
    }
  }
}

TEST_F(Random, DamagedMessagesNeitherCrashNorTakeMemory) {
  for (const auto& message : testing::every_message()) {
    for (auto v = message.versions.min; v <= message.versions.max; ++v) {
      const auto whole = message.random(dice_, v);
      ASSERT_TRUE(whole);
      for (int round = 0; round < 60; ++round) {
        auto bytes = *whole;
        for (auto times = 1 + up_to(3); times > 0; --times) damage(bytes);
        ASSERT_NO_FATAL_FAILURE(decode_within_bounds(message, bytes, v));
      }
    }
  }
}

TEST_F(Random, NoiseNeitherCrashesNorTakesMemory) {
  for (const auto& message : testing::every_message()) {
    for (auto v = message.versions.min; v <= message.versions.max; ++v) {
      for (int round = 0; round < 60; ++round) {
        auto bytes = noise(up_to(round % 10 == 0 ? 2000 : 60));
        if (round % 3 == 0) {
          for (auto& byte : bytes) byte &= std::byte{7};  // small numbers get further
        }
        ASSERT_NO_FATAL_FAILURE(decode_within_bounds(message, bytes, v));
      }
    }
  }
}

TEST_F(Random, RequestsOfNoiseAreSplitOrRefused) {
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = noise(up_to(80));
    if (bytes.size() >= 4 && round % 2 == 0) {
      store_be(bytes.data(), static_cast<std::int16_t>(dice_() % 70));
      store_be(bytes.data() + 2, static_cast<std::int16_t>(dice_() % 20));
    }
    const auto request = split_request(bytes);
    ASSERT_LE(request ? request->body.size() : 0, bytes.size());
  }
}

TEST_F(Random, DamagedBatchesNeitherCrashNorReadOutside) {
  for (int round = 0; round < 3000; ++round) {
    RecordBatchBuilder builder;
    for (auto left = 1 + up_to(20); left > 0; --left) {
      const auto key = noise(up_to(10));
      const auto value = noise(up_to(100));
      const HeaderToWrite header{"h", Bytes(value)};
      builder.add({static_cast<std::int64_t>(dice_() % 100000), Bytes(key), Bytes(value), {&header, up_to(1)}});
    }
    BatchHeader header;
    header.codec = static_cast<Codec>(dice_() % 5);
    Buffer bytes;
    ASSERT_TRUE(builder.finish(header, bytes));
    for (auto times = up_to(3); times > 0; --times) damage(bytes);
    const auto batch = RecordBatchView::parse(bytes);
    if (!batch) continue;
    (void)batch->crc_valid();
    Buffer scratch;
    auto reader = RecordReader::open(*batch, scratch, 1 << 20);
    if (!reader) continue;
    std::size_t seen = 0;
    while (const auto record = reader->next()) {
      auto headers = record->headers;
      while (const auto one = next_header(headers)) seen += one->key.size() + (one->value ? one->value->size() : 0);
      seen += (record->key ? record->key->size() : 0) + (record->value ? record->value->size() : 0);
    }
    EXPECT_LE(seen, std::max(scratch.size(), bytes.size()));
  }
}

}  // namespace
}  // namespace ciuic::kafka
