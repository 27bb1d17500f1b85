// Runs a fuzz target over its committed seeds and some damage of each, so that every build and sanitizer does.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::vector<std::uint8_t>> seeds() {
  std::vector<std::vector<std::uint8_t>> all;
  std::ifstream file(CIUIC_SEEDS);
  for (std::string line; std::getline(file, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    std::vector<std::uint8_t> bytes;
    std::string digits;
    for (const char c : line) {
      if (c == ' ') continue;
      digits += c;
      if (digits.size() == 2) {
        bytes.push_back(static_cast<std::uint8_t>(std::stoi(digits, nullptr, 16)));
        digits.clear();
      }
    }
    if (!bytes.empty()) all.push_back(std::move(bytes));
  }
  return all;
}

TEST(Seeds, EachAndItsDamagedFormsAreSurvived) {
  const auto all = seeds();
  ASSERT_FALSE(all.empty()) << CIUIC_SEEDS;
  LLVMFuzzerTestOneInput(nullptr, 0);
  std::mt19937 dice(7);
  for (const auto& seed : all) {
    LLVMFuzzerTestOneInput(seed.data(), seed.size());
    for (std::size_t size = 0; size < seed.size(); size += 1 + seed.size() / 100)
      LLVMFuzzerTestOneInput(seed.data(), size);
    for (int round = 0; round < 300; ++round) {
      auto bytes = seed;
      for (auto times = 1 + dice() % 4; times > 0; --times) {
        const auto at = dice() % bytes.size();
        bytes[at] = static_cast<std::uint8_t>(dice() % 3 == 0 ? 0xFF : dice());
      }
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
}

}  // namespace
