#include "transport/kafka/frame.h"

#include "transport/kafka/records.h"

namespace ciuic::kafka {

std::vector<Bytes> Frame::gather() const {
  std::vector<Bytes> pieces;
  pieces.reserve(splices.size() * 2 + 1);
  std::size_t at = 0;
  const Bytes all(head);
  for (const auto& splice : splices) {
    if (splice.at > at) pieces.push_back(all.subspan(at, splice.at - at));
    pieces.push_back(splice.bytes);
    at = splice.at;
  }
  if (at < head.size()) pieces.push_back(all.subspan(at));
  return pieces;
}

bool operator==(const Records& a, const Records& b) {
  if (a.is_null() != b.is_null() || a.size() != b.size()) return false;
  Buffer left;
  Buffer right;
  for (const auto piece : a.pieces()) left.insert(left.end(), piece.begin(), piece.end());
  for (const auto piece : b.pieces()) right.insert(right.end(), piece.begin(), piece.end());
  return left == right;
}

Buffer Frame::flatten() const {
  Buffer whole;
  whole.reserve(size());
  for (const auto piece : gather()) whole.insert(whole.end(), piece.begin(), piece.end());
  return whole;
}

}  // namespace ciuic::kafka
