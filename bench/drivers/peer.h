#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "bench/drivers/words.h"

/// What a client library must do to be measured. `peer_ciuic.cpp` and `peer_librdkafka.cpp` each implement it for one
/// library; a program links one of them, so every workload runs the same code over both. Errors are std::runtime_error.
namespace ciuic::bench {

using Value = std::span<const std::byte>;
using Milliseconds = std::chrono::milliseconds;

/// What the reading program does with what it is given. All are checked by CRC first.
enum class Delivery {
  views,    ///< nothing: batches (ours) or records (librdkafka) where the library has them
  copied,   ///< the bytes are copied into a buffer that is used again
  records,  ///< every record is unpacked and its value's first byte looked at
};

struct Polled {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;  ///< as delivered: of batches, or of values
};

class Writer {
 public:
  virtual ~Writer() = default;
  /// Queues a record without a key; waits while the library's queue is full.
  virtual void send(Value value) = 0;
  /// Waits until all is acknowledged. Throws where a record failed.
  virtual void flush() = 0;
};

/// One thread.
class Reader {
 public:
  virtual ~Reader() = default;
  /// All partitions are read from their beginning again.
  virtual void rewind() = 0;
  /// What is there, or nothing after `timeout`.
  virtual Polled poll(Milliseconds timeout, Delivery delivery) = 0;
  /// The same, record by record.
  virtual void poll_values(Milliseconds timeout, const std::function<void(Value)>& each) = 0;
  /// "one-sided shm", "tcp", …
  [[nodiscard]] virtual std::string path() const = 0;
};

/// A member of a consumer group. One thread; leaves the group when destroyed.
class Member {
 public:
  virtual ~Member() = default;
  /// Serves the group, and takes what there is to read; returns after `timeout` at the latest.
  virtual void poll(Milliseconds timeout) = 0;
  /// Partitions it has been given.
  [[nodiscard]] virtual std::size_t assigned() = 0;
};

enum class From { beginning, end };

[[nodiscard]] std::unique_ptr<Writer> open_writer(const Settings& settings, const std::string& topic);
[[nodiscard]] std::unique_ptr<Reader> open_reader(const Settings& settings, const std::string& topic, int partitions,
                                                  From from);
/// `settings` name the group.
[[nodiscard]] std::unique_ptr<Member> open_member(const Settings& settings, const std::string& topic);
/// "ciuickafka 0.1.0", "librdkafka 2.0.2"
[[nodiscard]] std::string library();

}  // namespace ciuic::bench
