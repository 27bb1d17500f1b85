#pragma once
#include "transport/kafka/record_batch.h"

namespace ciuic::fuzz {

/// Gives each whole batch the checksum that its bytes ask for, so that what they say is reached.
inline void mend_batches(MutableBytes bytes) {
  while (const auto size = kafka::batch_size(bytes)) {
    if (*size >= kafka::batch_header_bytes) kafka::set_crc(bytes.first(*size));
    bytes = bytes.subspan(*size);
  }
}

}  // namespace ciuic::fuzz
