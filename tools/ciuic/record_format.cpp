// kcat's format strings. Not here: JSON (consume.cpp).
#include "tools/ciuic/record_format.h"

#include <charconv>

#include "tools/ciuic/failure.h"

namespace ciuic::tool {

void RecordFormat::literal(char byte) {
  if (parts_.empty() || parts_.back().field != 0) parts_.emplace_back();
  parts_.back().text += byte;
}

RecordFormat::RecordFormat(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '%' && c != '\\') {
      literal(c);
      continue;
    }
    if (++i == text.size()) throw Failure(Exit::usage, "the format ends in the middle of an escape");
    const char next = text[i];
    if (c == '%') {
      if (next == '%') {
        literal('%');
      } else if (std::string_view("sSkKtpoTh").find(next) != std::string_view::npos) {
        parts_.push_back({next, {}});
      } else {
        throw Failure(Exit::usage, std::string("no such field: %") + next, "fields are %s %S %k %K %t %p %o %T %h");
      }
    } else if (next == 'x') {
      unsigned value = 0;
      const auto digits = text.substr(i + 1, 2);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (error != std::errc{}) throw Failure(Exit::usage, "\\x needs hexadecimal digits");
      literal(static_cast<char>(value));
      i += static_cast<std::size_t>(end - digits.data());
    } else {
      literal(next == 'n' ? '\n' : next == 'r' ? '\r' : next == 't' ? '\t' : next == '0' ? '\0' : next);
    }
  }
}

void RecordFormat::write(std::string& out, const client::RecordBatch& batch, const client::Record& record) const {
  const auto length = [](const std::optional<client::Bytes>& bytes) {
    return bytes ? std::to_string(bytes->size()) : std::string("-1");
  };
  for (const auto& part : parts_) {
    switch (part.field) {
      case 0:
        out += part.text;
        break;
      case 's':
        if (record.value) out += client::as_text(*record.value);
        break;
      case 'S':
        out += length(record.value);
        break;
      case 'k':
        if (record.key) out += client::as_text(*record.key);
        break;
      case 'K':
        out += length(record.key);
        break;
      case 't':
        out += batch.topic();
        break;
      case 'p':
        out += std::to_string(batch.partition());
        break;
      case 'o':
        out += std::to_string(record.offset);
        break;
      case 'T':
        out += std::to_string(record.timestamp);
        break;
      case 'h':
        for (std::size_t i = 0; i < record.headers.size(); ++i) {
          if (i != 0) out += ',';
          out += record.headers[i].key;
          out += '=';
          out += record.headers[i].value ? client::as_text(*record.headers[i].value) : "NULL";
        }
        break;
      default:
        break;
    }
  }
}

}  // namespace ciuic::tool
