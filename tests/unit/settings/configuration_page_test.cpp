// docs/configuration.md is what the two tables of settings say, the broker's and the client's. To write it anew:
//   CIUIC_WRITE_DOCS=1 build/release/tests/settings_test --gtest_filter='ConfigurationPage.*'
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "broker/settings/settings.h"
#include "ciuic/client.h"

namespace ciuic {
namespace {

std::string page() {
  std::string text = broker::settings_markdown();
  text +=
      "\n## Client\n\nThe same names in C++, C, Python and `ciuic … -X key=value`; librdkafka's other names for them "
      "are read "
      "too. An unknown key is an error.\n\n| key | of | default | allowed | what it does |\n|---|---|---|---|---|\n";
  for (const auto& row : client::settings()) {
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.key, row.applies_to, row.standard, row.allowed, row.what);
  }
  return text;
}

TEST(ConfigurationPage, SaysWhatTheTablesSay) {
  const std::string path = "docs/configuration.md";  // tests run in the root of the sources
  const auto wanted = page();
  if (std::getenv("CIUIC_WRITE_DOCS") != nullptr) {
    std::ofstream(path) << wanted;
  }
  std::ifstream file(path);
  const std::string found{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(found, wanted)
      << "write it anew: CIUIC_WRITE_DOCS=1 build/release/tests/settings_test --gtest_filter='ConfigurationPage.*'";
}

TEST(ConfigurationPage, ClientRowsAreUniqueAndFitATable) {
  std::map<std::string, int> keys;
  for (const auto& row : client::settings()) {
    EXPECT_EQ(++keys[row.key], 1) << row.key;
    const std::string text = std::string(row.what) + row.allowed + row.standard;
    EXPECT_EQ(text.find_first_of("|\n"), std::string::npos) << row.key;
    EXPECT_EQ(std::string(row.what).back(), '.') << row.key;
  }
}

}  // namespace
}  // namespace ciuic
