// Our side of the golden test against Apache's code. Reads lines of Golden.java from stdin, or writes batches for it.
//   kafka_golden names    every message that Apache has
//   kafka_golden check    messages and batches from stdin, decoded and encoded again: 'N passed, N failed'
//   kafka_golden write    batches of every codec with their records, in Golden.java's own lines
#include <cstdio>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "tests/unit/kafka/support/message_table.h"
#include "transport/kafka/messages/control_records.h"
#include "transport/kafka/record_batch.h"

namespace ciuic::kafka {
namespace {

constexpr std::size_t no_limit = 256 << 20;

std::string to_hex(Bytes bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text += digits[static_cast<unsigned>(byte) >> 4];
    text += digits[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

Buffer from_hex(std::string_view text) {
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  Buffer bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
  return bytes;
}

std::string field(const std::optional<Bytes>& bytes) { return bytes ? "x" + to_hex(*bytes) : "-"; }

/// The lines that Golden.java prints of the same batch.
std::string describe(const RecordBatchView& batch) {
  std::ostringstream out;
  out << std::boolalpha << "header " << batch.base_offset().value << ' ' << batch.last_offset().value << ' '
      << batch.leader_epoch().value << ' ' << batch.producer_id().value << ' ' << batch.producer_epoch().value << ' '
      << batch.base_sequence() << ' ' << batch.max_timestamp() << ' ' << batch.transactional() << ' ' << batch.control()
      << ' ' << batch.log_append_time() << '\n';
  Buffer scratch;
  auto reader = RecordReader::open(batch, scratch, no_limit);
  if (!reader) return out.str() + "cannot be opened: " + reader.error().text + '\n';
  while (const auto record = reader->next()) {
    out << "record " << record->offset.value << ' ' << record->timestamp << ' ' << field(record->key) << ' '
        << field(record->value);
    auto headers = record->headers;
    while (const auto header = next_header(headers))
      out << " x" << to_hex(as_bytes(header->key)) << '=' << field(header->value);
    out << '\n';
  }
  if (reader->error() != nullptr) out << "error: " << reader->error() << '\n';
  return out.str();
}

/// A transaction marker as the broker would write it, from what the given one says.
Buffer marker_again(const BatchHeader& header, RecordReader& reader) {
  const auto record = reader.next();
  const auto type = record ? control_type(*record) : std::nullopt;
  if (!type || !record->value) return {};
  const auto marker = decode<EndTxnMarker>(record->value->subspan(sizeof(std::int16_t)), 0);  // a version comes first
  if (!marker) return {};
  Buffer out;
  append_end_transaction_marker(out, header, *type, marker->coordinator_epoch, record->timestamp);
  return out;
}

/// The same records through our builder; an uncompressed batch with CreateTime must come out byte for byte.
Buffer rebuilt(const RecordBatchView& batch) {
  BatchHeader header;
  header.base_offset = batch.base_offset();
  header.leader_epoch = batch.leader_epoch();
  header.transactional = batch.transactional();
  header.control = batch.control();
  header.producer_id = batch.producer_id();
  header.producer_epoch = batch.producer_epoch();
  header.base_sequence = batch.base_sequence();
  RecordBatchBuilder builder;
  Buffer scratch;
  auto reader = RecordReader::open(batch, scratch, no_limit);
  if (batch.control()) return marker_again(header, *reader);
  while (const auto record = reader->next()) {
    std::vector<HeaderToWrite> headers;
    auto encoded = record->headers;
    while (const auto one = next_header(encoded)) headers.push_back({one->key, one->value});
    const auto delta = static_cast<std::int32_t>(record->offset - batch.base_offset());
    builder.add({record->timestamp, record->key, record->value, headers}, delta);
  }
  Buffer out;
  (void)builder.finish(header, out);  // without a codec nothing can fail
  return out;
}

class Check {
 public:
  int run() {
    std::string line;
    std::string expected;
    std::string name;
    Buffer batch;
    while (std::getline(std::cin, line)) {
      if (line.starts_with("header ") || line.starts_with("record ")) {
        expected += line + '\n';
        continue;
      }
      finish_batch(name, batch, expected);
      std::istringstream words(line);
      std::string kind;
      words >> kind >> name;
      if (kind == "message") message(words, name);
      if (kind != "batch") continue;
      std::string text;
      words >> text;
      batch = from_hex(text);
    }
    finish_batch(name, batch, expected);
    for (const auto& row : testing::every_message()) {
      if (row.api_key >= 17000) continue;
      for (auto v = row.versions.min; v <= row.versions.max; ++v) {
        if (!seen_.contains({row.name, v}))
          fail(std::string(row.name) + " v" + std::to_string(v) + " was not among the messages");
      }
    }
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ != 0 || passed_ == 0 ? 1 : 0;
  }

 private:
  void fail(const std::string& what) {
    if (++failed_ <= 20) std::printf("%s\n", what.c_str());
  }
  void message(std::istringstream& words, const std::string& name) {
    std::int16_t version = -1;
    std::string text;
    words >> version >> text;
    const auto* row = testing::find_message(name);
    if (row == nullptr) return fail(name + " is not known");
    seen_.insert({row->name, version});
    const auto bytes = from_hex(text);
    const auto again = row->again(bytes, version);
    if (again.error != nullptr) return fail(name + " v" + std::to_string(version) + ": " + again.error + "\n  " + text);
    if (again.bytes != bytes) {
      return fail(name + " v" + std::to_string(version) + " differs\n  Java " + text + "\n  ours " +
                  to_hex(again.bytes));
    }
    ++passed_;
  }
  void finish_batch(const std::string& codec, Buffer& bytes, std::string& expected) {
    if (bytes.empty()) return;
    const auto batch = RecordBatchView::parse(bytes);
    if (!batch) {
      fail("a batch of " + codec + " is refused: " + batch.error().text);
    } else if (!batch->crc_valid() || batch->codec() != parse_codec(codec)) {
      fail("a batch of " + codec + ": CRC or codec");
    } else if (const auto ours = describe(*batch); ours != expected) {
      fail("a batch of " + codec + " reads differently\n--- Java\n" + expected + "--- ours\n" + ours);
    } else if (batch->codec() == Codec::none && !batch->log_append_time() && rebuilt(*batch) != bytes) {
      fail("a batch built again from its records differs\n  Java " + to_hex(bytes) + "\n  ours " +
           to_hex(rebuilt(*batch)));
    } else {
      ++passed_;
    }
    bytes.clear();
    expected.clear();
  }

  std::set<std::pair<std::string_view, std::int16_t>> seen_;
  int passed_ = 0;
  int failed_ = 0;
};

int write_batches(std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  const auto noise = [&](std::size_t most, bool same) {
    Buffer bytes(dice() % most);
    for (auto& byte : bytes) byte = static_cast<std::byte>(same ? 'z' : dice());
    return bytes;
  };
  for (const auto codec : {Codec::none, Codec::gzip, Codec::snappy, Codec::lz4, Codec::zstd}) {
    for (int round = 0; round < 10; ++round) {
      RecordBatchBuilder builder;
      for (auto left = 1 + dice() % (round == 9 ? 3000 : 30); left > 0; --left) {
        const auto key = noise(12, false);
        const auto value = noise(400, round % 2 == 0);
        const HeaderToWrite headers[] = {{"name", Bytes(key)}, {"none", std::nullopt}};
        builder.add({1'700'000'000'000 + static_cast<std::int64_t>(dice() % 5000),
                     dice() % 4 == 0 ? std::nullopt : std::optional(Bytes(key)),
                     dice() % 6 == 0 ? std::nullopt : std::optional(Bytes(value)),
                     std::span(headers).first(dice() % 3)});
      }
      BatchHeader header;
      header.codec = codec;
      header.base_offset = Offset(static_cast<std::int64_t>(dice() % 100000));
      header.leader_epoch = LeaderEpoch(static_cast<std::int32_t>(dice() % 9));
      header.producer_id = ProducerId(static_cast<std::int64_t>(dice() % 1000));
      header.producer_epoch = ProducerEpoch(3);
      header.base_sequence = static_cast<std::int32_t>(dice() % 1000);
      header.transactional = round % 3 == 0;
      Buffer out;
      if (const auto done = builder.finish(header, out); !done) {
        std::fprintf(stderr, "%s\n", done.error().text.c_str());
        return 1;
      }
      if (round == 4) set_log_append_time(out, 1'700'000'009'999);
      std::cout << "batch " << name(codec) << ' ' << to_hex(out) << '\n' << describe(*RecordBatchView::parse(out));
    }
  }
  return 0;
}

}  // namespace
}  // namespace ciuic::kafka

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "check") return ciuic::kafka::Check().run();
  if (what == "write" && argc > 2) return ciuic::kafka::write_batches(std::stoull(argv[2]));
  if (what == "names") {
    for (const auto& row : ciuic::kafka::testing::every_message()) {
      if (row.api_key < 17000) std::cout << row.name << '\n';
    }
    return 0;
  }
  std::fprintf(stderr, "usage: kafka_golden names | check | write SEED\n");
  return 2;
}
