#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ciuic::bench {

/// An HdrHistogram of nanoseconds up to an hour at three significant digits: the buckets, and the encoding that every
/// HdrHistogram tool reads. Debian 12 has the library for Java and Go only. One thread.
class LatencyHistogram {
 public:
  LatencyHistogram();
  /// Values below 0 count as 0, those above an hour as an hour.
  void record(std::int64_t nanoseconds);
  /// The other's values, too.
  void add(const LatencyHistogram& other);
  [[nodiscard]] std::uint64_t count() const { return total_; }
  [[nodiscard]] std::int64_t max() const { return max_; }
  /// The value that so many hundredths of all values do not exceed, as the highest that its bucket holds; 0: no values.
  /// REQUIRES: 0 < percent <= 100.
  [[nodiscard]] std::int64_t at_percentile(double percent) const;
  /// V2, deflated, in base64: "HISTFAAA…".
  [[nodiscard]] std::string encoded() const;

 private:
  std::vector<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
  std::int64_t max_ = 0;
};

}  // namespace ciuic::bench
