// The drivers' histogram against HdrHistogram's own (Java, 2.2.2): the same values recorded, the same percentiles told.
#include "bench/drivers/latency_histogram.h"

#include <gtest/gtest.h>

namespace ciuic::bench {
namespace {

/// What made the Java library's figures: growing values, every seventh 300 times.
LatencyHistogram filled() {
  LatencyHistogram out;
  std::int64_t value = 1;
  for (int i = 0; i < 200 && value <= 3'600'000'000'000; ++i, value = value * 8 / 7 + 1) {
    for (int times = i % 7 == 0 ? 300 : 1; times > 0; --times) out.record(value);
  }
  return out;
}

TEST(LatencyHistogram, TellsThePercentilesThatHdrHistogramTells) {
  const auto histogram = filled();
  EXPECT_EQ(histogram.count(), 8871U);
  EXPECT_EQ(histogram.at_percentile(10), 29);
  EXPECT_EQ(histogram.at_percentile(50), 2437119);
  EXPECT_EQ(histogram.at_percentile(90), 181328150527);
  EXPECT_EQ(histogram.at_percentile(99), 1175747297279);
  EXPECT_EQ(histogram.at_percentile(99.9), 1175747297279);
}

TEST(LatencyHistogram, TheMaximumIsTheValueItself) {
  LatencyHistogram histogram;
  histogram.record(1'000'003);
  EXPECT_EQ(histogram.max(), 1'000'003);
  EXPECT_EQ(histogram.at_percentile(100), 1'000'003);
}

TEST(LatencyHistogram, ARoundShareIsNotRoundedUp) {
  LatencyHistogram histogram;
  for (int i = 0; i < 999; ++i) histogram.record(10);
  histogram.record(1000);
  EXPECT_EQ(histogram.at_percentile(99.9), 10);
}

TEST(LatencyHistogram, TwoTogetherAreOneOfAllValues) {
  LatencyHistogram first, second, both;
  for (int value = 1; value < 100'000; value += 7) {
    (value % 2 == 0 ? first : second).record(value);
    both.record(value);
  }
  first.add(second);
  EXPECT_EQ(first.encoded(), both.encoded());
  EXPECT_EQ(first.count(), both.count());
  EXPECT_EQ(first.max(), both.max());
  EXPECT_EQ(first.at_percentile(99), both.at_percentile(99));
}

TEST(LatencyHistogram, ValuesOutsideItsRangeCountAtItsEnds) {
  LatencyHistogram histogram;
  histogram.record(-5);
  histogram.record(INT64_MAX);
  EXPECT_EQ(histogram.count(), 2U);
  EXPECT_EQ(histogram.at_percentile(50), 0);
  EXPECT_EQ(histogram.max(), 3'600'000'000'000);
}

TEST(LatencyHistogram, AnEmptyOneTellsNothingAndEncodes) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.at_percentile(50), 0);
  EXPECT_EQ(histogram.encoded().substr(0, 7), "HISTFAA");
}

}  // namespace
}  // namespace ciuic::bench
