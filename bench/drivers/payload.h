#pragma once
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>

#include "bench/drivers/peer.h"

namespace ciuic::bench {

/// Values to send, made beforehand so that the producer's CPU is the client library's. They repeat after 8 MiB, which
/// is beyond what a codec looks back over within one batch.
class Payload {
 public:
  /// `kind`: "random" (does not compress) or "text" (words of a small vocabulary, as prose and code have).
  Payload(const std::string& kind, std::size_t record_bytes) : record_bytes_(record_bytes) {
    if (record_bytes == 0) throw std::runtime_error("record.bytes=0: 1 or more");
    std::mt19937_64 dice(1);
    pool_.reserve(pool_bytes + record_bytes + 64);
    if (kind == "random") {
      while (pool_.size() < pool_bytes + record_bytes) {
        const auto word = dice();
        pool_.append(reinterpret_cast<const char*>(&word), sizeof(word));
      }
    } else if (kind == "text") {
      std::vector<std::string> words(2000);
      for (auto& word : words) {
        word.resize(2 + dice() % 9);
        for (auto& letter : word) letter = static_cast<char>('a' + dice() % 26);
      }
      while (pool_.size() < pool_bytes + record_bytes) pool_ += words[dice() % words.size()] + ' ';
    } else {
      throw std::runtime_error("payload=" + kind + ": random or text");
    }
  }
  /// The next record's value, valid until the payload ends.
  [[nodiscard]] Value next() {
    if (at_ >= pool_bytes) at_ = 0;
    const auto* from = reinterpret_cast<const std::byte*>(pool_.data()) + at_;
    at_ += record_bytes_;
    return {from, record_bytes_};
  }

 private:
  static constexpr std::size_t pool_bytes = 8 << 20;
  std::size_t record_bytes_;
  std::string pool_;
  std::size_t at_ = 0;
};

}  // namespace ciuic::bench
