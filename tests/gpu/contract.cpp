// What every device promises, held against the host over the same bytes.
#include "tests/gpu/contract.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "transport/base/crc32c.h"
#include "transport/device/host.h"

namespace ciuic::testing {

using device::BatchHead, device::Slice, device::Span;

Subject host_subject() {
  return {"host", [](std::size_t bytes) -> device::Result<Place> {
            auto memory = std::make_shared<Buffer>(bytes);
            const Span span{reinterpret_cast<std::uint64_t>(memory->data()), bytes};
            return Place{span, device::make_host(), memory};
          }};
}

void DeviceContract::SetUp() {
  const char* const given = std::getenv("CIUIC_SEED");
  seed_ = given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  RecordProperty("seed", std::to_string(seed_));
  if (const auto place = GetParam().place(4096); !place) GTEST_SKIP() << place.error().text;
}

Place DeviceContract::noise(std::size_t bytes, Buffer& memory) {
  auto place = GetParam().place(bytes).value();
  std::mt19937 dice(seed_);
  memory.resize(bytes);
  for (auto& byte : memory) byte = static_cast<std::byte>(dice());
  EXPECT_TRUE(place.device->copy_in(place.span, memory));
  return place;
}

namespace {

#define SCOPED_SEED SCOPED_TRACE(fmt::format("replay: CIUIC_SEED={}", seed_))

Buffer all_of(const Place& place) {
  Buffer out(place.span.bytes);
  const auto copied = place.device->copy_out(out, place.span);
  EXPECT_TRUE(copied) << copied.error().text;
  return out;
}

template <class T>
T some(std::mt19937& dice, T least, T most) {
  return std::uniform_int_distribution<T>(least, most)(dice);
}

TEST_P(DeviceContract, BytesComeBackAsTheyWentInAndNeighboursStay) {
  SCOPED_SEED;
  Buffer memory;
  const auto place = noise(100'000, memory);
  std::mt19937 dice(seed_ + 1);
  for (int round = 0; round < 50; ++round) {
    const auto at = some<std::size_t>(dice, 0, memory.size());
    const auto bytes = round == 0 ? 0 : some<std::size_t>(dice, 0, memory.size() - at);
    const Buffer fresh(bytes, static_cast<std::byte>(round));
    ASSERT_TRUE(place.device->copy_in(place.span.sub(at, bytes), fresh));
    std::copy(fresh.begin(), fresh.end(), memory.begin() + static_cast<std::ptrdiff_t>(at));
    Buffer out(bytes);
    ASSERT_TRUE(place.device->copy_out(out, place.span.sub(at, bytes)));
    ASSERT_EQ(out, fresh);
  }
  EXPECT_EQ(all_of(place), memory);
}

TEST_P(DeviceContract, WipedBytesAreZerosAndNeighboursStay) {
  SCOPED_SEED;
  Buffer memory;
  const auto place = noise(100'000, memory);
  ASSERT_TRUE(place.device->wipe(place.span.sub(777, 0)));
  ASSERT_TRUE(place.device->wipe(place.span.sub(777, 50'001)));
  std::fill_n(memory.begin() + 777, 50'001, std::byte{0});
  EXPECT_EQ(all_of(place), memory);
}

/// What lies in a landing area: batches behind each other, the last cut, or one whose length is none.
Buffer batches(std::mt19937& dice, std::size_t bytes) {
  Buffer area(bytes);
  for (auto& byte : area) byte = static_cast<std::byte>(dice());
  const auto longest = some<std::uint32_t>(dice, 49, 20'000);
  for (std::size_t at = 0; at + 12 <= bytes;) {
    auto length = some<std::uint32_t>(dice, 49, longest);
    if (some(dice, 0, 199) == 0) length = std::array{0U, 48U, 0x7fffffffU, 0x80000000U, 0xffffffffU}.at(dice() % 5);
    for (std::size_t i = 0; i < 4; ++i) area[at + 8 + i] = static_cast<std::byte>(length >> (24 - 8 * i));
    at += std::size_t{length} + 12;
  }
  return area;
}

void expect_same_heads(const Place& place, const Buffer& area, std::size_t room) {
  std::vector<BatchHead> found(room), expected(room);
  const auto host = device::make_host();
  const Span same{reinterpret_cast<std::uint64_t>(area.data()), area.size()};
  const auto count = place.device->heads(place.span.sub(0, area.size()), found);
  ASSERT_TRUE(count) << count.error().text;
  ASSERT_EQ(*count, host->heads(same, expected).value()) << area.size() << " bytes, room for " << room;
  for (std::size_t i = 0; i < *count; ++i) {
    ASSERT_EQ(found[i].at, expected[i].at) << i;
    ASSERT_EQ(found[i].bytes, expected[i].bytes) << i;
  }
}

TEST_P(DeviceContract, HeadsAreThoseThatTheHostFinds) {
  Buffer memory;
  const auto place = noise(300'000, memory);
  NEEDS_KERNELS(*place.device);
  SCOPED_SEED;
  std::mt19937 dice(seed_ + 1);
  for (int round = 0; round < 60; ++round) {
    const auto area = batches(dice, some<std::size_t>(dice, 0, round % 3 == 0 ? 200 : memory.size()));
    ASSERT_TRUE(place.device->copy_in(place.span.sub(0, area.size()), area));
    ASSERT_NO_FATAL_FAILURE(expect_same_heads(place, area, some<std::size_t>(dice, 0, round % 2 == 0 ? 5 : 5000)));
  }
}

TEST_P(DeviceContract, HeadsAreFoundHoweverManyThereAre) {
  Buffer area(61 * 30'000 + 60);
  for (std::size_t at = 0; at + 61 < area.size(); at += 61)
    area[at + 11] = std::byte{49}, area[at + 20] = std::byte(at);
  const auto place = GetParam().place(area.size()).value();
  NEEDS_KERNELS(*place.device);
  ASSERT_TRUE(place.device->copy_in(place.span, area));
  for (const std::size_t room : {29'999, 30'000, 40'000}) ASSERT_NO_FATAL_FAILURE(expect_same_heads(place, area, room));
}

TEST_P(DeviceContract, ChecksumsAreThoseOfTheHost) {
  Buffer memory;
  const auto place = noise(300'000, memory);
  NEEDS_KERNELS(*place.device);
  SCOPED_SEED;
  std::mt19937 dice(seed_ + 1);
  for (int round = 0; round < 40; ++round) {
    std::vector<Slice> slices(some<std::size_t>(dice, 0, 40));
    const auto start = some<std::size_t>(dice, 0, 64);  // the span's own, so that alignments differ
    const auto bytes = static_cast<std::uint32_t>(memory.size() - start);
    for (auto& slice : slices) {
      slice.bytes =
          std::min(bytes, some<std::uint32_t>(dice, 0, std::array{20U, 1100U, 5000U, 300'000U}.at(dice() % 4)));
      if (dice() % 4 == 0) slice.bytes = slice.bytes / 1024 * 1024;
      slice.at = some<std::uint32_t>(dice, 0, bytes - slice.bytes);
    }
    std::vector<std::uint32_t> sums(slices.size(), 0xdeadbeef);
    const auto done = place.device->checksums(place.span.sub(start, bytes), slices, sums);
    ASSERT_TRUE(done) << done.error().text;
    for (std::size_t i = 0; i < slices.size(); ++i)
      ASSERT_EQ(sums[i], crc32c(Bytes(memory).subspan(start + slices[i].at, slices[i].bytes)))
          << slices[i].bytes << " bytes from " << slices[i].at;
  }
}

TEST_P(DeviceContract, ChecksumsOfMoreThanFitsALaunchAreThoseOfTheHost) {
  Buffer memory;
  const auto place = noise(70'000'001, memory);
  NEEDS_KERNELS(*place.device);
  SCOPED_SEED;
  const std::vector<Slice> slices{{5, 17}, {1, 70'000'000}, {9, 0}, {0, 35'000'000}, {69'999'999, 2}};
  std::vector<std::uint32_t> sums(slices.size());
  ASSERT_TRUE(place.device->checksums(place.span, slices, sums));
  for (std::size_t i = 0; i < slices.size(); ++i)
    EXPECT_EQ(sums[i], crc32c(Bytes(memory).subspan(slices[i].at, slices[i].bytes))) << i;
}

TEST_P(DeviceContract, CallsComeFromAnyOneThread) {
  Buffer memory;
  auto place = noise(5000, memory);
  NEEDS_KERNELS(*place.device);
  for (int round = 0; round < 3; ++round)
    std::thread([&] {
      std::vector<std::uint32_t> sum(1);
      ASSERT_TRUE(place.device->checksums(place.span, std::vector<Slice>{{0, 5000}}, sum));
      EXPECT_EQ(sum[0], crc32c(memory));
      EXPECT_EQ(all_of(place), memory);
    }).join();
  std::thread([device = std::move(place.device)]() mutable { device.reset(); }).join();
}

TEST_P(DeviceContract, APinEndsOnAnyThreadWhileTheDeviceCopies) {
  Buffer memory;
  const auto place = noise(5000, memory);
  std::vector<Buffer> others(50, Buffer(8192));
  for (const auto& other : others) {
    auto pin = place.device->pin(other);
    if (!pin) GTEST_SKIP() << pin.error().text;
    std::thread ending([pin = std::move(*pin)]() mutable { pin.reset(); });
    for (int i = 0; i < 5; ++i) EXPECT_EQ(all_of(place), memory);
    ending.join();
  }
}

TEST_P(DeviceContract, PinnedMemoryIsCopiedFromWhetherItMayBeWrittenOrNot) {
  constexpr std::size_t bytes = 1 << 20;
  const auto place = GetParam().place(bytes).value();
  for (const bool writable : {true, false}) {
    const int memfd = ::memfd_create("chunk", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(memfd, bytes), 0);
    const Buffer pattern(bytes, std::byte{writable ? std::uint8_t{0x11} : std::uint8_t{0x22}});
    ASSERT_EQ(::pwrite(memfd, pattern.data(), bytes, 0), static_cast<ssize_t>(bytes));
    void* const mapped = ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, memfd, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    {
      const Bytes host(static_cast<const std::byte*>(mapped), bytes);
      const auto pin = place.device->pin(host);
      ASSERT_TRUE(pin) << pin.error().text;
      ASSERT_TRUE(place.device->copy_in(place.span, host));
      EXPECT_EQ(all_of(place), pattern);
    }
    ::munmap(mapped, bytes);
    ::close(memfd);
  }
}

TEST_P(DeviceContract, ADmaBufIsOfTheSpanOrThereIsAReason) {
  const auto place = GetParam().place(1 << 21).value();
  const auto found = place.device->dma_buf(place.span.sub(5000, 10'000));
  if (!found) {
    EXPECT_FALSE(found.error().text.empty());
    if (!place.device->is_host()) GTEST_SKIP() << found.error().text;
    return;
  }
  EXPECT_FALSE(place.device->is_host());
  EXPECT_TRUE(found->descriptor);
  EXPECT_LT(found->offset, 1U << 21);
}

}  // namespace
}  // namespace ciuic::testing
