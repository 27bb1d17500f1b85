#include "transport/base/crc32c_combine.h"

#include <gtest/gtest.h>

#include <random>

#include "transport/base/crc32c.h"

namespace ciuic {
namespace {

TEST(Crc32cCombine, IsTheCrcOfBothBehindEachOther) {
  std::mt19937 dice(1);
  for (const std::size_t bytes : {0U, 1U, 2U, 3U, 4U, 7U, 8U, 255U, 256U, 1000U, 1024U, 4096U, 65'535U, 1'000'003U}) {
    const Crc32cCombine behind(bytes);
    for (const std::size_t before : {0U, 1U, 61U, 1024U, 5001U}) {
      Buffer both(before + bytes);
      for (auto& byte : both) byte = static_cast<std::byte>(dice());
      const auto a = Bytes(both).first(before), b = Bytes(both).subspan(before);
      EXPECT_EQ(behind(crc32c(a), crc32c(b)), crc32c(both)) << before << " and " << bytes;
    }
  }
}

}  // namespace
}  // namespace ciuic
