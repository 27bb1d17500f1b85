// The last section of docs/protocol.md is the one list of handlers, with the names that the schemas give. To write it
// anew:
//   CIUIC_WRITE_DOCS=1 build/release/tests/api_test --gtest_filter='ProtocolPage.*'
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>

#include "broker/api/api_versions.h"
#include "broker/api/handlers.h"

namespace ciuic::broker::api {
namespace {

constexpr auto page_path = "docs/protocol.md";  // tests run in the root of the sources
constexpr auto heading = "## The APIs that are served\n";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// By key: `request ListGroupsRequest key 16 …` is ListGroups.
std::map<std::int16_t, std::string> names() {
  std::map<std::int16_t, std::string> found;
  const std::regex line("(?:^|\n)request (\\w+)Request key (\\d+) ");
  for (const auto& entry : std::filesystem::directory_iterator("transport/kafka/schema")) {
    if (entry.path().extension() != ".schema") continue;
    const auto text = read(entry.path());
    for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at)
      found[static_cast<std::int16_t>(std::stoi((*at)[2]))] = (*at)[1];
  }
  return found;
}

std::string section() {
  const auto name_of = names();
  const auto range = [](std::int16_t first, std::int16_t last) {
    return first == last ? fmt::format("{}", first) : fmt::format("{}…{}", first, last);
  };
  std::string text = heading;
  text += "Generated from the list that dispatch and ApiVersions read (`broker/api/handlers.cpp`).\n\n";
  text += "| key | API | versions |\n|---|---|---|\n";
  std::string announced;
  const auto told = supported_versions(OneSided::on);
  for (std::size_t i = 0; i < handlers().size(); ++i) {
    const auto& row = handlers()[i];
    const auto name = name_of.find(row.key);
    text += fmt::format("| {} | {} | {} |\n", row.key, name == name_of.end() ? "?" : name->second,
                        range(row.versions.min, row.versions.max));
    if (const auto& said = told.api_keys.at(i); said.min_version != row.versions.min)
      announced += fmt::format("\nApiVersions says {} for {}, as Apache Kafka does for librdkafka's sake.\n",
                               range(said.min_version, said.max_version), name->second);
  }
  return text + announced;
}

TEST(ProtocolPage, EndsWithTheListOfHandlers) {
  const auto wanted = section();
  const auto page = read(page_path);
  const auto at = page.find(heading);
  ASSERT_NE(at, std::string::npos) << "docs/protocol.md has no section: " << heading;
  if (std::getenv("CIUIC_WRITE_DOCS") != nullptr) {
    std::ofstream(page_path) << page.substr(0, at) << wanted;
  }
  EXPECT_EQ(read(page_path).substr(at), wanted)
      << "write it anew: CIUIC_WRITE_DOCS=1 build/release/tests/api_test --gtest_filter='ProtocolPage.*'";
}

TEST(ProtocolPage, EveryHandlerHasASchemaAndSoAName) {
  const auto name_of = names();
  for (const auto& row : handlers()) EXPECT_TRUE(name_of.contains(row.key)) << row.key;
}

}  // namespace
}  // namespace ciuic::broker::api
