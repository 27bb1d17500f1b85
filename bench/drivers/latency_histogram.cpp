// HdrHistogram's bucket layout and its V2 encoding: 2048 sub-buckets, each further bucket twice as coarse.
#include "bench/drivers/latency_histogram.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

namespace ciuic::bench {
namespace {

constexpr int sub_bits = 11;  // three significant digits: 2 * 10^3 rounded up to a power of two
constexpr std::int64_t sub_buckets = 1 << sub_bits;
constexpr std::int64_t half = sub_buckets / 2;
constexpr std::int64_t highest = 3'600'000'000'000;
constexpr int significant_digits = 3;
constexpr std::uint32_t plain_cookie = 0x1c849303 | 0x10;
constexpr std::uint32_t deflated_cookie = 0x1c849304 | 0x10;

int bucket_of(std::int64_t value) {
  return std::bit_width(static_cast<std::uint64_t>(value) | (sub_buckets - 1)) - sub_bits;
}

std::size_t index_of(std::int64_t value) {
  const auto bucket = bucket_of(value);
  return static_cast<std::size_t>((static_cast<std::int64_t>(bucket) + 1) * half + (value >> bucket) - half);
}

std::int64_t highest_at(std::size_t index) {
  const auto at = static_cast<std::int64_t>(index);
  const auto bucket = at < sub_buckets ? 0 : at / half - 1;
  const auto sub = at < sub_buckets ? at : at % half + half;
  return ((sub + 1) << bucket) - 1;
}

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}

/// ZigZag LEB128 with eight bits in the ninth byte, as HdrHistogram writes it.
void put_zigzag(std::string& out, std::int64_t value) {
  auto left = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  for (int byte = 0; byte < 8 && left > 127; ++byte, left >>= 7) out.push_back(static_cast<char>(left | 0x80));
  out.push_back(static_cast<char>(left));
}

std::string base64(const std::string& bytes) {
  static constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t three = 0;
    for (std::size_t i = 0; i < 3; ++i)
      three = three << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (int i = 0; i < 4; ++i) out.push_back(letters[three >> (18 - 6 * i) & 63]);
  }
  for (std::size_t i = bytes.size() % 3; i != 0 && i < 3; ++i) out[out.size() - 3 + i] = '=';
  return out;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : counts_(index_of(highest) + 1) {}

void LatencyHistogram::record(std::int64_t nanoseconds) {
  const auto value = std::clamp<std::int64_t>(nanoseconds, 0, highest);
  ++counts_[index_of(value)];
  ++total_;
  max_ = std::max(max_, value);
}

void LatencyHistogram::add(const LatencyHistogram& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  total_ += other.total_;
  max_ = std::max(max_, other.max_);
}

std::int64_t LatencyHistogram::at_percentile(double percent) const {
  // One step down, as HdrHistogram does: 99.9 % of 1000 are 999, not what rounding makes of it.
  const auto share = std::nextafter(percent, 0.0) * static_cast<double>(total_) / 100;
  const auto wanted = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(share)));
  std::uint64_t seen = 0;
  for (std::size_t index = 0; index < counts_.size(); ++index) {
    seen += counts_[index];
    if (seen >= wanted) return std::min(highest_at(index), max_);
  }
  return 0;
}

std::string LatencyHistogram::encoded() const {
  std::string counts;
  const auto end = index_of(max_) + 1;
  for (std::size_t index = 0; index < end;) {
    std::size_t zeros = 0;
    while (index + zeros < end && counts_[index + zeros] == 0) ++zeros;
    if (zeros > 0) {
      put_zigzag(counts, -static_cast<std::int64_t>(zeros));
      index += zeros;
    } else {
      put_zigzag(counts, static_cast<std::int64_t>(counts_[index++]));
    }
  }
  std::string plain;
  put(plain, plain_cookie, 4);
  put(plain, counts.size(), 4);
  put(plain, 0, 4);  // normalizing index offset
  put(plain, significant_digits, 4);
  put(plain, 1, 8);  // lowest value told from 0
  put(plain, static_cast<std::uint64_t>(highest), 8);
  put(plain, std::bit_cast<std::uint64_t>(1.0), 8);  // values are in this many of the unit
  plain += counts;

  auto size = ::compressBound(plain.size());
  std::string deflated(size, '\0');
  if (::compress(reinterpret_cast<Bytef*>(deflated.data()), &size, reinterpret_cast<const Bytef*>(plain.data()),
                 plain.size()) != Z_OK)
    throw std::runtime_error("zlib could not deflate the histogram");
  std::string out;
  put(out, deflated_cookie, 4);
  put(out, size, 4);
  return base64(out.append(deflated, 0, size));
}

}  // namespace ciuic::bench
