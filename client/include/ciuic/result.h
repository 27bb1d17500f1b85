#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace ciuic::client {

/// What kind of trouble: what a program decides on. The broker's own code, where there is one, is in
/// `Error::kafka_code`.
enum class Trouble : std::int16_t {
  none = 0,
  invalid_config = 1,  ///< key, value and what is allowed are in the text
  invalid_argument = 2,
  invalid_state = 3,  ///< closed, not subscribed, no group, …
  timed_out = 4,
  interrupted = 5,         ///< `wakeup` was called
  queue_full = 6,          ///< producer: buffer.memory is used up for longer than max.block.ms
  forked_child = 7,        ///< this process is a forked child of the one that opened the client
  broker = 8,              ///< the broker answered `kafka_code`
  disconnected = 9,        ///< no broker reachable
  unsupported = 10,        ///< the broker lacks an API or version that this needs
  corrupt = 11,            ///< a batch's check failed where it must not
  no_one_sided_path = 12,  ///< transport=rdma and the path cannot work: the text says why
  data_loss = 13,          ///< the wanted offset is gone and auto.offset.reset=none
  fatal = 14               ///< the client cannot go on: open another one
};
/// "invalid_config"
[[nodiscard]] const char* name(Trouble trouble);

struct Error {
  Trouble trouble = Trouble::none;
  std::int16_t kafka_code = 0;  ///< Kafka's error code; 0: none
  bool retriable = false;       ///< the same call may work later
  std::string text{};           ///< for people: what, on what, what to do
};

/// What `Result::value` throws. The library itself never throws.
class Failure : public std::runtime_error {
 public:
  explicit Failure(Error error) : std::runtime_error(error.text), error_(std::move(error)) {}
  [[nodiscard]] const Error& error() const { return error_; }

 private:
  Error error_;
};

/// A value or the reason there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  explicit operator bool() const { return held_.index() == 0; }
  /// REQUIRES: it holds a value.
  T& operator*() & { return *std::get_if<0>(&held_); }
  const T& operator*() const& { return *std::get_if<0>(&held_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&held_)); }
  T* operator->() { return std::get_if<0>(&held_); }
  const T* operator->() const { return std::get_if<0>(&held_); }
  /// REQUIRES: it holds an error.
  [[nodiscard]] const Error& error() const { return *std::get_if<1>(&held_); }
  /// The value, or throws `Failure`: for programs that like exceptions better.
  T value() && {
    if (!*this) throw Failure(error());
    return std::move(**this);
  }
  const T& value() const& {
    if (!*this) throw Failure(error());
    return **this;
  }

 private:
  std::variant<T, Error> held_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT: implicit on purpose
  explicit operator bool() const { return !failed_; }
  [[nodiscard]] const Error& error() const { return error_; }
  void value() const {
    if (failed_) throw Failure(error_);
  }

 private:
  Error error_{};
  bool failed_ = false;
};

}  // namespace ciuic::client
