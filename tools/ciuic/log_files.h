#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/bytes.h"

namespace ciuic::tool {

/// A file's bytes, mapped read-only. Throws Failure.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] Bytes bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// "00000000000000000042.log" → 42. Throws Failure where the name is not a segment's.
[[nodiscard]] std::int64_t base_offset_of(const std::string& path);

}  // namespace ciuic::tool
