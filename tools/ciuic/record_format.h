#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "client/include/ciuic/batch.h"

namespace ciuic::tool {

/// kcat's format strings: %s value, %S its length (-1: null), %k key, %K its length, %t topic, %p partition, %o offset,
/// %T timestamp, %h headers, %% a percent; \n \r \t \\ \xHH. Throws Failure for any other.
class RecordFormat {
 public:
  explicit RecordFormat(std::string_view text);
  void write(std::string& out, const client::RecordBatch& batch, const client::Record& record) const;

 private:
  struct Part {
    char field = 0;  // 0: literal text
    std::string text{};
  };
  void literal(char byte);
  std::vector<Part> parts_;
};

}  // namespace ciuic::tool
