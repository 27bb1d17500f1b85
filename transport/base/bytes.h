#pragma once
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ciuic {

/// Bytes somebody else owns. Who, and for how long, is said where one is handed out.
using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;
using Buffer = std::vector<std::byte>;

inline Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
inline Buffer to_buffer(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace ciuic
