// Keys to partitions, bit for bit as Java's and librdkafka's producers do it.
#include "client/core/partitioner.h"

#include <zlib.h>

#include <cstring>

namespace ciuic::client::core {

std::uint32_t murmur2(Bytes bytes) {
  constexpr std::uint32_t seed = 0x9747b28cU, m = 0x5bd1e995U;
  constexpr int r = 24;
  auto hash = seed ^ static_cast<std::uint32_t>(bytes.size());
  const auto* at = bytes.data();
  auto left = bytes.size();
  for (; left >= 4; left -= 4, at += 4) {
    std::uint32_t k = 0;
    std::memcpy(&k, at, 4);  // little-endian, as Java composes it
    k *= m;
    k ^= k >> r;
    k *= m;
    hash *= m;
    hash ^= k;
  }
  if (left >= 3) hash ^= static_cast<std::uint32_t>(at[2]) << 16;
  if (left >= 2) hash ^= static_cast<std::uint32_t>(at[1]) << 8;
  if (left >= 1) {
    hash ^= static_cast<std::uint32_t>(at[0]);
    hash *= m;
  }
  hash ^= hash >> 13;
  hash *= m;
  hash ^= hash >> 15;
  return hash;
}

std::optional<std::int32_t> partition_of(Partitioner how, const std::optional<Bytes>& key, std::int32_t partitions) {
  const auto count = static_cast<std::uint32_t>(partitions);
  const auto bytes = key.value_or(Bytes{});
  const auto by_murmur = [&] { return static_cast<std::int32_t>((murmur2(bytes) & 0x7fffffffU) % count); };
  const auto by_crc = [&] {
    const auto sum = crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) % count);
  };
  switch (how) {
    case Partitioner::murmur2_random:
      return key ? std::optional(by_murmur()) : std::nullopt;
    case Partitioner::murmur2:
      return by_murmur();
    case Partitioner::consistent_random:
      return bytes.empty() ? std::nullopt : std::optional(by_crc());
    case Partitioner::consistent:
      return by_crc();
    case Partitioner::random:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace ciuic::client::core
