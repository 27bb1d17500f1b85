#pragma once
#include <cstdint>

#include "transport/kafka/codec.h"

namespace ciuic::broker {

/// A metadata record's value: frame version 1, the record's key and version as unsigned varints, then its fields
/// (Apache's MetadataRecordSerde).
template <class Record>
[[nodiscard]] Buffer encode_metadata(const Record& record, std::int16_t version = Record::valid_versions.max) {
  Buffer value;
  kafka::WireWriter out(value);
  out.uvarint(1);
  out.uvarint(static_cast<std::uint64_t>(Record::api_key));
  out.uvarint(static_cast<std::uint64_t>(version));
  out.bytes(kafka::encode(record, version).flatten());
  return value;
}

}  // namespace ciuic::broker
