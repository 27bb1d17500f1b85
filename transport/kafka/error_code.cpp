#include "transport/kafka/error_code.h"

namespace ciuic::kafka {
namespace {

struct Row {
  ErrorCode code;
  bool retriable;
  std::string_view lower;
};

constexpr Row rows[] = {
#define CIUIC_ERROR(name, code, retriable) {ErrorCode::name, retriable, #name},
#include "transport/kafka/error_code.def"
#undef CIUIC_ERROR
};
constexpr std::size_t row_count = sizeof(rows) / sizeof(rows[0]);

// The table's codes run without a gap from the first on, so the code is the index.
constexpr auto first_code = static_cast<std::int16_t>(rows[0].code);
static_assert(static_cast<std::int16_t>(rows[row_count - 1].code) - first_code + 1 == static_cast<int>(row_count));

const Row& row_of(ErrorCode code) {
  const int index = static_cast<std::int16_t>(code) - first_code;
  return rows[index < 0 || index >= static_cast<int>(row_count) ? 0 : index];
}

struct UpperNames {
  std::string names[row_count];
  UpperNames() {
    for (std::size_t i = 0; i < row_count; ++i) {
      names[i] = rows[i].lower;
      for (char& c : names[i]) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    }
  }
};

}  // namespace

std::string_view name(ErrorCode code) {
  static const UpperNames upper;
  return upper.names[&row_of(code) - rows];
}

bool retriable(ErrorCode code) { return row_of(code).retriable; }

}  // namespace ciuic::kafka
