#pragma once
#include <cstdint>
#include <optional>

#include "ciuic/types.h"
#include "client/core/settings.h"

namespace ciuic::client::core {

/// 32-bit MurmurHash2 with the seed of Java's org.apache.kafka.common.utils.Utils.murmur2.
[[nodiscard]] std::uint32_t murmur2(Bytes bytes);

/// The partition that the key alone decides; nothing: the producer may choose any. REQUIRES: `partitions` > 0.
[[nodiscard]] std::optional<std::int32_t> partition_of(Partitioner how, const std::optional<Bytes>& key,
                                                       std::int32_t partitions);

}  // namespace ciuic::client::core
