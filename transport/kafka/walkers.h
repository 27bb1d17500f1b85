#pragma once
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "transport/kafka/codec.h"

/// The three readers of a message's one walk: Sizer, Encoder, Decoder. Included by generated .cpp files alone, which
/// instantiate decode and encode_into for their messages. A tagged field comes as (tag, does the version carry it, is
/// it not the default, its walk).
namespace ciuic::kafka::walk {

template <class T>
constexpr std::size_t wire_size = std::is_same_v<T, Uuid> ? 16 : sizeof(T);

class Sizer {
 public:
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Bytes that are spliced in, not written into the head.
  [[nodiscard]] std::size_t spliced() const { return spliced_; }

  template <class T>
  void number(const T&) {
    bytes_ += wire_size<T>;
  }
  void string(const std::string& s, bool flexible) {
    length(s.size(), flexible, 2);
    bytes_ += s.size();
  }
  void string(const std::optional<std::string>& s, bool flexible, bool) {
    length(s ? s->size() : 0, flexible, 2);
    bytes_ += s ? s->size() : 0;
  }
  void bytes(const Buffer& b, bool flexible) {
    length(b.size(), flexible, 4);
    bytes_ += b.size();
  }
  void bytes(const std::optional<Buffer>& b, bool flexible, bool) {
    length(b ? b->size() : 0, flexible, 4);
    bytes_ += b ? b->size() : 0;
  }
  void records(const Records& r, bool flexible, bool) {
    length(r.size(), flexible, 4);
    spliced_ += r.size();
  }
  template <class V, class F>
  void array(const V& v, bool flexible, std::size_t, F&& each) {
    length(v.size(), flexible, 4);
    for (const auto& element : v) each(element);
  }
  template <class V, class F>
  void array(const std::optional<V>& v, bool flexible, bool, std::size_t, F&& each) {
    length(v ? v->size() : 0, flexible, 4);
    if (v) {
      for (const auto& element : *v) each(element);
    }
  }
  template <class S, class F>
  void structure(const std::optional<S>& s, F&& walk_it) {
    bytes_ += 1;
    if (s) walk_it(*s);
  }
  template <class F>
  void tags(F&& fields) {
    std::size_t count = 0;
    Tag tag{*this, count};
    fields(tag);
    bytes_ += uvarint_size(count);
  }

 private:
  struct Tag {
    Sizer& out;
    std::size_t& count;
    template <class F>
    void field(std::uint32_t number, bool carried, bool present, F&& content) {
      if (!carried || !present) return;
      ++count;
      Sizer inner;
      content(inner);
      out.bytes_ += uvarint_size(number) + uvarint_size(inner.bytes_ + inner.spliced_) + inner.bytes_;
      out.spliced_ += inner.spliced_;
    }
  };
  void length(std::size_t n, bool flexible, std::size_t fixed) { bytes_ += flexible ? uvarint_size(n + 1) : fixed; }

  std::size_t bytes_ = 0;
  std::size_t spliced_ = 0;
};

class Encoder {
 public:
  /// Writes from `at` on into a head that is already large enough (a Sizer said so).
  Encoder(Frame& frame, std::size_t at) : frame_(frame), at_(frame.head.data() + at) {}

  template <class T>
  void number(const T& value) {
    if constexpr (std::is_same_v<T, Uuid>) {
      std::memcpy(at_, value.bytes.data(), 16);
    } else if constexpr (std::is_same_v<T, bool>) {
      *at_ = static_cast<std::byte>(value);
    } else if constexpr (std::is_enum_v<T>) {
      store_be(at_, static_cast<std::underlying_type_t<T>>(value));
    } else {
      store_be(at_, value);
    }
    at_ += wire_size<T>;
  }
  void string(const std::string& s, bool flexible) { text(s.data(), s.size(), true, flexible, 2); }
  void string(const std::optional<std::string>& s, bool flexible, bool nullable) {
    text(s ? s->data() : nullptr, s ? s->size() : 0, s || !nullable, flexible, 2);
  }
  void bytes(const Buffer& b, bool flexible) { text(b.data(), b.size(), true, flexible, 4); }
  void bytes(const std::optional<Buffer>& b, bool flexible, bool nullable) {
    text(b ? b->data() : nullptr, b ? b->size() : 0, b || !nullable, flexible, 4);
  }
  void records(const Records& r, bool flexible, bool nullable) {
    length(r.size(), !r.is_null() || !nullable, flexible, 4);
    const auto here = static_cast<std::size_t>(at_ - frame_.head.data());
    for (const auto piece : r.pieces()) frame_.splices.push_back({here, piece});
    frame_.pins.insert(frame_.pins.end(), r.pins().begin(), r.pins().end());
  }
  template <class V, class F>
  void array(const V& v, bool flexible, std::size_t, F&& each) {
    length(v.size(), true, flexible, 4);
    for (const auto& element : v) each(element);
  }
  template <class V, class F>
  void array(const std::optional<V>& v, bool flexible, bool nullable, std::size_t, F&& each) {
    length(v ? v->size() : 0, v || !nullable, flexible, 4);
    if (v) {
      for (const auto& element : *v) each(element);
    }
  }
  template <class S, class F>
  void structure(const std::optional<S>& s, F&& walk_it) {
    number(static_cast<std::int8_t>(s ? 1 : -1));
    if (s) walk_it(*s);
  }
  template <class F>
  void tags(F&& fields) {
    Count count;
    fields(count);
    at_ = store_uvarint(at_, count.fields);
    Tag tag{*this};
    fields(tag);
  }

 private:
  struct Count {
    std::size_t fields = 0;
    template <class F>
    void field(std::uint32_t, bool carried, bool present, F&&) {
      fields += carried && present ? 1 : 0;
    }
  };
  struct Tag {
    Encoder& out;
    template <class F>
    void field(std::uint32_t number, bool carried, bool present, F&& content) {
      if (!carried || !present) return;
      Sizer size;
      content(size);
      out.at_ = store_uvarint(out.at_, number);
      out.at_ = store_uvarint(out.at_, size.bytes() + size.spliced());
      content(out);
    }
  };
  void length(std::size_t n, bool present, bool flexible, std::size_t fixed) {
    if (flexible) {
      at_ = store_uvarint(at_, present ? n + 1 : 0);
    } else if (fixed == 2) {
      number(static_cast<std::int16_t>(present ? static_cast<int>(n) : -1));
    } else {
      number(present ? static_cast<std::int32_t>(n) : -1);
    }
  }
  void text(const void* data, std::size_t n, bool present, bool flexible, std::size_t fixed) {
    length(n, present, flexible, fixed);
    if (n != 0) std::memcpy(at_, data, n);
    at_ += n;
  }

  Frame& frame_;
  std::byte* at_;
};

class Decoder {
 public:
  explicit Decoder(Bytes bytes) : in_(bytes), memory_left_(64 * bytes.size() + 4096) {}

  [[nodiscard]] const char* error() const {
    if (error_ != nullptr) return error_;
    if (!in_.ok()) return "message is truncated or a length in it is wrong";
    return in_.left() != 0 ? "bytes are left over after the message" : nullptr;
  }

  template <class T>
  void number(T& value) {
    if constexpr (std::is_same_v<T, Uuid>) {
      if (const auto raw = in_.take(16); raw.size() == 16) std::memcpy(value.bytes.data(), raw.data(), 16);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = in_.number<std::int8_t>() != 0;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(in_.number<std::underlying_type_t<T>>());
    } else {
      value = in_.number<T>();
    }
  }
  void string(std::string& s, bool flexible) {
    if (const auto n = length(flexible, 2)) {
      s = as_text(in_.take(*n));
    } else {
      fail("a string is null where it may not be");
    }
  }
  void string(std::optional<std::string>& s, bool flexible, bool nullable) {
    if (const auto n = length(flexible, 2)) {
      s = std::string(as_text(in_.take(*n)));
    } else {
      s.reset();
      if (!nullable) fail("a string is null where it may not be");
    }
  }
  void bytes(Buffer& b, bool flexible) {
    if (const auto n = length(flexible, 4)) {
      b = to_buffer(in_.take(*n));
    } else {
      fail("bytes are null where they may not be");
    }
  }
  void bytes(std::optional<Buffer>& b, bool flexible, bool nullable) {
    if (const auto n = length(flexible, 4)) {
      b = to_buffer(in_.take(*n));
    } else {
      b.reset();
      if (!nullable) fail("bytes are null where they may not be");
    }
  }
  void records(Records& r, bool flexible, bool nullable) {
    if (const auto n = length(flexible, 4)) {
      r = Records(in_.take(*n));
    } else {
      r = Records();
      if (!nullable) fail("records are null where they may not be");
    }
  }
  template <class V, class F>
  void array(V& v, bool flexible, std::size_t smallest, F&& each) {
    if (const auto n = length(flexible, 4)) {
      elements(v, *n, smallest, each);
    } else {
      fail("an array is null where it may not be");
    }
  }
  template <class V, class F>
  void array(std::optional<V>& v, bool flexible, bool nullable, std::size_t smallest, F&& each) {
    if (const auto n = length(flexible, 4)) {
      elements(v.emplace(), *n, smallest, each);
    } else {
      v.reset();
      if (!nullable) fail("an array is null where it may not be");
    }
  }
  template <class S, class F>
  void structure(std::optional<S>& s, F&& walk_it) {
    const auto mark = in_.number<std::int8_t>();
    if (mark < 0) {
      s.reset();
    } else {
      walk_it(s.emplace());
    }
  }
  template <class F>
  void tags(F&& fields) {
    std::int64_t previous = -1;
    for (auto count = in_.uvarint(); count > 0 && in_.ok(); --count) {
      const auto number = in_.uvarint();
      const auto content = in_.take(in_.uvarint());
      if (!in_.ok()) return;
      if (number <= previous) return fail("tagged fields are not in rising order");
      previous = number;
      Tag tag{*this, number, content};
      fields(tag);
    }
  }

 private:
  struct Tag {
    Decoder& in;
    std::uint32_t number;
    Bytes content;
    template <class F>
    void field(std::uint32_t mine, bool carried, bool, F&& read) {
      if (mine != number || !carried || !in.in_.ok()) return;
      const auto after = std::exchange(in.in_, WireReader(content));
      read(in);
      const bool whole = in.in_.ok() && in.in_.left() == 0;
      in.in_ = after;
      if (!whole) in.fail("a tagged field does not fill its length");
    }
  };
  void fail(const char* what) {
    if (in_.ok() && error_ == nullptr) error_ = what;
    in_.fail();
  }
  /// Nothing for null. Lengths beyond what is left fail in take(), or in elements() before memory is asked for.
  std::optional<std::size_t> length(bool flexible, std::size_t fixed) {
    if (flexible) {
      const auto n = in_.uvarint();
      return n == 0 && in_.ok() ? std::nullopt : std::optional<std::size_t>(n == 0 ? 0 : n - 1);
    }
    const std::int32_t n = fixed == 2 ? in_.number<std::int16_t>() : in_.number<std::int32_t>();
    if (n < -1) fail("a length is negative");
    if (n < 0 && in_.ok()) return std::nullopt;
    return in_.ok() ? static_cast<std::size_t>(n) : 0;
  }
  template <class V, class F>
  void elements(V& v, std::size_t n, std::size_t smallest, F& each) {
    using Element = typename V::value_type;
    v.clear();
    if (n > in_.left() / (smallest == 0 ? 1 : smallest))
      return fail("an array claims more elements than there are bytes");
    if (n > memory_left_ / sizeof(Element)) return fail("a message asks for too much memory");
    memory_left_ -= n * sizeof(Element);
    v.reserve(n);
    for (; n > 0 && in_.ok(); --n) each(v.emplace_back());
  }

  WireReader in_;
  std::size_t memory_left_;
  const char* error_ = nullptr;
};

/// `walk_message(walker, message, version)` is what the generator wrote for M.
template <class M, class Walk>
ResultOf<M, DecodeError> decode_by(Bytes bytes, std::int16_t version, Walk&& walk_message) {
  if (!M::valid_versions.holds(version)) return DecodeError{"version is not supported"};
  M message;
  Decoder decoder(bytes);
  walk_message(decoder, message, version);
  if (const auto* what = decoder.error()) return DecodeError{what};
  return message;
}
template <class M, class Walk>
void encode_by(Frame& frame, const M& message, std::int16_t version, Walk&& walk_message) {
  Sizer size;
  walk_message(size, message, version);
  const auto at = frame.head.size();
  frame.head.resize(at + size.bytes());
  Encoder encoder(frame, at);
  walk_message(encoder, message, version);
}

}  // namespace ciuic::kafka::walk
